"""Network sandboxes: one session each, never in the way, and from within a session nothing to be seen of them."""

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.containers import container_name
from hostworker.privileged.base import ContainerFiles
from hostworker.privileged.hostnames import SANDBOX_HOSTNAME, can_name
from hostworker.runtime.docker.runtime import DockerRuntime
from hostworker.runtime.engine_requests import inspect
from hostworker.runtime.sandboxes import image as sandbox_image
from hostworker.runtime.sandboxes.containers import FREE, RETIRED, sandbox_name
from hostworker.runtime.sandboxes.state import QUIET_SECONDS
from hostworker.runtime.tests.runtime_worlds import ENGINE_URL, DockerWorld, make_spec, tiny_world
from hostworker.runtime_protocol import ContainerPhase, ContainerSpec, StartError
from tests.tiny_image import ensure_tiny_image
from tests.wait import until

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def docker_world() -> Iterator[DockerWorld]:
    made = DockerWorld(ensure_tiny_image(), sandboxes=2)
    yield made
    made.clean_up()


own_world = pytest.fixture(tiny_world)


def launch(runtime: DockerRuntime, spec: ContainerSpec) -> ContainerSpec:
    runtime.create(spec)
    runtime.start(spec.session, spec.attempt)
    return spec


def free(world: DockerWorld) -> set[str]:
    return {name for name, each in world.sandboxes().items() if name.startswith(FREE) and each["State"] == "running"}


def network_of(world: DockerWorld, spec: ContainerSpec) -> str:
    return str(world.inspect(spec.session, spec.attempt)["HostConfig"]["NetworkMode"])


def sandbox_of(world: DockerWorld, spec: ContainerSpec) -> str:
    return sandbox_name((spec.session, spec.attempt), world.installation)


def address_of(world: DockerWorld, spec: ContainerSpec) -> str:
    sandbox = world.client.inspect_container(sandbox_of(world, spec))
    return str(sandbox["NetworkSettings"]["Networks"][world.network]["IPAddress"])


def is_joined(world: DockerWorld, spec: ContainerSpec) -> bool:
    return network_of(world, spec).startswith("container:")


def test_no_two_sessions_ever_share_a_sandbox(world: DockerWorld, runtime: DockerRuntime) -> None:
    used = []
    for _ in range(4):
        until(lambda: len(free(world)) == 2)
        spec = launch(runtime, make_spec(world.image))
        used.append(network_of(world, spec))
        runtime.remove(spec.session, 1)
    assert all(network.startswith("container:") for network in used)
    assert len(set(used)) == 4


def test_workers_that_know_the_same_sandboxes_never_use_one_twice(world: DockerWorld) -> None:
    one, other = world.worker(), world.runtime()  # the second has adopted what the first has made
    assert set(one._pool.state.free) == set(other._pool.state.free)
    specs = [launch(each, make_spec(world.image)) for each in (one, other, one, other)]
    assert all(is_joined(world, spec) for spec in specs)
    assert len({network_of(world, spec) for spec in specs}) == 4


def test_with_no_sandbox_left_one_is_made_for_the_session(world: DockerWorld, runtime: DockerRuntime) -> None:
    with runtime._pool.pause_background_work():  # so that none is made meanwhile
        specs = [launch(runtime, make_spec(world.image, hostname=name)) for name in ("a", "b", "c")]
    assert all(is_joined(world, spec) for spec in specs)
    names = {world.client.inspect_container(sandbox_of(world, spec))["Config"]["Hostname"] for spec in specs}
    assert names == {SANDBOX_HOSTNAME, "c"}
    assert [world.execute(spec.session, 1, "hostname")[1] for spec in specs] == ["a\n", "b\n", "c\n"]
    assert {state.phase for state in runtime.containers()} == {ContainerPhase.RUNNING}


def test_without_sandboxes_a_session_has_its_own_network(
    world: DockerWorld, runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_image, "EXECUTABLE", Path("/none/pause"))
    spec, heard = make_spec(world.image), list[str]()
    runtime.create(spec)
    runtime.start(spec.session, 1, heard.append)
    assert not is_joined(world, spec)
    assert heard == [runtime.address(spec.session, 1)]


def test_sandboxes_that_were_removed_from_outside_are_passed_over(world: DockerWorld, runtime: DockerRuntime) -> None:
    with runtime._pool.pause_background_work():
        known = {each.id for each in runtime._pool.state.free.values()}
        for name in free(world):
            world.client.remove_container(name, force=True)
        spec = launch(runtime, make_spec(world.image))
    assert network_of(world, spec).removeprefix("container:") not in known


