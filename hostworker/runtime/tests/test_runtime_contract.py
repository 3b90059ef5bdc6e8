"""Every sentence of hostworker/runtime_protocol.py, for each implementation alike."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hostworker.runtime import engine_requests as docker_requests
from hostworker.runtime.tests.runtime_worlds import (
    MIB,
    DockerWorld,
    MemoryWorld,
    World,
    launch,
    make_spec,
    new_session,
)
from hostworker.runtime_protocol import (
    ContainerPhase,
    ContainerSpec,
    ContainerState,
    EngineUnreachableError,
    FolderMount,
    ImageUnavailableError,
    Runtime,
    StartError,
)
from tests.wait import SECONDS, until

GRACE = 60  # seconds: more than a container takes to end well on a busy machine


@pytest.fixture
def running(world: World, runtime: Runtime) -> ContainerSpec:
    """A container that has come up: before that, being told to end ends it otherwise."""
    spec = launch(runtime, make_spec(world.image))
    until(lambda: "ready" in runtime.logs(spec.session, spec.attempt, 10))
    return spec


def settled(runtime: Runtime, ended: ContainerSpec) -> list[ContainerState]:
    """Return the containers once the engine has finished with the ended one: its list lags behind the exit's event."""
    runtime.stop(ended.session, ended.attempt, grace_seconds=GRACE)
    return runtime.containers()


def phases(runtime: Runtime) -> dict[tuple[str, int], ContainerPhase]:
    return {(state.session, state.attempt): state.phase for state in runtime.containers()}


@contextmanager
def unread_exits(runtime: Runtime) -> Iterator[Callable[[], ContainerState]]:
    """Listen for exits from the start of the block; what it gives reads the first one."""
    stopped = threading.Event()
    exits = runtime.exits(stopped)
    with ThreadPoolExecutor(1) as pool:
        try:
            yield lambda: pool.submit(lambda: next(exits)).result(SECONDS)
        finally:
            stopped.set()


@contextmanager
def first_exit(runtime: Runtime) -> Iterator["Future[ContainerState]"]:
    """Listen for exits, reading from the start of the block; the future is done with the first one."""
    stopped = threading.Event()
    exits = runtime.exits(stopped)
    with ThreadPoolExecutor(1) as pool:
        try:
            yield pool.submit(lambda: next(exits))
        finally:
            stopped.set()


def test_present_image_needs_no_pull_nor_progress(world: World, runtime: Runtime) -> None:
    told: list[str] = []
    runtime.images.ensure(world.image, told.append)
    runtime.images.ensure(world.image, told.append)
    assert told == []


def test_images_on_the_host_are_reported(world: World, runtime: Runtime) -> None:
    assert runtime.images.find([world.image]).keys() == {world.image}
    assert runtime.images.has(world.image)


def test_a_created_container_waits_to_be_started(world: World, runtime: Runtime) -> None:
    spec = make_spec(world.image)
    container_id = runtime.create(spec)
    expected = ContainerState(session=spec.session, attempt=1, container_id=container_id, phase=ContainerPhase.CREATED)
    assert runtime.containers() == [expected]


def test_a_folder_that_is_missing_is_refused(world: World, runtime: Runtime, tmp_path: Path) -> None:
    folders = (FolderMount(source=tmp_path / "missing", target="/mnt/data"),)
    with pytest.raises(StartError):
        runtime.create(make_spec(world.image, folders=folders))
    assert runtime.containers() == []


def test_creating_the_same_key_again_adopts_the_container(world: World, runtime: Runtime) -> None:
    spec = make_spec(world.image)
    ids = {runtime.create(spec), runtime.create(spec), world.runtime().create(spec)}
    assert len(ids) == 1
    assert len(runtime.containers()) == 1


def test_a_running_container_is_adopted_as_it_is(world: World, running: ContainerSpec) -> None:
    other_worker = world.runtime()
    container_id = other_worker.create(running)
    other_worker.start(running.session, running.attempt)
    assert [(state.container_id, state.phase) for state in other_worker.containers()] == [
        (container_id, ContainerPhase.RUNNING)
    ]


def test_attempts_of_one_session_are_different_containers(world: World, runtime: Runtime) -> None:
    spec = make_spec(world.image)
    assert runtime.create(spec) != runtime.create(replace(spec, attempt=2))
    assert set(phases(runtime)) == {(spec.session, 1), (spec.session, 2)}


