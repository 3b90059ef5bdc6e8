"""Ten shapes of repositories: what is found in each, what is proposed, what is fetched, and that it runs."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from imports import services
from imports.requests import ImportRequest
from imports.runs.findings import last_message
from imports.tests.fetching import fetched, job_for
from imports.tests.git_host import GitHost, git
from imports.tests.making import ADDRESS, done, make_world
from imports.tests.shapes import LARGE, MANY, SHAPES, make_repository
from tests.factories import make_app, make_image

pytestmark = [pytest.mark.loopback, pytest.mark.django_db]


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder of the session's own, without uv, which `test_packages_by_uv` has."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


def proposed(found: dict[str, Any]) -> tuple[str, tuple[str, str]]:
    """Return the environment, and the app and file, that are proposed to somebody who has all environments."""
    owner, plain = make_world()
    others = [
        make_image(environment=environment, version=version, reference=f"t:{version}", is_default=version == "2.13")
        for environment, version in (("Python", "3.13"), ("PyTorch", "2.13"), ("PyTorch", "2.7"))
    ]
    for image in (plain, *others):
        for app in ("jupyterlab", "vscode"):
            make_app(image, name=app)
    message = last_message(json.dumps({"found": found}))
    options = services.launch_options(done(services.look(owner, ImportRequest(address=ADDRESS)), **message.found))
    assert options.image
    return f"{options.image.environment} {options.image.version}", (options.app, options.file)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long(2)] * (name == MANY)) for name in SHAPES])
def test_a_repository_is_found_proposed_fetched_and_run(
    name: str, host: GitHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = SHAPES[name]
    url, tree = host.url(make_repository(host, name)), tmp_path / "home" / "work"
    looked = fetched(capsys, job_for(url, tmp_path / "none", is_look=True))["found"]
    assert looked["present"] == shape.present
    environment, opened = proposed(looked)
    assert environment.startswith(shape.environment)
    assert opened == shape.opened
    found = fetched(capsys, job_for(url, tree, installs=shape.installs))["found"]
    assert (found["files"], found["present"]) == (looked["files"] + shape.more_files, shape.present)
    there = fetched(capsys, job_for(url, tree, is_present=True))["found"]  # in a session that is launched with it
    assert {**there, "notes": []} == {**found, "notes": []}
    for part in shape.notes:
        assert part in " ".join(looked["notes"]), "it is known before anything is fetched"
        assert part in " ".join(found["notes"])
    python = tree / ".venv" / "bin" / "python"
    command = [str(python) if python.exists() else "python3", "-S" if name == "hostile" else "-B", "-c", shape.runs]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)
    assert not Path("/tmp/gpuplatform-owned").exists()
    assert git(tree, "status", "--porcelain") == "" or name == LARGE  # git-lfs would know that it is the file
