"""What is read of an engine's map of users; tests/test_user_namespaces.py has the engine itself."""

from pathlib import Path
from typing import Any, cast

import pytest
from docker.errors import DockerException

from hostworker.runtime.sandboxes.containers import SandboxContainers
from hostworker.runtime.user_namespaces import folders_problem
from hostworker.runtime_protocol import EngineUnreachableError
from resources import procfs

REMAPPED = {"SecurityOptions": ["name=seccomp,profile=default", "name=userns"]}
KEEPS = "         0     200000       1000\n      1000       1000          1\n      1001     201001      64535\n"
MAPS = "         0     200000      65536\n"
SHORT = "         0     200000       1000\n"


class Containers:
    """Stands in for SandboxContainers, with a process 7."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.there: list[str] = []

    def create(self, name: str, hostname: str) -> str:
        self.there.append(name)
        return name

    def start(self, container_id: str) -> dict[str, Any]:
        if self.failure:
            raise self.failure
        return {"State": {"Pid": 7}}

    def remove(self, container: str) -> None:
        self.there.remove(container)


@pytest.mark.parametrize(
    ("users", "groups", "words"),
    [
        (KEEPS, KEEPS, ""),
        (MAPS, MAPS, "maps user 1000 of sessions to 201000"),
        (KEEPS, MAPS, "maps user 1000"),
        (SHORT, SHORT, "to None"),
        (None, None, "cannot be read on this machine"),
    ],
)
def test_folders_need_a_user_that_is_the_same_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, users: str | None, groups: str | None, words: str
) -> None:
    monkeypatch.setattr(procfs, "PROC", tmp_path)
    if users and groups:
        (tmp_path / "7").mkdir()
        (tmp_path / "7/uid_map").write_text(users)
        (tmp_path / "7/gid_map").write_text(groups)
    containers = Containers()
    problem = folders_problem(REMAPPED, cast(SandboxContainers, containers))
    assert words in problem
    assert bool(words) == bool(problem)
    assert containers.there == []


def test_an_engine_that_maps_nobody_is_not_asked() -> None:
    unasked = cast(SandboxContainers, None)
    assert folders_problem({"SecurityOptions": None}, unasked) == folders_problem({}, unasked) == ""


def test_a_failing_engine_leaves_no_container() -> None:
    containers = Containers(DockerException("away"))
    with pytest.raises(EngineUnreachableError):
        folders_problem(REMAPPED, cast(SandboxContainers, containers))
    assert containers.there == []
