"""Opening apps on their host, in real containers: found, started, refused, ended, resumed."""

import itertools
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from endpoints import services
from hostworker.app_processes import probe as app_probe
from hostworker.app_processes import starter as app_starter
from hostworker.app_processes.scripts import STATUS
from hostworker.app_processes.starter import open_app
from hostworker.runtime.docker.runtime import DockerRuntime
from hostworker.runtime.tests.runtime_worlds import DockerWorld, make_spec, runtime_of, tiny_world
from hostworker.runtime_protocol import EngineUnreachableError, ExecResult
from resources.models import App
from sessions.lifecycle import Reason, Status
from sessions.models import AppObstacle, Cluster, Endpoint, EndpointState, Session
from tests.factories import make_image, make_session, run_session
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]

PORT = 8080
HTTPD = "/bin/busybox httpd -f -p {address}{port} -h /tmp"
SERVE = HTTPD.format(address="", port=PORT)
SERVERS = """
for process in /proc/[0-9]*; do
    read -r pid name state parent rest <$process/stat && [ "$name" = "(busybox)" ] && echo $pid $parent
done 2>/dev/null
"""
NEVER = threading.Event()


world = pytest.fixture(tiny_world)
runtime = pytest.fixture(runtime_of)


@pytest.fixture
def session(world: DockerWorld, runtime: DockerRuntime) -> Session:
    """A running session in a container that has nothing but busybox."""
    row = run_session(make_session(image=make_image(reference=world.image)))
    spec = make_spec(world.image, session=row.pk, attempt=row.attempt)
    runtime.create(spec)
    runtime.start(row.pk, row.attempt)
    Session.objects.filter(pk=row.pk).update(address=runtime.address(row.pk, row.attempt))
    row.refresh_from_db()
    return row


def make_app(session: Session, command: str = SERVE, **overrides: object) -> App:
    fields = {"image": session.image, "name": "web", "title": "Web", "port": PORT, "command": command} | overrides
    return App.objects.create(**fields)


def make_endpoint(session: Session, app: str = "web", **overrides: object) -> Endpoint:
    fields = {"session": session, "app": app, "title": "Web", "port": PORT, "token": "s3cret"} | overrides
    return Endpoint.objects.create(**fields)


def opened(runtime: DockerRuntime, endpoint: Endpoint) -> Endpoint:
    open_app(runtime, endpoint.pk, NEVER)
    endpoint.refresh_from_db()
    return endpoint


def is_listening(world: DockerWorld, session: Session) -> bool:
    sockets = f"grep -hs ':{PORT:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6"
    return world.execute(session.pk, session.attempt, sockets)[0] == 0


def servers(world: DockerWorld, session: Session) -> int:
    """Return how many servers run, without the processes in which they answer."""
    _, found = world.execute(session.pk, session.attempt, SERVERS)
    processes = dict(line.split() for line in found.splitlines())  # process ids, with their parents'
    return len(processes.keys() - {pid for pid, parent in processes.items() if parent in processes})


def kill_servers(world: DockerWorld, session: Session) -> None:
    script = 'for p in /proc/[0-9]*; do read -r name <$p/comm; [ "$name" = busybox ] && kill -9 ${p#/proc/}; done'
    world.execute(session.pk, session.attempt, script)
    until(lambda: not is_listening(world, session))


def start_by_hand(world: DockerWorld, session: Session, address: str = "") -> None:
    command = HTTPD.format(address=address, port=PORT)
    world.execute(session.pk, session.attempt, f"{command} >/dev/null 2>&1 &")
    until(lambda: is_listening(world, session))


def test_an_app_is_started_and_ready_once_it_answers(runtime: DockerRuntime, session: Session) -> None:
    make_app(session)
    endpoint = opened(runtime, make_endpoint(session))
    assert (endpoint.state, endpoint.detail, endpoint.output) == (EndpointState.READY, "", "")


def test_opening_twice_starts_one_server(world: DockerWorld, runtime: DockerRuntime, session: Session) -> None:
    make_app(session, command=f"sleep 1; exec {SERVE}")
    endpoint = make_endpoint(session)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: open_app(runtime, endpoint.pk, NEVER), range(4)))
    endpoint.refresh_from_db()
    assert endpoint.state == EndpointState.READY
    assert servers(world, session) == 1