def test_sandbox_of_dead_worker_is_used_by_the_next(world: DockerWorld, runtime: DockerRuntime) -> None:
    spec = make_spec(world.image)
    left = runtime._pool.make_for((spec.session, 1), "left")
    world.client.kill(left.id)
    launch(runtime, spec)
    assert network_of(world, spec) == f"container:{left.id}"
    assert runtime.address(spec.session, 1) == address_of(world, spec)


def test_sandbox_given_by_another_worker_is_used(world: DockerWorld, runtime: DockerRuntime) -> None:
    """As where two workers make the same attempt at once, and both know the same sandbox."""
    spec = make_spec(world.image)
    with runtime._pool.pause_background_work():
        name, sandbox = runtime._pool.state.free.popitem()
        runtime._pool.state.free = {sandbox.id: sandbox}  # found by its old name for a moment longer, here by its id
        world.client.rename(name, sandbox_of(world, spec))
        launch(runtime, spec)
    assert network_of(world, spec) == f"container:{sandbox.id}"


def test_address_changed_during_start_is_announced_again(world: DockerWorld, runtime: DockerRuntime) -> None:
    """As where the engine was restarted after the session had got its sandbox."""
    spec, heard = make_spec(world.image), list[str]()
    runtime.create(spec)
    world.client.kill(sandbox_of(world, spec))
    squatter = launch(runtime, make_spec(world.image))
    world.client.kill(sandbox_of(world, squatter))
    world.client.start(sandbox_of(world, squatter))  # at the lowest address that is free
    runtime.start(spec.session, 1, heard.append)
    assert len(heard) == 2
    assert heard[1] == address_of(world, spec) == runtime.address(spec.session, 1)


def test_sandboxes_that_have_died_are_woken_for_the_session(world: DockerWorld, runtime: DockerRuntime) -> None:
    """As after a restart of the engine."""
    with runtime._pool.pause_background_work():
        for name in free(world):
            world.client.kill(name)
        spec = launch(runtime, make_spec(world.image, hostname="woken"))
    assert is_joined(world, spec)
    assert world.execute(spec.session, 1, "cat /proc/sys/kernel/hostname; grep -c woken /etc/hosts")[1] == "woken\n1\n"


def test_session_with_lost_sandbox_is_created_anew(world: DockerWorld, runtime: DockerRuntime) -> None:
    spec = make_spec(world.image)
    first = runtime.create(spec)
    world.client.remove_container(sandbox_of(world, spec), force=True)
    with pytest.raises(StartError):
        runtime.start(spec.session, 1)
    assert runtime.create(spec) != first
    runtime.start(spec.session, 1)
    assert [state.phase for state in runtime.containers()] == [ContainerPhase.RUNNING]


def test_the_pool_is_filled_again_once_nothing_starts(world: DockerWorld, runtime: DockerRuntime) -> None:
    with runtime._pool.pause_background_work():
        launch(runtime, make_spec(world.image))
        time.sleep(4 * QUIET_SECONDS)  # in which one could be made, and none may be
        assert len(free(world)) == 1
    until(lambda: len(free(world)) == 2)


def test_removing_a_session_removes_its_sandbox(world: DockerWorld, runtime: DockerRuntime) -> None:
    spec = launch(runtime, make_spec(world.image))
    assert runtime.leftover_attempts() == {(spec.session, 1)}
    runtime.remove(spec.session, 1)
    assert runtime.leftover_attempts() == set()  # its removal is under way, so nobody need see to it
    until(lambda: sandbox_of(world, spec) not in world.sandboxes())


def is_there(world: DockerWorld, spec: ContainerSpec) -> bool:
    return inspect(world.client, container_name(spec.session, spec.attempt)) is not None


def ended(runtime: DockerRuntime, spec: ContainerSpec) -> ContainerSpec:
    """Stop and remove the container of a launched session."""
    runtime.stop(spec.session, spec.attempt, grace_seconds=0)
    runtime.remove(spec.session, spec.attempt)
    return spec


