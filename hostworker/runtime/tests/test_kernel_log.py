"""Kills at a container's memory limit, as the kernel's log tells them where the engine does not."""

import os
from pathlib import Path
from typing import Any

import pytest

from engine.containers import ATTEMPT_LABEL, SESSION_LABEL, container_name
from hostworker.runtime.docker import states
from hostworker.runtime.engine_requests import inspect
from hostworker.runtime.kernel_log import LOG, was_killed_for_memory
from hostworker.runtime.tests.runtime_worlds import DockerWorld, launch, make_spec, tiny_world
from resources.amounts.units import MIB
from tests.wait import until

KILL = "oom-kill:constraint={},nodemask=(null),cpuset={},mems_allowed=0,{}task_memcg=/docker/{},task={},pid=7,uid=0"


def records(*lines: str) -> str:
    return "".join(f"6,{number},{number}000,-;{line}\n" for number, line in enumerate(lines))


@pytest.mark.parametrize("group", ["/docker/c1", "/system.slice/docker-c1.scope"])
def test_a_kill_is_that_of_the_limited_container(tmp_path: Path, group: str) -> None:
    log = tmp_path / "log"
    of_limit = KILL.format("CONSTRAINT_MEMCG", "c1", f"oom_memcg={group},", "c1", "sh")
    named = KILL.format("CONSTRAINT_MEMCG", "c3", "oom_memcg=/docker/c3,", "c3", "c2")
    of_host = KILL.format("CONSTRAINT_NONE", "c4", "global_oom,", "c4", "sh")
    log.write_text(records("eth0: up", of_limit, named, of_host, "c2 said ,oom_memcg=/docker/c2"))
    assert [was_killed_for_memory(name, log) for name in ("c1", "c2", "c3", "c4")] == [True, False, True, False]


def test_an_unreadable_log_says_nothing(tmp_path: Path) -> None:
    assert not was_killed_for_memory("c1", tmp_path / "missing")


world = pytest.fixture(tiny_world)


@pytest.mark.docker
@pytest.mark.skipif(not os.access(LOG, os.R_OK), reason="the kernel's log is not readable here")
def test_out_of_memory_is_told_without_the_engine(world: DockerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(client: Any, container: str) -> dict[str, Any] | None:
        if found := inspect(client, container):
            found["State"]["OOMKilled"] = False
        return found

    monkeypatch.setattr(states, "inspect", forgetful)
    runtime = world.runtime()
    limited, killed = (
        launch(runtime, make_spec(world.image, memory_bytes=32 * MIB, shared_memory_bytes=32 * MIB)) for _ in range(2)
    )
    world.run_out_of_memory(limited.session, 1)
    world.end(killed.session, 1, 137)
    until(lambda: all(state.exit_code == 137 for state in runtime.containers()))
    assert {state.session: state.out_of_memory for state in runtime.containers()} == {
        limited.session: True,
        killed.session: False,
    }
    ended = world.client.inspect_container(container_name(limited.session, 1))["Id"]
    labels = {SESSION_LABEL: limited.session, ATTEMPT_LABEL: "1", "exitCode": "137"}
    told = states.exit_from_event(world.client, {"Actor": {"ID": ended, "Attributes": labels}}, False)
    assert told is not None
    assert told.out_of_memory