def test_two_apps_of_one_port_share_a_server(world: DockerWorld, runtime: DockerRuntime, session: Session) -> None:
    make_app(session)
    make_app(session, name="other")
    for name in ("web", "other"):
        assert opened(runtime, make_endpoint(session, name)).state == EndpointState.READY
    assert servers(world, session) == 1


def test_token_is_in_environment_but_no_command_line(
    world: DockerWorld, runtime: DockerRuntime, session: Session
) -> None:
    make_app(session, command=f"echo $TOKEN >/tmp/token; {SERVE}", token_variable="TOKEN")
    opened(runtime, make_endpoint(session))
    assert world.execute(session.pk, session.attempt, "cat /tmp/token") == (0, "s3cret\n")
    assert "s3cret" not in world.execute(session.pk, session.attempt, "cat /proc/[0-9]*/cmdline")[1]


def test_what_answers_already_is_not_started(world: DockerWorld, runtime: DockerRuntime, session: Session) -> None:
    make_app(session)
    start_by_hand(world, session)
    assert opened(runtime, make_endpoint(session)).state == EndpointState.READY
    assert servers(world, session) == 1


def listen_without_response(world: DockerWorld, session: Session) -> None:
    """Let a server listen that responds only once there is a file /tmp/quick."""
    slow = "while [ ! -e /tmp/quick ]; do sleep 0.05; done; printf 'HTTP/1.1 200 OK\\r\\n\\r\\n'"
    serve = f'echo "{slow}" >/tmp/slow; /bin/busybox nc -ll -p {PORT} -e /bin/sh /tmp/slow >/dev/null 2>&1 &'
    world.execute(session.pk, session.attempt, serve)
    until(lambda: is_listening(world, session))


def test_slow_listener_is_awaited_and_not_restarted(
    world: DockerWorld, runtime: DockerRuntime, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_probe, "TIMEOUT_SECONDS", 0.3)
    make_app(session, command="touch /tmp/started; sleep 1000")
    endpoint = make_endpoint(session)
    listen_without_response(world, session)
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(open_app, runtime, endpoint.pk, NEVER)
        until(lambda: Endpoint.objects.filter(pk=endpoint.pk, detail="Starting Web …").exists())
        world.execute(session.pk, session.attempt, "touch /tmp/quick")
        opening.result()
    endpoint.refresh_from_db()
    assert endpoint.state == EndpointState.READY
    assert world.execute(session.pk, session.attempt, "ls /tmp/started")[0] != 0


