"""Ten shapes of repositories: what is found in each, what is proposed, what is fetched, and that it runs."""

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from imports import services
from imports.requests import ImportRequest
from imports.runs.findings import last_message
from imports.tests.fetching import fetched, job_for
from imports.tests.git_host import GitHost, git
from imports.tests.making import ADDRESS, done, make_world
from tests.factories import make_app, make_image
from tests.test_folders_in_sessions import WHEEL, wheel

pytestmark = [pytest.mark.loopback, pytest.mark.django_db]

OPTIONS: Final = "--no-index\n--find-links wheels\n"
PROJECT: Final = '[project]\nname = "course"\nversion = "1"\n'
BACKEND: Final = f"""
import os
def build_editable(directory, config_settings=None, metadata_directory=None):
    import shutil
    shutil.copy(os.path.join("wheels", "{WHEEL}"), directory)
    return "{WHEEL}"
"""
BUILT: Final = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
HELLO: Final = "import hello"


@dataclass(frozen=True, kw_only=True)
class RepositoryShape:
    """A repository; what of it is found, what is proposed for it, and Python that runs in it ("" for none)."""

    files: dict[str, str | bytes]
    present: list[str] = field(default_factory=list)
    environment: str = "Python"
    opened: tuple[str, str] = ("vscode", "")  # app and file
    runs: str = HELLO
    installs: bool = True
    notes: tuple[str, ...] = ()  # parts of sentences


SHAPES: Final = {
    "requirements": RepositoryShape(
        files={"requirements.txt": f"{OPTIONS}hello\n", "a.ipynb": "{}"},
        present=["requirements.txt"],
        opened=("jupyterlab", "a.ipynb"),
    ),
    "conda": RepositoryShape(
        files={"environment.yml": "dependencies:\n- ffmpeg\n- pip:\n  - --no-index\n  - -f wheels\n  - hello\n"},
        present=["environment.yml"],
        notes=("conda alone has, which is not installed: ffmpeg.",),
    ),
    "project": RepositoryShape(
        files={
            "pyproject.toml": f"{PROJECT.replace('course', 'hello')}{BUILT}# torch==2\n",
            "backend.py": BACKEND,
            ".gitignore": "__pycache__\n",  # what building it leaves
        },
        present=["pyproject.toml"],
    ),
    "lock file": RepositoryShape(  # what uv does with it: test_packages_by_uv
        files={"uv.lock": "version = 1\n", "pyproject.toml": f'{PROJECT}dependencies = ["torch==2.7.1"]\n'},
        present=["pyproject.toml", "uv.lock"],
        environment="PyTorch 2.7",
        installs=False,
        runs="import json",
    ),
    "Dockerfile": RepositoryShape(
        files={"Dockerfile": "ARG V\nFROM --platform=linux/amd64 pytorch/pytorch:2.7.0-cuda12 AS base\nFROM base\n"},
        present=["Dockerfile"],
        environment="PyTorch 2.7",
        runs="import json",
    ),
    "devcontainer": RepositoryShape(
        files={
            ".devcontainer/devcontainer.json": '{"image": "mcr.microsoft.com/devcontainers/python:3.13", // x\n'
            '"hostRequirements": {"cpus": 4, "memory": "8gb", "gpu": "optional"},}'
        },
        present=[".devcontainer/devcontainer.json"],
        environment="Python 3.13",
        runs="import json",
    ),
    "notebooks": RepositoryShape(
        files={"b/deep.ipynb": "{}", "a.ipynb": "{}", ".ipynb_checkpoints/x.ipynb": "{}"},
        opened=("jupyterlab", "a.ipynb"),
        runs="import json",
    ),
    "large file": RepositoryShape(
        files={"model.bin": b"", ".lfsconfig": "[lfs]\n\turl = https://evil.example/\n"},
        runs="import os; assert os.path.getsize('model.bin') == 3 * 2**20",
    ),
    "hostile": RepositoryShape(
        files={
            "requirements.txt": f"{OPTIONS}-r ../../../etc/passwd-none\nhello\n",
            ".gitattributes": "* filter=evil\n",
            ".gitconfig": "[core]\n\tfsmonitor = touch /tmp/gpuplatform-owned\n",
            ".gitmodules": '[submodule "x"]\n\tpath = x\n\turl = ext::sh -c "touch /tmp/gpuplatform-owned"\n',
            "sitecustomize.py": "raise SystemExit(3)\n",
            "\u202eevil.ipynb": "{}",
        },
        present=["requirements.txt"],
        installs=False,
        runs="import json",
    ),
}  # fmt: skip


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


@pytest.mark.parametrize("name", SHAPES)
def test_a_repository_is_found_proposed_fetched_and_run(
    name: str, host: GitHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = SHAPES[name]
    files = {**shape.files, f"wheels/{WHEEL}": wheel()}
    if "model.bin" in files:
        files["model.bin"] = host.pointer(b"m" * (3 * 2**20))
    host.repository("work", files)
    url, tree = host.url("work"), tmp_path / "home" / "work"
    looked = fetched(capsys, job_for(url, tmp_path / "none", is_look=True))["found"]
    assert looked["present"] == shape.present
    environment, opened = proposed(looked)
    assert environment.startswith(shape.environment)
    assert opened == shape.opened
    found = fetched(capsys, job_for(url, tree, installs=shape.installs))["found"]
    assert (found["files"], found["present"]) == (looked["files"], shape.present)
    there = fetched(capsys, job_for(url, tree, is_present=True))["found"]  # in a session that is launched with it
    assert {**there, "notes": []} == {**found, "notes": []}
    for part in shape.notes:
        assert part in " ".join(looked["notes"]), "it is known before anything is fetched"
        assert part in " ".join(found["notes"])
    python = tree / ".venv" / "bin" / "python"
    command = [str(python) if python.exists() else "python3", "-S" if name == "hostile" else "-B", "-c", shape.runs]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)
    assert not Path("/tmp/gpuplatform-owned").exists()
    assert git(tree, "status", "--porcelain") == "" or name == "large file"  # git-lfs would know that it is the file


@pytest.mark.long
def test_fifty_thousand_files_are_fetched(host: GitHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host.repository("work", {f"{number % 250}/{number}.txt": f"{number}\n" for number in range(50_000)})
    looked = fetched(capsys, job_for(host.url("work"), tmp_path / "none", is_look=True))["found"]
    found = fetched(capsys, job_for(host.url("work"), tmp_path / "tree"))["found"]
    assert looked["files"] == found["files"] == 50_000
    assert (tmp_path / "tree" / "99" / "49999.txt").exists() or (tmp_path / "tree" / "249" / "49999.txt").exists()
    assert git(tmp_path / "tree", "status", "--porcelain") == ""
