"""Building images: what is reported, what is skipped, what a failure says, and what the built images can do."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.test import override_settings
from docker import DockerClient
from docker.errors import ImageNotFound
from docker.models.containers import Container

from resources.images import base, builds, replaced
from resources.images.base import BaseImageError, Bases
from resources.images.builder import ImageBuildError, built_digest, follow_build
from resources.images.catalogue.catalog import Entry
from resources.images.catalogue.inputs import network_arguments
from resources.management.commands import build_images
from resources.models import Image
from tests.images import ENABLED, ENTRIES, ensure_images

BUILT = [ENTRIES[label] for label in ENABLED]
TINY = """
[[image]]
environment = "{name}"
version = "1"
reference = "gpuplatform-buildtest/{name}:1"
[image.build]
suite = "bookworm"
packages = ["six==1.{minor}.0"]
"""
TINY_DOCKERFILE = """
ARG BASE
FROM ${BASE}
ARG REFRESH
ARG PACKAGES
COPY files/ /srv/
RUN echo wanted: ${PACKAGES}
RUN case ${PACKAGES} in *1.13.0) echo this cannot work; exit 3;; esac
"""


def test_only_executed_build_commands_are_reported() -> None:
    events: list[dict[str, object]] = [
        {"stream": "Step 1/3 : FROM debian"},
        {"stream": " ---> 0123456789ab\n"},
        {"stream": "Step 2/3 : RUN   apt-get update"},
        {"stream": " ---> Using cache\n"},
        {"stream": "Step 3/3 : RUN pip install \\\n"},
        {"stream": " ---> Running in 0123456789ab\n"},
        {"stream": "Collecting six\n"},
    ]
    lines: list[str] = []
    follow_build(events, lines.append)
    assert lines == ["Step 3/3 : RUN pip install \\"]


def test_a_failed_build_shows_its_command_and_output() -> None:
    output = [{"stream": f"line {number}\n"} for number in range(100)]
    events = [{"stream": "Step 2/3 : RUN make"}, *output, {"error": "returned a non-zero code: 2"}]
    with pytest.raises(ImageBuildError) as caught:
        follow_build(events, lambda _: None)
    lines = str(caught.value).splitlines()
    assert lines[0] == "Step 2/3 : RUN make"
    assert lines[1:-1] == [f"line {number}" for number in range(70, 100)]
    assert lines[-1] == "returned a non-zero code: 2"


def test_output_of_earlier_commands_is_left_out() -> None:
    streams = ["Step 1/2 : RUN apt-get update", "Hit:1 bookworm\n", "Step 2/2 : RUN make", "no such target\n"]
    events = [*({"stream": text} for text in streams), {"error": "code 2"}]
    with pytest.raises(ImageBuildError) as caught:
        follow_build(events, lambda _: None)
    assert str(caught.value).splitlines() == ["Step 2/2 : RUN make", "no such target", "code 2"]


@pytest.fixture(scope="module")
def engine() -> Iterator[DockerClient]:
    with closing(DockerClient(base_url=settings.COMPUTE_DOCKER_URL)) as client:
        yield client


@pytest.fixture(scope="module")
def built() -> None:
    """Every image of the catalogue that is built here, in the state of this checkout."""
    ensure_images()


@pytest.fixture
def folder(tmp_path: Path, engine: DockerClient, built: None) -> Iterator[Path]:
    """A small catalogue of its own on a base that is there already; what it built is removed."""
    (tmp_path / "files").mkdir()
    (tmp_path / "Dockerfile").write_text(TINY_DOCKERFILE)
    (tmp_path / "catalog.toml").write_text(TINY.format(name="tiny", minor=17))
    yield tmp_path
    for name in ("tiny", "broken"):
        if built_digest(engine, f"gpuplatform-buildtest/{name}:1"):
            engine.images.remove(f"gpuplatform-buildtest/{name}:1")


@contextmanager
def container_of(engine: DockerClient, entry: Entry) -> Iterator[Container]:
    network = network_arguments(os.environ)  # packages are found where the build found them
    container = engine.containers.run(entry.reference, detach=True, init=True, network_mode="host", environment=network)
    try:
        yield container
    finally:
        container.remove(force=True)


def output_of(container: Container, command: str) -> str:
    """Run a command with bash in the container; it must succeed."""
    status, output = container.exec_run(["bash", "-c", command])
    assert isinstance(output, bytes)
    assert status == 0, output.decode()
    return output.decode().strip()


@pytest.mark.docker
@pytest.mark.parametrize(
    "entry",
    [pytest.param(entry, id=entry.label, marks=[pytest.mark.long] * (entry != BUILT[0])) for entry in BUILT],
)
def test_a_built_image_has_what_a_session_needs(engine: DockerClient, built: None, entry: Entry) -> None:
    python = entry.version if entry.environment == "Python" else "3.11"
    with container_of(engine, entry) as container:
        assert output_of(container, "whoami; id -u; pwd; echo $HOME $LANG").split() == (
            ["work", "1000", "/home/work", "/home/work", "C.UTF-8"]
        )
        assert output_of(container, "python --version").startswith(f"Python {python}.")
        assert output_of(container, "bash -lc 'command -v python'") == "/opt/python/bin/python"
        assert output_of(container, "jupyter lab --version").startswith("4.")
        assert output_of(container, "jupyter notebook --version").startswith("7.")
        assert output_of(container, "code-server --version").splitlines()[-1].startswith("4.")
        assert output_of(container, "tmux -V").startswith("tmux 3.")
        assert output_of(container, "git --version").startswith("git version 2.")
        if entry.environment == "scikit-learn":
            version = output_of(container, "python -c 'import sklearn; print(sklearn.__version__)'")
            assert version.startswith(f"{entry.version}.")
        for app in {"tensorboard", "mlflow"} & {app.name for app in entry.apps}:
            assert output_of(container, f"{app} --version 2>/dev/null")


@pytest.mark.docker
def test_users_can_install_packages(engine: DockerClient, built: None) -> None:
    with container_of(engine, BUILT[0]) as container:
        output_of(container, "pip install --user colorama")
        assert output_of(container, "python -c 'import colorama; print(colorama.__file__)'").startswith("/home/work/")
        output_of(container, "sudo -n pip install toml")
        assert output_of(container, "python -c 'import toml; print(toml.__file__)'").startswith("/opt/python/")


@pytest.mark.docker
def test_the_terminal_is_tmux_as_the_guide_says(engine: DockerClient, built: None) -> None:
    with container_of(engine, BUILT[0]) as container:
        output_of(container, "tmux new-session -d")
        shown = [output_of(container, f"tmux show -gv {name}") for name in ("prefix", "mouse", "history-limit")]
        assert shown == ["C-b", "on", "50000"]


@pytest.mark.docker
@pytest.mark.django_db
def test_only_changed_files_cause_a_rebuild(
    folder: Path, engine: DockerClient, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = []
    for _ in range(2):
        call_command("build_images", folder=folder)
        outputs.append(capsys.readouterr().out)
    before = engine.images.get("gpuplatform-buildtest/tiny:1").id
    (folder / "files" / "new").write_text("new")
    call_command("build_images", folder=folder)
    assert "tiny 1: built" in outputs[0]
    assert "tiny 1: added" in outputs[0]
    assert len(outputs[1].splitlines()) == 1
    assert "tiny 1: up to date" in outputs[1]
    assert engine.images.get("gpuplatform-buildtest/tiny:1").id != before
    with pytest.raises(ImageNotFound):
        engine.images.get(str(before))


@pytest.mark.docker
@pytest.mark.django_db
def test_a_replaced_image_goes_once_nothing_uses_it(folder: Path, engine: DockerClient) -> None:
    call_command("build_images", folder=folder)
    before = engine.images.get("gpuplatform-buildtest/tiny:1")
    container = engine.containers.create("gpuplatform-buildtest/tiny:1")
    try:
        (folder / "files" / "new").write_text("new")
        call_command("build_images", folder=folder)
        assert engine.images.get(str(before.id)), "a container uses it"
    finally:
        container.remove()
    replaced.remove_unused(engine.api)
    with pytest.raises(ImageNotFound):
        engine.images.get(str(before.id))


@pytest.mark.docker
@pytest.mark.django_db
@pytest.mark.parametrize(("has_driver", "options"), [(True, {}), (False, {"gpu": True})])
def test_a_driver_or_the_option_builds_for_gpus(
    folder: Path, monkeypatch: pytest.MonkeyPatch, has_driver: bool, options: dict[str, bool]
) -> None:
    variants = '[image.build.cuda]\npackages = ["with-gpu==1"]\n[image.build.cpu]\npackages = ["without==1"]\n'
    (folder / "catalog.toml").write_text(TINY.format(name="tiny", minor=17) + variants)
    monkeypatch.setattr(build_images, "has_nvidia_gpu", lambda: has_driver)
    call_command("build_images", folder=folder, gpu=False)
    assert Image.objects.get().accelerators == ""
    out = StringIO()
    call_command("build_images", folder=folder, stdout=out, **options)
    assert "tiny 1: built" in out.getvalue(), "it was there, but without what GPUs need"
    assert Image.objects.get().accelerators == "cuda"


@pytest.mark.docker
@pytest.mark.django_db
def test_a_failed_image_does_not_stop_the_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = TINY.format(name="broken", minor=13) + TINY.format(name="tiny", minor=17)
    (folder / "catalog.toml").write_text(both)
    with pytest.raises(CommandError, match="1 of 2 images failed: broken 1"):
        call_command("build_images", folder=folder)
    output = capsys.readouterr().out
    assert "RUN case ${PACKAGES}" in output
    assert "this cannot work" in output
    assert "returned a non-zero code: 3" in output
    usable = [image.environment for image in Image.objects.all() if builds.is_usable(image)]
    assert usable == ["tiny"]


@pytest.mark.rebuild
@pytest.mark.docker
def test_every_image_of_the_catalogue_builds_from_nothing() -> None:
    ensure_images(force=True)


@pytest.mark.docker
def test_a_registry_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "PROBE_SECONDS", 0.5)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        assert not base.registry_responds(f"127.0.0.1:{silent.getsockname()[1]}/debian:12")


@pytest.mark.docker
def test_a_missing_base_image_is_reported_with_advice(engine: DockerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    bases = Bases(engine, refresh=False, report=lambda _: None)
    with pytest.raises(BaseImageError, match=r"for debian:nosuch-slim.*apt-get install debootstrap"):
        bases.reference("nosuch")


@override_settings(COMPUTE_DOCKER_URL="tcp://127.0.0.1:1")
def test_without_docker_the_command_says_where_it_looked() -> None:

    with pytest.raises(CommandError, match=r"Docker does not answer at tcp://127\.0\.0\.1:1: "):
        call_command("build_images")
