"""Whether an engine can lift the limits of a user's resources is tried once, and leaves no container."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest
from docker.errors import APIError

from hostworker.runtime import resource_limits
from hostworker.runtime.container_config import UNLIMITED
from hostworker.runtime.resource_limits import can_lift_limits
from hostworker.runtime.sandboxes.containers import SandboxContainers

INFO = {"ID": "an engine"}


class Containers:
    """Stands in for SandboxContainers, on an engine that responds so to a start."""

    def __init__(self, failure: str = "") -> None:
        self.failure = failure
        self.there: list[str] = []
        self.made = 0

    def create(self, name: str, hostname: str, limits: Iterable[Mapping[str, object]]) -> str:
        assert tuple(limits) == UNLIMITED
        self.there.append(name)
        self.made += 1
        return name

    def start(self, container_id: str) -> dict[str, Any]:
        if self.failure:
            raise APIError("400 Bad Request", explanation=self.failure)
        return {}

    def remove(self, container: str) -> None:
        self.there.remove(container)


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_limits, "_known", {})


@pytest.mark.parametrize(
    ("failure", "can"), [("", True), ("error setting rlimits for ready process: operation not permitted", False)]
)
def test_an_engine_is_tried_once(failure: str, can: bool) -> None:
    containers = Containers(failure)
    for _ in range(2):
        assert can_lift_limits(INFO, cast(SandboxContainers, containers)) is can
    assert (containers.made, containers.there) == (1, [])


def test_an_engine_that_fails_otherwise_is_tried_again() -> None:
    containers = Containers("no space left on device")
    for _ in range(2):
        with pytest.raises(APIError):
            can_lift_limits(INFO, cast(SandboxContainers, containers))
    assert (containers.made, containers.there) == (2, [])