def test_ended_container_is_hidden_and_removed_once_quiet(
    world: DockerWorld, runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hostworker.runtime.sandboxes.state.MAX_DELAY_SECONDS", 3600)
    with runtime._pool.pause_background_work():
        spec = ended(runtime, launch(runtime, make_spec(world.image)))
        time.sleep(4 * QUIET_SECONDS)  # in which it could go, and may not
        assert is_there(world, spec)
        assert (runtime.containers(), runtime.leftover_attempts()) == ([], set())
        assert runtime.logs(spec.session, 1, 10) == ""
        with pytest.raises(StartError):
            runtime.start(spec.session, 1)
    until(lambda: not is_there(world, spec) and sandbox_of(world, spec) not in world.sandboxes())
    until(lambda: not runtime._pool.state.discarded)


def test_continuous_starts_delay_a_removal_only_briefly(
    world: DockerWorld, runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hostworker.runtime.sandboxes.state.MAX_DELAY_SECONDS", 0.5)
    with runtime._pool.pause_background_work():
        spec = ended(runtime, launch(runtime, make_spec(world.image)))
        until(lambda: not is_there(world, spec) and sandbox_of(world, spec) not in world.sandboxes())


def test_what_still_runs_is_removed_at_once_whatever_starts(world: DockerWorld, runtime: DockerRuntime) -> None:
    with runtime._pool.pause_background_work():
        spec = launch(runtime, make_spec(world.image))
        runtime.remove(spec.session, 1)
        assert not is_there(world, spec)


def test_removals_of_dead_worker_are_found_by_the_next(
    world: DockerWorld, runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hostworker.runtime.sandboxes.state.MAX_DELAY_SECONDS", 3600)
    with runtime._pool.pause_background_work():
        spec = ended(runtime, launch(runtime, make_spec(world.image)))
        following = DockerRuntime(world.installation, "here", ENGINE_URL, network=world.network)
        assert [state.session for state in following.containers()] == [spec.session]
        assert following.leftover_attempts() == {(spec.session, 1)}
        following.remove(spec.session, 1)
        assert not is_there(world, spec)


def test_a_runtime_that_keeps_none_removes_a_sandbox_at_once(world: DockerWorld, runtime: DockerRuntime) -> None:
    spec = launch(runtime, make_spec(world.image))
    without = DockerRuntime(world.installation, "here", ENGINE_URL, network=world.network)
    assert without.leftover_attempts() == {(spec.session, 1)}
    without.remove(spec.session, 1)
    assert sandbox_of(world, spec) not in world.sandboxes()


def test_another_hosts_sandboxes_are_out_of_reach(world: DockerWorld, runtime: DockerRuntime) -> None:
    spec = launch(runtime, make_spec(world.image))
    elsewhere = DockerRuntime(world.installation, "elsewhere", ENGINE_URL, network=world.network)
    assert elsewhere.leftover_attempts() == set()
    elsewhere.remove(spec.session, 1)
    assert sandbox_of(world, spec) in world.sandboxes()


def test_sandboxes_are_no_containers_of_sessions(world: DockerWorld, runtime: DockerRuntime) -> None:
    assert len(world.sandboxes()) == 2
    assert runtime.containers() == []
    assert runtime.leftover_attempts() == set()


def test_what_an_earlier_worker_left_is_adopted_or_removed(world: DockerWorld, runtime: DockerRuntime) -> None:
    alive, dead = sorted(free(world))
    world.client.rename(dead, dead.replace(FREE, RETIRED))  # as by a worker that died between the two steps
    runtime._pool.keeper.reconcile()
    until(lambda: set(world.sandboxes()) >= {alive} and len(free(world)) == 2)
    until(lambda: not [name for name in world.sandboxes() if name.startswith(RETIRED)])
    next_worker = DockerRuntime(world.installation, "here", ENGINE_URL, network=world.network, sandboxes=1)
    next_worker._pool.keeper.reconcile()  # it wants fewer
    assert set(next_worker._pool.state.free) <= set(world.sandboxes())
    assert len(next_worker._pool.state.free) == 1


def test_sandbox_removed_while_made_is_made_again(own_world: DockerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by another worker of the host, which ends: no sign that this one has no root."""
    removed = list[str]()

    def remove_first(container: ContainerFiles) -> bool:
        if not removed:
            removed.append(container.container_id)
            own_world.client.remove_container(container.container_id, force=True)
        return can_name(container)

    monkeypatch.setattr("hostworker.privileged.hostnames.can_name", remove_first)
    stopped = threading.Event()
    runtime = DockerRuntime(own_world.installation, "here", ENGINE_URL, network=own_world.network, sandboxes=1)
    keeper = threading.Thread(target=runtime.keep_warm, args=(stopped,))
    keeper.start()
    try:
        until(lambda: len(runtime._pool.state.free) == 1)
    finally:
        stopped.set()
        keeper.join()
    assert len(removed) == 1


def test_ending_worker_removes_discarded_containers_first(own_world: DockerWorld) -> None:
    stopped = threading.Event()
    runtime = DockerRuntime(own_world.installation, "here", ENGINE_URL, network=own_world.network, sandboxes=1)
    keeper = threading.Thread(target=runtime.keep_warm, args=(stopped,))
    keeper.start()
    until(lambda: len(runtime._pool.state.free) == 1)
    with runtime._pool.pause_background_work():
        spec = ended(runtime, launch(runtime, make_spec(own_world.image)))
        stopped.set()
        keeper.join()
    assert not is_there(own_world, spec)
    assert own_world.sandboxes() == {}


def test_a_worker_that_ends_takes_its_sandboxes_along(own_world: DockerWorld) -> None:
    stopped = threading.Event()
    runtime = DockerRuntime(own_world.installation, "here", ENGINE_URL, network=own_world.network, sandboxes=1)
    keeper = threading.Thread(target=runtime.keep_warm, args=(stopped,))
    keeper.start()
    until(lambda: len(runtime._pool.state.free) == 1)
    spec = launch(runtime, make_spec(own_world.image))
    until(lambda: len(runtime._pool.state.free) == 1)
    stopped.set()
    keeper.join()
    assert set(own_world.sandboxes()) == {sandbox_of(own_world, spec)}  # sessions outlive their worker
    assert own_world.execute(spec.session, 1, f"ip addr | grep -c {address_of(own_world, spec)}/") == (0, "1\n")


def test_sessions_in_sandboxes_cannot_reach_each_other(world: DockerWorld, runtime: DockerRuntime) -> None:
    one, other = (launch(runtime, make_spec(world.image)) for _ in range(2))
    assert is_joined(world, one)
    assert is_joined(world, other)
    address = address_of(world, one)
    world.execute(one.session, 1, "nc -ll -p 8080 -e cat </dev/null >/dev/null 2>&1 &")
    request = f"echo hello | nc -w 1 {address} 8080"
    assert world.execute(one.session, 1, f"until {request}; do sleep 0.05; done 2>/dev/null") == (0, "hello\n")
    assert "hello" not in world.execute(other.session, 1, request)[1]


def test_a_session_in_a_sandbox_has_its_own_hostname_everywhere(world: DockerWorld, runtime: DockerRuntime) -> None:
    hosts_own = Path("/proc/sys/kernel/hostname").read_text()
    specs = [launch(runtime, make_spec(world.image, hostname=name)) for name in ("my-work", "")]
    for spec in specs:
        assert is_joined(world, spec)
        name = spec.hostname or world.inspect(spec.session, 1)["Id"][:12]
        command = "cat /proc/sys/kernel/hostname /etc/hostname; tail -n 1 /etc/hosts; echo $HOSTNAME"
        seen = world.execute(spec.session, 1, command)[1].split()
        assert seen[:4] == [name, name, address_of(world, spec), name]
    assert world.execute(specs[0].session, 1, "echo $HOSTNAME") == (0, "my-work\n")
    assert Path("/proc/sys/kernel/hostname").read_text() == hosts_own


def test_session_in_sandbox_sees_only_its_processes(world: DockerWorld, runtime: DockerRuntime) -> None:
    spec = launch(runtime, make_spec(world.image))
    assert is_joined(world, spec)
    assert "pause" not in world.execute(spec.session, 1, "cat /proc/[0-9]*/cmdline")[1]


def test_a_sandbox_has_no_rights(world: DockerWorld, runtime: DockerRuntime) -> None:
    (name, *_) = free(world)
    host = world.client.inspect_container(name)["HostConfig"]
    assert (host["CapDrop"], host["CapAdd"], host["SecurityOpt"]) == (["ALL"], None, ["no-new-privileges"])
    assert (host["ReadonlyRootfs"], host["Privileged"], host["Memory"]) == (True, False, 16 << 20)


def test_unreachable_engine_is_logged_once_by_the_keeper(
    world: DockerWorld, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hostworker.runtime.sandboxes.keeper.FAILURE_PAUSE_SECONDS", 0.01)
    stopped = threading.Event()
    runtime = DockerRuntime(world.installation, "here", "unix:///nowhere/docker.sock", sandboxes=1)
    caplog.set_level(logging.WARNING)
    keeper = threading.Thread(target=runtime.keep_warm, args=(stopped,))
    keeper.start()
    until(lambda: "networks are not made ready" in caplog.text)
    time.sleep(0.5)  # a few more failures
    assert keeper.is_alive()
    stopped.set()
    keeper.join()
    assert caplog.text.count("networks are not made ready") == 1


def test_no_neighbour_learns_a_sessions_id_from_the_name_server(world: DockerWorld, runtime: DockerRuntime) -> None:
    spec, neighbour = launch(runtime, make_spec(world.image)), launch(runtime, make_spec(world.image))
    _, told = world.execute(neighbour.session, 1, f"nslookup {address_of(world, spec)}")
    assert sandbox_of(world, spec) in told
    assert spec.session not in told
    assert runtime.leftover_attempts() >= {(spec.session, 1), (neighbour.session, 1)}
