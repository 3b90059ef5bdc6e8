"""`manage.py images`, and pulls with a stored login, against a real registry and a real engine."""

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from docker.api import APIClient
from docker.errors import ImageNotFound

from hostworker.images import host_images
from hostworker.runtime.docker.runtime import DockerRuntime
from hostworker.runtime.tests.runtime_worlds import new_session
from hostworker.runtime_protocol import ImageUnavailableError
from resources.amounts.units import GIB
from resources.images.catalogue.labels import read_labels
from resources.models import HostImage, Image, ImagePull, ImageSource, PullState, Registry
from resources.registries.credentials import set_password
from resources.registries.login import ANONYMOUS
from tests.factories import make_host, make_image, make_policy, make_session, make_user, run_session
from tests.registry import ENGINE_URL, PASSWORD, USERNAME, LocalRegistry, running_registry
from tests.tiny_image import ensure_tiny_image
from tests.wait import until

pytestmark = pytest.mark.django_db

LABELS = {
    "gpuplatform.environment": "Tiny tool",
    "gpuplatform.version": "7",
    "gpuplatform.apps": "jupyter, tensorboard",
    "gpuplatform.min-cpu": "2",
    "gpuplatform.min-memory": "1g",
    "gpuplatform.min-fgpu": "0.5",
    "gpuplatform.min-gpu-memory": "16g",
    "gpuplatform.accelerators": "cuda",
    "org.opencontainers.image.description": "For tests",
}


@pytest.fixture(scope="module")
def registry() -> Iterator[LocalRegistry]:
    with running_registry(with_login=True) as registry:
        yield registry


@pytest.fixture(scope="module")
def reference(registry: LocalRegistry) -> Iterator[str]:
    """An image that only the registry has; whoever pulls it leaves it to this fixture."""
    made = registry.push(ensure_tiny_image(), f"team/{new_session()}:1", LABELS)
    yield made
    client = APIClient(ENGINE_URL, version="auto")
    with suppress(ImageNotFound):
        client.remove_image(made, force=True)
    client.close()


def known(registry: LocalRegistry, password: str = PASSWORD) -> Registry:
    row = Registry(name="Lab", address=registry.address, username=USERNAME)
    set_password(row, password)
    row.save()
    return row


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("images", *arguments, stdout=out, stderr=out)
    return out.getvalue()


@pytest.mark.docker
def test_an_image_of_a_registry_enters_by_its_labels(registry: LocalRegistry, reference: str) -> None:
    known(registry)
    assert f"Tiny tool 7 is registered as {reference} for everybody" in run("add", reference)
    image = Image.objects.get()
    assert (image.min_cpu, image.min_memory, image.min_fgpu, image.min_gpu_memory) == (2, GIB, 500, 16 * GIB)
    assert (image.accelerators, image.architecture, image.description) == ("cuda", "amd64", "For tests")
    assert [app.name for app in image.apps.all()] == ["jupyter", "tensorboard"]
    assert image.size
    assert image.size > 100_000
    told = json.loads(run("scan"))
    assert (told["from"], told["size"], told["min_fgpu"]) == ("registry", image.size, "0.5")


@pytest.mark.docker
@pytest.mark.parametrize(("password", "reason"), [(None, "needs a login"), ("wrong", "needs a login")])
def test_a_registry_without_the_right_login_tells_nothing(
    registry: LocalRegistry, reference: str, password: str | None, reason: str
) -> None:
    if password:
        known(registry, password)
    with pytest.raises(CommandError, match=reason):
        run("add", reference)
    assert not Image.objects.exists()