@pytest.mark.parametrize("app", ["web", f"p{PORT}"], ids=["app", "port"])
def test_a_busy_app_keeps_its_route_when_reopened(
    app: str, world: DockerWorld, runtime: DockerRuntime, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_probe, "TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(app_starter, "START_TIMEOUT_SECONDS", 0.5)
    make_app(session)
    endpoint = make_endpoint(session, app, state=EndpointState.READY)
    listen_without_response(world, session)
    assert opened(runtime, endpoint).state == EndpointState.READY


def test_an_app_that_dies_tells_its_last_words_at_once(runtime: DockerRuntime, session: Session) -> None:
    make_app(session, command="echo no such module >&2; exit 3")
    endpoint = opened(runtime, make_endpoint(session))
    assert (endpoint.state, endpoint.obstacle) == (EndpointState.FAILED, AppObstacle.EXITED)
    assert endpoint.detail == "Web ended with exit code 3 before it answered."
    assert endpoint.output == "no such module"


def test_output_that_the_engine_lost_is_asked_for_again(
    runtime: DockerRuntime, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_app(session, "sleep 1; exec " + SERVE)
    execute, outputs = runtime.execute, itertools.chain([None, "", "no"], itertools.repeat(None))

    def losing(name: str, attempt: int, command: Sequence[str], variables: Mapping[str, str]) -> ExecResult:
        result = execute(name, attempt, command, variables)
        lost = next(outputs) if STATUS in command else None
        return result if lost is None else replace(result, output=lost)

    monkeypatch.setattr(runtime, "execute", losing)
    assert opened(runtime, make_endpoint(session)).state == EndpointState.READY


def test_an_app_that_never_answers_is_given_up(
    runtime: DockerRuntime, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_starter, "POLL_INTERVAL_SECONDS", 0.1)
    make_app(session, command="echo thinking; sleep 100")
    endpoint = make_endpoint(session)
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(open_app, runtime, endpoint.pk, NEVER)
        until(lambda: Endpoint.objects.filter(pk=endpoint.pk, output="thinking").exists())
        monkeypatch.setattr(app_starter, "START_TIMEOUT_SECONDS", 0.0)
        opening.result(SECONDS)
    endpoint.refresh_from_db()
    assert endpoint.state == EndpointState.FAILED
    assert "has not answered on port 8080" in endpoint.detail
    assert endpoint.output == "thinking"


def test_a_failed_app_can_be_opened_again(runtime: DockerRuntime, session: Session) -> None:
    app = make_app(session, command="exit 1")
    endpoint = opened(runtime, make_endpoint(session))
    App.objects.filter(pk=app.pk).update(command=SERVE)
    assert opened(runtime, endpoint).state == EndpointState.READY


def test_app_that_died_after_ready_is_restarted(world: DockerWorld, runtime: DockerRuntime, session: Session) -> None:
    make_app(session)
    endpoint = opened(runtime, make_endpoint(session))
    assert opened(runtime, endpoint).state == EndpointState.READY
    kill_servers(world, session)
    assert opened(runtime, endpoint).state == EndpointState.READY
    assert servers(world, session) == 1


def looked_at(runtime: DockerRuntime, endpoint: Endpoint) -> Endpoint:
    app_starter.look_at_app(runtime, endpoint.pk, NEVER)
    endpoint.refresh_from_db()
    return endpoint


def test_a_look_says_how_a_ready_app_ended(world: DockerWorld, runtime: DockerRuntime, session: Session) -> None:
    make_app(session, command=f"echo out of luck; {SERVE}; exit 3")
    endpoint = opened(runtime, make_endpoint(session))
    kill_servers(world, session)
    until(lambda: looked_at(runtime, endpoint).detail == "Web has ended with exit code 3.")
    assert (endpoint.state, endpoint.obstacle, endpoint.output) == (
        EndpointState.READY,
        AppObstacle.EXITED,
        "out of luck\nKilled",
    )
    assert servers(world, session) == 0


def test_a_look_follows_a_port_that_comes_and_goes(
    world: DockerWorld, runtime: DockerRuntime, session: Session
) -> None:
    endpoint = make_endpoint(session, "p8080", state=EndpointState.READY)
    assert looked_at(runtime, endpoint).obstacle == AppObstacle.EXITED
    assert endpoint.detail.startswith("Nothing listens on port 8080 any more.")
    start_by_hand(world, session, "127.0.0.1:")
    assert looked_at(runtime, endpoint).obstacle == AppObstacle.LOOPBACK
    assert "--host 0.0.0.0" in endpoint.detail
    kill_servers(world, session)
    start_by_hand(world, session)
    found = looked_at(runtime, endpoint)
    assert (found.state, found.obstacle, found.detail, found.output) == (EndpointState.READY, "", "", "")


def test_a_look_that_finds_nothing_new_writes_nothing(
    runtime: DockerRuntime, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = looked_at(runtime, make_endpoint(session, "p8080", state=EndpointState.READY))
    monkeypatch.setattr("hostworker.app_processes.starter.app_states.report", None)
    assert looked_at(runtime, endpoint).obstacle == AppObstacle.EXITED


def test_server_on_loopback_address_is_explained(world: DockerWorld, runtime: DockerRuntime, session: Session) -> None:
    make_app(session)
    start_by_hand(world, session, "127.0.0.1:")
    endpoint = opened(runtime, make_endpoint(session))
    assert endpoint.state == EndpointState.FAILED
    assert endpoint.obstacle == AppObstacle.LOOPBACK
    assert "127.0.0.1" in endpoint.detail
    assert "--host 0.0.0.0" in endpoint.detail
    assert servers(world, session) == 1


def test_a_port_that_a_user_opens_is_waited_for(world: DockerWorld, runtime: DockerRuntime, session: Session) -> None:
    endpoint = opened(runtime, make_endpoint(session, "p8080"))
    assert (endpoint.state, endpoint.detail[:21]) == (EndpointState.STARTING, "Nothing listens on po")
    start_by_hand(world, session, "127.0.0.1:")
    assert "--host 0.0.0.0" in opened(runtime, endpoint).detail
    kill_servers(world, session)
    start_by_hand(world, session)
    assert opened(runtime, endpoint).state == EndpointState.READY


def test_after_a_while_a_user_is_waited_for_no_longer(runtime: DockerRuntime, session: Session) -> None:
    long_ago = timezone.now() - timedelta(hours=1)
    endpoint = opened(runtime, make_endpoint(session, "p8080", opened_at=long_ago))
    assert endpoint.state == EndpointState.FAILED


def test_a_session_that_ended_meanwhile_is_left_alone(
    world: DockerWorld, runtime: DockerRuntime, session: Session
) -> None:
    make_app(session)
    endpoint = make_endpoint(session)
    session.move_to(Status.TERMINATING, Reason.USER_REQUEST)
    assert opened(runtime, endpoint).state == EndpointState.STARTING
    assert servers(world, session) == 0


def test_gone_container_fails_app_unreachable_engine_retries(
    world: DockerWorld, runtime: DockerRuntime, session: Session
) -> None:
    make_app(session)
    endpoint = make_endpoint(session)
    mute = DockerRuntime(world.installation, "here", "unix:///nowhere/docker.sock")
    with pytest.raises(EngineUnreachableError):
        open_app(mute, endpoint.pk, NEVER)
    world.lose_container(session.pk, session.attempt)
    assert opened(runtime, endpoint).detail == "The session's container is not running."


def test_what_a_worker_that_died_left_starting_is_taken_up(
    world: DockerWorld, runtime: DockerRuntime, session: Session
) -> None:
    make_app(session)
    endpoint = make_endpoint(session)
    assert session.host
    app_starter.resume(runtime, session.host)
    try:
        until(lambda: Endpoint.objects.filter(pk=endpoint.pk, state=EndpointState.READY).exists())
    finally:
        app_starter.end()


def test_a_worker_that_ends_waits_for_no_app(world: DockerWorld, runtime: DockerRuntime, session: Session) -> None:
    make_app(session, command="sleep 1000")
    endpoint = make_endpoint(session)
    app_starter.begin(runtime, endpoint.pk)
    until(lambda: Endpoint.objects.filter(pk=endpoint.pk).exclude(detail="").exists())
    app_starter.end()
    endpoint.refresh_from_db()
    assert (endpoint.state, endpoint.detail) == (EndpointState.STARTING, "Starting Web …")


def test_a_programs_start_with_the_session_is_found_by_openers(
    world: DockerWorld, runtime: DockerRuntime, session: Session
) -> None:
    make_app(session, command=f"echo $TOKEN >/tmp/token; exec {SERVE}", token_variable="TOKEN", warm_up=True)
    make_app(
        session, name="other", token_variable="TOKEN", command=f"echo $TOKEN >/tmp/token; exec {SERVE}", warm_up=True
    )
    app_starter.warm_up(runtime, session)
    until(lambda: is_listening(world, session))
    app_starter.warm_up_apps(runtime, session.pk)  # again changes nothing
    endpoint = services.open_app(session, "other", actor=session.owner).endpoint
    assert opened(runtime, endpoint).state == EndpointState.READY
    assert servers(world, session) == 1
    assert world.execute(session.pk, session.attempt, "cat /tmp/token") == (0, f"{endpoint.token}\n")
    app_starter.end()


def test_nothing_starts_in_small_sessions_batch_jobs_and_host_networks(
    world: DockerWorld, runtime: DockerRuntime, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_app(session, warm_up=True)
    with monkeypatch.context() as patch:
        patch.setattr(app_starter, "WARM_UP_MIN_MEMORY", session.memory + 1)
        app_starter.warm_up_apps(runtime, session.pk)
    Session.objects.filter(pk=session.pk).update(kind="batch", command="train")
    app_starter.warm_up_apps(runtime, session.pk)
    cluster = Cluster.objects.create(pk=session.pk, size=2, first_port=20_000)
    Session.objects.filter(pk=session.pk).update(kind="interactive", command="", cluster=cluster)
    app_starter.warm_up_apps(runtime, session.pk)
    assert servers(world, session) == 0