def test_concurrent_starts_of_one_key_share_one_container(world: World) -> None:
    spec, workers = make_spec(world.image), 4
    barrier = threading.Barrier(workers)

    def create_and_start() -> str:
        runtime = world.runtime()
        barrier.wait(SECONDS)
        container_id = runtime.create(spec)
        runtime.start(spec.session, spec.attempt)
        return container_id

    with ThreadPoolExecutor(workers) as pool:
        ids = {future.result() for future in [pool.submit(create_and_start) for _ in range(workers)]}
    assert len(ids) == 1
    assert phases(world.runtime()) == {(spec.session, 1): ContainerPhase.RUNNING}


def test_a_missing_image_cannot_be_created(world: World, runtime: Runtime) -> None:
    spec = make_spec("gpuplatform-test/missing:1")
    if isinstance(world, MemoryWorld):
        world.runtime().remove_image(spec.image)
    with pytest.raises(ImageUnavailableError, match="gpuplatform-test/missing:1"):
        runtime.create(spec)
    assert runtime.containers() == []


def test_starting_twice_leaves_the_container_running(runtime: Runtime, running: ContainerSpec) -> None:
    runtime.start(running.session, running.attempt)
    assert phases(runtime) == {(running.session, 1): ContainerPhase.RUNNING}


def test_starting_what_is_not_there_fails(runtime: Runtime) -> None:
    with pytest.raises(StartError):
        runtime.start(new_session(), 1)


def test_starting_what_vanished_after_its_creation_fails(world: World, runtime: Runtime) -> None:
    spec = make_spec(world.image)
    runtime.create(spec)
    world.lose_container(spec.session, spec.attempt)
    with pytest.raises(StartError):
        runtime.start(spec.session, spec.attempt)


def test_an_ended_container_is_not_started_again(runtime: Runtime, running: ContainerSpec) -> None:
    runtime.stop(running.session, running.attempt, grace_seconds=GRACE)
    with pytest.raises(StartError):
        runtime.start(running.session, running.attempt)
    assert phases(runtime) == {(running.session, 1): ContainerPhase.EXITED}


def test_stopping_ends_it_and_stopping_again_is_success(runtime: Runtime, running: ContainerSpec) -> None:
    runtime.stop(running.session, running.attempt, grace_seconds=GRACE)
    runtime.stop(running.session, running.attempt, grace_seconds=GRACE)
    assert [(state.phase, state.exit_code) for state in runtime.containers()] == [(ContainerPhase.EXITED, 0)]


def test_stopping_what_never_started_leaves_it_created(world: World, runtime: Runtime) -> None:
    spec = make_spec(world.image)
    runtime.create(spec)
    runtime.stop(spec.session, spec.attempt, grace_seconds=GRACE)
    assert phases(runtime) == {(spec.session, 1): ContainerPhase.CREATED}


@pytest.mark.parametrize("has_existed", [False, True])
def test_what_is_gone_counts_as_done(world: World, runtime: Runtime, has_existed: bool) -> None:
    session = new_session()
    if has_existed:
        launch(runtime, make_spec(world.image, session=session))
        world.lose_container(session, 1)
    runtime.stop(session, 1, GRACE)
    assert runtime.logs(session, 1, 10) == ""
    runtime.remove(session, 1)


@pytest.mark.parametrize("ending", ["created", "running", "exited"])
def test_removing_works_in_every_phase_and_twice(world: World, runtime: Runtime, ending: str) -> None:
    spec = make_spec(world.image)
    runtime.create(spec)
    if ending != "created":
        runtime.start(spec.session, spec.attempt)
    if ending == "exited":
        runtime.stop(spec.session, spec.attempt, grace_seconds=GRACE)
    runtime.remove(spec.session, spec.attempt)
    runtime.remove(spec.session, spec.attempt)
    assert runtime.containers() == []


def test_a_removed_key_can_be_created_anew(world: World, runtime: Runtime) -> None:
    spec = make_spec(world.image)
    first = runtime.create(spec)
    runtime.remove(spec.session, spec.attempt)
    assert launch(runtime, spec)
    (state,) = runtime.containers()
    assert state.container_id != first
    assert state.phase is ContainerPhase.RUNNING


def test_threads_that_remove_one_container_at_once_all_succeed(world: World, running: ContainerSpec) -> None:
    runtimes = [world.runtime() for _ in range(4)]
    with ThreadPoolExecutor(len(runtimes)) as pool:
        list(pool.map(lambda runtime: runtime.remove(running.session, running.attempt), runtimes))
    assert runtimes[0].containers() == []