@pytest.mark.docker
def test_a_host_pulls_with_the_stored_login_unlogged(
    registry: LocalRegistry, reference: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    host, runtime = make_host(), DockerRuntime(new_session(), "here", ENGINE_URL)
    image = make_image(reference=reference)
    with pytest.raises(ImageUnavailableError, match="may need a login"):
        host_images.ensure(runtime, image, lambda text: None)
    known(registry)
    assert "is pulled to" in run("pull", reference, "--no-wait")
    host_images.pull_requested(runtime, host)
    pull = ImagePull.objects.get()
    assert (pull.state, pull.detail) == (PullState.DONE, "")
    held = HostImage.objects.get(host=host, image=image)
    assert held.size > 1_000_000
    assert PASSWORD not in caplog.text
    named = make_image(owner=make_user(), reference=reference.replace(":1", ":2"), source=ImageSource.UNLISTED)
    with pytest.raises(ImageUnavailableError):  # another's pull, and the platform's login, give it to nobody else
        host_images.ensure(runtime, named, lambda text: None)
    with pytest.raises(ImageUnavailableError, match="login"):
        runtime.images.ensure(reference, lambda text: None, lambda: ANONYMOUS, always_pull=True)


@pytest.mark.django_db(transaction=True)
def test_a_pull_is_followed_until_every_host_has_ended() -> None:
    image = make_image()
    good, bad = make_host(name="good"), make_host(name="bad")

    def end() -> None:
        until(lambda: ImagePull.objects.count() == 2)  # the command has asked for them
        ImagePull.objects.filter(host=good).update(state=PullState.DONE)
        ImagePull.objects.filter(host=bad).update(state=PullState.FAILED, detail="the disk is full")
        connection.close()

    out = StringIO()
    hosts = threading.Thread(target=end)
    hosts.start()
    with pytest.raises(CommandError, match="not pulled to bad"):
        call_command("images", "pull", image.reference, stdout=out)
    hosts.join()
    assert "bad: the disk is full" in out.getvalue()
    assert "good: done" in out.getvalue()


def test_an_image_in_use_is_not_removed() -> None:
    session = run_session()
    with pytest.raises(CommandError, match="in use by"):
        run("remove", session.image.reference)
    image = make_session().image
    image.sessions.all().delete()
    assert "no longer offered" in run("remove", image.reference)
    assert image not in Image.objects.usable_by(make_user())
    assert image.reference not in run("list")


def test_a_removed_image_can_be_entered_again() -> None:
    image = make_image()
    run("remove", image.reference)
    run("add", image.reference, "--no-scan", "--environment", "Again", "--version", "1")
    again = Image.objects.get()
    assert (again.pk, str(again), again.is_enabled) == (image.pk, "Again 1", True)


def test_an_image_can_be_entered_for_one_user() -> None:
    owner = make_user(policy=make_policy())
    run("add", "lab.example.com/team/tool:3", "--no-scan", "--owner", owner.email)
    image = Image.objects.get()
    assert (image.owner, str(image)) == (owner, "tool 3")
    assert owner.email in run("list")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", "no tag", "--no-scan"), "is not an image reference"),
        (("add", "x.org/a:1", "--no-scan", "--owner", "nobody@example.org"), "no user has the address"),
        (("pull", "x.org/unknown:1"), "no image is registered as"),
        (("remove", "x.org/unknown:1"), "no image is registered as"),
    ],
)
def test_mistakes_are_reported_in_a_sentence(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        run(*arguments)


def test_a_pull_needs_a_host_and_a_registry() -> None:
    image = make_image()
    with pytest.raises(CommandError, match="no host is ready"):
        run("pull", image.reference)
    with pytest.raises(CommandError, match="no host is called far"):
        run("pull", image.reference, "--host", "far")
    Image.objects.update(source=ImageSource.CATALOG)
    with pytest.raises(CommandError, match="build_images"):
        run("pull", image.reference)


def test_labels_that_say_nonsense_are_reported() -> None:
    config: dict[str, Any] = {"config": {"Labels": {"gpuplatform.min-cpu": "-1", "gpuplatform.min-memory": "much"}}}
    labels = read_labels(config)
    assert (labels.min_cpu, labels.min_memory, len(labels.problems)) == (None, None, 2)
    plain = read_labels({"architecture": "arm64", "config": {"Env": ["CUDA_VERSION=12.4"]}})
    assert (plain.architecture, plain.accelerators, plain.environment) == ("arm64", "cuda", "")
