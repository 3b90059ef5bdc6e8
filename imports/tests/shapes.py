"""Ten shapes of repositories, and one more, as they are in tests and measured by `bench.imports`."""

import os
from dataclasses import dataclass, field
from typing import Final

from imports.tests.git_host import GitHost, git
from tests.test_folders_in_sessions import WHEEL, wheel

MANY: Final = "many files"
LARGE: Final = "large file"
SUBMODULES: Final = "submodules"

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
    more_files: int = 0  # than a look sees, as of submodules


SHAPES: Final = {
    "requirements": RepositoryShape(
        files={
            **{"requirements.txt": f"{OPTIONS}hello\n", "a.ipynb": "{}"},
            "json.py": "raise SystemExit('not that of the library')\n",  # beside which pip runs
        },
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
    LARGE: RepositoryShape(
        files={".lfsconfig": "[lfs]\n\turl = https://evil.example/\n"},  # and model.bin
        runs="import os; assert os.path.getsize('model.bin') % 2**20 == 0",
    ),
    MANY: RepositoryShape(files={}, runs="assert open('0/0.txt').read() == '0\\n'"),
    SUBMODULES: RepositoryShape(
        files={".gitmodules": '[submodule "x"]\n\tpath = x/y\n\turl = ../requirements\n'},
        runs="assert 'hello' in open('x/y/requirements.txt').read()",
        more_files=4,
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


def make_repository(host: GitHost, name: str, *, many: int = 50_000, large: int = 3 * 2**20) -> str:
    """Make the repository of a shape at the host, and return its name there."""
    files: dict[str, str | bytes] = {**SHAPES[name].files, f"wheels/{WHEEL}": wheel()}
    if name == LARGE:
        files["model.bin"] = host.pointer(os.urandom(large))
    if name == MANY:
        files |= {f"{number % 250}/{number}.txt": f"{number}\n" for number in range(many)}
    title = name.replace(" ", "-")
    copy = host.repository(title, files)
    if name == SUBMODULES:
        make_repository(host, "requirements")
        commit = git(host.folder / "copies" / "requirements", "rev-parse", "HEAD")
        git(copy, "update-index", "--add", "--cacheinfo", f"160000,{commit},x/y")
        git(copy, "commit", "-q", "-m", "submodule")
        host.publish(title)
    return title