def test_another_installations_or_hosts_container_is_out_of_reach(
    world: World, running: ContainerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        docker_requests, "CONFLICT_TIMEOUT_SECONDS", 0.5
    )  # for which a name that is taken may become free
    for installation, host in ((f"stranger-{world.installation}", "here"), ("", "elsewhere")):
        stranger = world.runtime(installation, host)
        assert stranger.containers() == []
        stranger.stop(running.session, running.attempt, grace_seconds=0)
        stranger.remove(running.session, running.attempt)
        assert stranger.logs(running.session, running.attempt, 10) == ""
        with pytest.raises(StartError):
            stranger.create(running)
        with pytest.raises(StartError):
            stranger.start(running.session, running.attempt)
        assert phases(world.runtime()) == {(running.session, 1): ContainerPhase.RUNNING}


def test_container_with_our_name_only_is_untouched(world: World, runtime: Runtime) -> None:
    spec = make_spec(world.image)
    world.plant(spec.session, spec.attempt)
    with pytest.raises(StartError, match="taken"):
        runtime.create(spec)
    with pytest.raises(StartError):
        runtime.start(spec.session, spec.attempt)
    runtime.stop(spec.session, spec.attempt, grace_seconds=0)
    runtime.remove(spec.session, spec.attempt)
    assert runtime.containers() == []
    assert world.is_planted(spec.session, spec.attempt)


def test_an_exit_is_reported_with_its_code(world: World, runtime: Runtime, running: ContainerSpec) -> None:
    with first_exit(runtime) as exit_:
        world.end(running.session, running.attempt, 137)
        state = exit_.result(SECONDS)
    assert (state.session, state.attempt, state.phase) == (running.session, 1, ContainerPhase.EXITED)
    assert (state.exit_code, state.out_of_memory) == (137, False)
    assert settled(runtime, running) == [state]


def test_an_exit_for_want_of_memory_is_reported_as_such(world: World, runtime: Runtime) -> None:
    running = launch(runtime, make_spec(world.image, memory_bytes=32 * MIB, shared_memory_bytes=32 * MIB))
    with first_exit(runtime) as exit_:
        world.run_out_of_memory(running.session, running.attempt)
        state = exit_.result(SECONDS)
    assert (state.exit_code, state.out_of_memory) == (137, True)
    assert settled(runtime, running) == [state]


def test_an_exit_by_stop_is_reported_with_code_zero(runtime: Runtime, running: ContainerSpec) -> None:
    with first_exit(runtime) as exit_:
        runtime.stop(running.session, running.attempt, grace_seconds=GRACE)
        assert exit_.result(SECONDS).exit_code == 0


def test_exit_of_removed_container_is_reported(runtime: Runtime, running: ContainerSpec) -> None:
    with first_exit(runtime) as exit_:
        runtime.remove(running.session, running.attempt)
        state = exit_.result(SECONDS)
    assert (state.session, state.exit_code, state.out_of_memory) == (running.session, 137, False)


def test_an_exit_before_the_first_read_is_not_lost(world: World, runtime: Runtime) -> None:
    running = launch(runtime, make_spec(world.image, memory_bytes=32 * MIB, shared_memory_bytes=32 * MIB))
    with unread_exits(runtime) as read:
        world.run_out_of_memory(running.session, running.attempt)
        runtime.remove(running.session, running.attempt)
        state = read()
    assert (state.session, state.exit_code, state.out_of_memory) == (running.session, 137, True)


def test_earlier_and_foreign_exits_are_not_reported(world: World, runtime: Runtime) -> None:
    elsewhere = world.runtime(host="elsewhere")
    earlier, foreign, ours = (make_spec(world.image) for _ in range(3))
    for host, spec in ((runtime, earlier), (elsewhere, foreign), (runtime, ours)):
        launch(host, spec)
    runtime.stop(earlier.session, 1, grace_seconds=GRACE)
    with first_exit(runtime) as exit_:
        elsewhere.stop(foreign.session, 1, grace_seconds=GRACE)
        runtime.stop(ours.session, 1, grace_seconds=GRACE)
        assert exit_.result(SECONDS).session == ours.session


def test_a_process_killed_for_memory_is_reported(world: World, runtime: Runtime, running: ContainerSpec) -> None:
    stopped, killed = threading.Event(), threading.Event()
    told: list[tuple[str, int]] = []

    def note(session: str, attempt: int) -> None:
        told.append((session, attempt))
        killed.set()

    exits = runtime.exits(stopped, note)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(list, exits)
        try:
            world.kill_for_memory(running.session, running.attempt)
            assert killed.wait(SECONDS)
        finally:
            stopped.set()  # or the pool waits for ever
    assert set(told) == {(running.session, running.attempt)}
    assert phases(runtime) == {(running.session, running.attempt): ContainerPhase.RUNNING}


