"""uv in an image of the catalogue installs what the image lacks, for each way in which a repository names packages."""

import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import docker
import pytest
from docker.models.containers import Container

from imports.fetcher import environments
from imports.runs import delivery
from tests.execs import output_of
from tests.fgpu_sessions import PYTHON_IMAGE, ensure_python_image
from tests.test_folders_in_sessions import WHEEL, wheel

pytestmark = pytest.mark.docker

OPTIONS: Final = "--no-index\n--find-links wheels\n"
PROJECT: Final = """
[project]
name = "course"
version = "1"
dependencies = ["hello", "jupyterlab"]
[dependency-groups]
dev = ["notebook"]
[tool.uv]
no-index = true
find-links = ["wheels"]
"""
BUILT: Final = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
LOCKED: Final = """
[project]
name = "course"
version = "1"
requires-python = ">=3.11"
dependencies = ["hello"]
[tool.uv.sources]
hello = { path = "wheels/%s" }
"""
SHAPES: Final = {
    "requirements": {"requirements.txt": f"{OPTIONS}-r more.txt\njupyterlab>=4\n", "more.txt": "hello\n"},
    "conda": {"environment.yml": "dependencies:\n- jupyterlab>=4\n- ffmpeg\n- pip:\n  - --no-index\n"
              "  - --find-links wheels\n  - hello\n"},
    "project": {"pyproject.toml": PROJECT},
    "locked": {"pyproject.toml": LOCKED % WHEEL},
}  # fmt: skip


@pytest.fixture(scope="module")
def container() -> Iterator[Container]:
    """A container as sessions are, without a network, that has the program and the folder of environments."""
    ensure_python_image()
    with closing(docker.from_env()) as client:
        made = client.containers.run(PYTHON_IMAGE, ["sleep", "900"], detach=True, network_mode="none")
        try:
            put(made, {"program": delivery.program()})
            done(made, f"mkdir ~/{environments.FOLDER}")
            yield made
        finally:
            made.remove(force=True)


def put(container: Container, files: dict[str, bytes | str]) -> None:
    """Write files of the user below /home/work."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, text in files.items():
            data = text.encode() if isinstance(text, str) else text
            about = tarfile.TarInfo(name)
            about.size, about.uid, about.gid = len(data), 1000, 1000
            archive.addfile(about, io.BytesIO(data))
    assert container.put_archive("/home/work", content.getvalue())


def done(container: Container, command: str) -> str:
    """Return the output of a command that goes well."""
    with closing(docker.from_env()) as client:
        code, output = output_of(client.api, str(container.id), command, "work")
    assert code == 0, output
    return output


def installed(container: Container, name: str) -> str:
    """Have the program install what a tree names, and return what it says."""
    job = {"id": "i" * 16, "kind": "git", "url": "", "target": f"~/{name}", "is_present": True, "installs": True}
    put(container, {"job": json.dumps(job)})
    return done(container, "python3 program job")


@pytest.mark.parametrize("name", SHAPES)
def test_only_what_the_image_lacks_is_installed(container: Container, name: str) -> None:
    tree = {f"{name}/{path}": text for path, text in SHAPES[name].items()}
    done(container, f"mkdir -p {name}/wheels")
    put(container, {**tree, f"{name}/wheels/{WHEEL}": wheel()})
    if name == "locked":
        done(container, f"cd {name} && uv lock -q --offline")
    assert "Installs packages" in (said := installed(container, name))
    assert "pip" not in said, "uv installs"
    shown = done(container, f"cd {name} && .venv/bin/python -c 'import hello, jupyterlab; print(jupyterlab.__file__)'")
    assert "/opt/python/" in shown
    packages = done(container, f"cd {name} && ls .venv/lib/python3.11/site-packages").split()
    assert not {"jupyterlab", "notebook", "tornado", "jinja2"} & set(packages)
    assert done(container, f"readlink {name}/.venv").startswith(f"/home/work/{environments.FOLDER}/")
    assert "Installs" not in installed(container, name)
    done(container, f"rm {name}/.venv")  # what a session finds that fetches the repository again
    assert "Installs" not in installed(container, name)
    done(container, f"{name}/.venv/bin/python -c 'import hello'")


def test_what_uv_refuses_is_left_to_pip(container: Container) -> None:
    done(container, "mkdir -p odd/wheels .local/bin && printf '#!/bin/sh\\ntouch ~/asked; exit 1' >.local/bin/uv")
    done(container, "chmod +x .local/bin/uv")
    put(container, {"odd/requirements.txt": f"{OPTIONS}hello\n", f"odd/wheels/{WHEEL}": wheel()})
    installed(container, "odd")
    done(container, "ls asked && rm .local/bin/uv && odd/.venv/bin/python -c 'import hello'")