def test_uses_are_those_of_running_containers(runtime: Runtime, running: ContainerSpec) -> None:
    ended = launch(runtime, replace(running, session=new_session()))
    runtime.stop(ended.session, ended.attempt, grace_seconds=GRACE)
    settled(runtime, ended)
    assert runtime.uses().keys() == {(running.session, running.attempt)}


def test_bytes_written_by_running_containers_are_reported(
    world: World, runtime: Runtime, running: ContainerSpec
) -> None:
    key = running.session, running.attempt
    assert runtime.disks.written_bytes()[key] < MIB
    world.write_data(*key, 2 * MIB)
    until(lambda: runtime.disks.written_bytes()[key] >= 2 * MIB)
    space = runtime.disks.space()
    assert space is None or 0 <= space.free_bytes <= space.total_bytes


def test_files_made_by_running_containers_are_counted(world: World, runtime: Runtime, running: ContainerSpec) -> None:
    key = running.session, running.attempt
    before = runtime.disks.made_files({key: 1000})[key]
    world.make_files(*key, 100)
    assert runtime.disks.made_files({key: 1000, (new_session(), 1): None}) == {key: before + 100}


def test_every_listener_hears_every_exit(world: World, runtime: Runtime, running: ContainerSpec) -> None:
    with first_exit(runtime) as one, first_exit(world.runtime()) as other:
        runtime.stop(running.session, running.attempt, grace_seconds=GRACE)
        assert one.result(SECONDS) == other.result(SECONDS)


def test_listening_ends_by_itself_once_stopped(runtime: Runtime) -> None:
    stopped = threading.Event()
    exits = runtime.exits(stopped)
    with ThreadPoolExecutor(1) as pool:
        listening = pool.submit(list, exits)
        with pytest.raises(TimeoutError):
            listening.result(0.3)
        stopped.set()
        assert listening.result(SECONDS) == []


def test_logs_are_the_last_lines_in_order(world: World, runtime: Runtime, running: ContainerSpec) -> None:
    for line in ("one", "two", "three"):
        world.write_log(running.session, running.attempt, line)
    until(lambda: "three" in runtime.logs(running.session, running.attempt, 10))  # engines note what is written later
    assert runtime.logs(running.session, running.attempt, 2) == "two\nthree\n"
    assert runtime.logs(running.session, running.attempt, 10) == f"{running.session} ready\none\ntwo\nthree\n"


def test_logs_outlive_the_exit(runtime: Runtime, running: ContainerSpec) -> None:
    with first_exit(runtime) as exit_:
        runtime.stop(running.session, running.attempt, grace_seconds=GRACE)
        exit_.result(SECONDS)
    assert "ready" in runtime.logs(running.session, running.attempt, 10)


def test_an_engine_that_is_silent_is_distinguished(tmp_path_factory: pytest.TempPathFactory, world: World) -> None:
    runtime = unreachable_runtime(world, str(tmp_path_factory.mktemp("empty") / "docker.sock"))
    operations: list[Callable[[], object]] = [
        lambda: runtime.images.ensure(world.image, print),
        lambda: runtime.images.find([world.image]),
        lambda: runtime.images.has(world.image),
        lambda: runtime.create(make_spec(world.image)),
        lambda: runtime.start("s", 1),
        lambda: runtime.address("s", 1),
        lambda: runtime.stop("s", 1, GRACE),
        lambda: runtime.remove("s", 1),
        lambda: runtime.containers(),
        lambda: runtime.logs("s", 1, 5),
        lambda: runtime.uses(),
        lambda: runtime.execute("s", 1, ["true"], {}),
        lambda: next(runtime.exits(threading.Event())),
    ]
    for operation in operations:
        with pytest.raises(EngineUnreachableError):
            operation()


def unreachable_runtime(world: World, socket_path: str) -> Runtime:
    if isinstance(world, DockerWorld):
        return type(world.runtime())(world.installation, "here", f"unix://{socket_path}")
    runtime = MemoryWorld().runtime()
    names = (
        *("ensure_image", "images", "has_image", "create", "start", "address", "stop"),
        *("remove", "containers", "logs", "execute", "uses", "exits"),
    )
    for name in names:
        runtime.fail_next(name, EngineUnreachableError("The container engine does not answer."))
    return runtime
