"""Starts apps in containers, or finds them running, and reports their state.

Safe to run twice and to die anywhere: the reconciler goes on. What users start themselves (a port that they open, an
app without a command) is waited for, from one round of the reconciler to the next.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Final

from django.db import close_old_connections, connections
from django.db.models import QuerySet

from hostworker.app_processes.probe import ProbeResult, probe
from hostworker.app_processes.scripts import (
    KILLED,
    STATUS_HEAD_END,
    AppStatus,
    environment,
    read_status,
    start_command,
    status_command,
)
from hostworker.containers import runner
from hostworker.containers.fair_pool import FairPool
from hostworker.runtime_protocol import ContainerRuntimeError, EngineUnreachableError, Runtime
from resources import clock
from resources.amounts.units import MIB
from resources.models import App, Host
from sessions.access import app_states
from sessions.lifecycle import Kind, Status
from sessions.models import AppObstacle, Endpoint, EndpointState, Session

logger = logging.getLogger(__name__)

START_TIMEOUT_SECONDS: Final = 90.0  # a cold disk and a busy host make Jupyter take most of it
PROBE_PAUSE_SECONDS: Final = 0.2
POLL_INTERVAL_SECONDS: Final = 2.0  # between two checks of the process
INSPECTIONS: Final = 3  # of the process in one check, while their output is lost
USER_START_TIMEOUT: Final = timedelta(minutes=10)
MAX_CONCURRENT_STARTS: Final = 16  # apps that start on one host; more wait for their owner's turn
MAX_CONCURRENT_STARTS_OF_OWNER: Final = 4


WARM_UP_MIN_MEMORY: Final = 512 * MIB  # of a session: in less, a program that may never be used is in the way


Act = Callable[[Runtime, int, threading.Event], None]  # on the endpoint with this id


class AppStarter:
    """Starts apps in threads of its own, since each may wait for over a minute."""

    def __init__(self) -> None:
        self._renew()

    def _renew(self) -> None:
        self._threads = FairPool(MAX_CONCURRENT_STARTS, MAX_CONCURRENT_STARTS_OF_OWNER, "app")
        self._warm_ups = ThreadPoolExecutor(1, thread_name_prefix="warm-up")  # one after another: starts cost CPU time
        self._under_way: set[int] = set()
        self._stopping = threading.Event()

    def begin(self, runtime: Runtime, endpoint_id: int) -> None:
        """Open the app in the background, unless that is under way."""
        owners = Endpoint.objects.filter(pk=endpoint_id).values_list("session__owner", flat=True)
        for owner in owners:
            self._begin(runtime, endpoint_id, owner)

    def look(self, runtime: Runtime, endpoint_id: int) -> None:
        """Look in the background why the app refuses connections, unless something is under way with it."""
        owners = Endpoint.objects.filter(pk=endpoint_id).values_list("session__owner", flat=True)
        for owner in owners:
            self._begin(runtime, endpoint_id, owner, look_at_app)

    def warm_up(self, runtime: Runtime, session: Session) -> None:
        """Start in the background what the session's image wants started with it, once no session is being started."""
        is_wanted = session.kind == Kind.INTERACTIVE and session.memory >= WARM_UP_MIN_MEMORY
        if is_wanted and not self._stopping.is_set():
            self._warm_ups.submit(self._warm_up, runtime, session.pk)

    def resume(self, runtime: Runtime, host: Host) -> None:
        """Resume endpoints of this host that are STARTING: left by a dead worker, or waiting for their user."""
        for endpoint_id, owner in starting(host).values_list("pk", "session__owner"):
            self._begin(runtime, endpoint_id, owner)

    def end(self) -> None:
        """Stop waiting for apps; they go on starting in their containers."""
        self._stopping.set()
        self._warm_ups.shutdown(cancel_futures=True)
        self._threads.end()
        self._renew()  # for another worker in this process

    def _begin(self, runtime: Runtime, endpoint_id: int, owner: int, act: Act | None = None) -> None:
        if endpoint_id not in self._under_way and not self._stopping.is_set():
            self._under_way.add(endpoint_id)
            self._threads.submit(owner, partial(self._run, runtime, endpoint_id, act or open_app))

    def _warm_up(self, runtime: Runtime, session_id: str) -> None:
        try:
            close_old_connections()
            while runner.is_any_preparing() and not self._stopping.wait(PROBE_PAUSE_SECONDS):
                pass
            warm_up_apps(runtime, session_id)
        except Exception as error:  # a convenience: whoever opens the app starts it, and is told
            logger.warning("session %s: its apps are not started with it: %s", session_id, error)
        finally:
            connections.close_all()

    def _run(self, runtime: Runtime, endpoint_id: int, act: Act) -> None:
        try:
            close_old_connections()
            act(runtime, endpoint_id, self._stopping)
        except EngineUnreachableError as error:
            logger.warning("endpoint %d: opening it failed, the reconciler will go on: %s", endpoint_id, error)
        except Exception:
            logger.exception("endpoint %d: opening it failed, the reconciler will go on", endpoint_id)
        finally:
            self._under_way.discard(endpoint_id)
            connections.close_all()


def warm_up_apps(runtime: Runtime, session_id: str) -> None:
    """Start the programs that the image wants started with a session, unless they run or the session is a batch job.

    Sessions of less than WARM_UP_MIN_MEMORY and those in the network of their host, where ports are others' too, are
    left alone. Raises ContainerRuntimeError.
    """
    interactive = Session.objects.filter(pk=session_id, kind=Kind.INTERACTIVE, memory__gte=WARM_UP_MIN_MEMORY)
    interactive = interactive.filter(cluster__first_port=None)
    apps = App.objects.filter(image__sessions__in=interactive, warm_up=True).exclude(command="")
    for app in apps.order_by("port").distinct("port"):
        with runner.container_lock(session_id):
            session = interactive.filter(status=Status.RUNNING).select_related("host").first()
            if session is None:
                return
            status = _inspect(runtime, session, app.port)
            if not (status.runs or status.is_listening):
                token = _token(session, app) if app.token_variable else {}
                command = start_command(app.port, app.command)
                runtime.execute(session_id, session.attempt, command, environment(app.port) | token)


def _token(session: Session, app: App) -> dict[str, str]:
    return {app.token_variable: app_states.token_of(str(session.host), session.pk, app.port)}


def open_app(runtime: Runtime, endpoint_id: int, stopping: threading.Event) -> None:
    """Bring the endpoint to READY or FAILED, or leave it STARTING where a user has yet to start something.

    Raises EngineUnreachableError; the endpoint is then as far as it has come.
    """
    endpoint = _read(endpoint_id)
    if endpoint is None or endpoint.session.address is None:
        return
    app = endpoint.session.image.apps.filter(name=endpoint.app).first()
    try:
        result = _probe(endpoint, app)
        if _is_response(result, app):
            app_states.report(endpoint, EndpointState.READY)
        elif result is ProbeResult.NO_RESPONSE and _is_busy(runtime, endpoint):
            logger.info("endpoint %d: it is slow to respond, and keeps its route", endpoint_id)
        elif app and app.command:
            _start(runtime, endpoint, app, stopping)
        else:
            _wait_for_user(runtime, endpoint)
    except EngineUnreachableError:
        raise
    except ContainerRuntimeError as failure:
        app_states.report(endpoint, EndpointState.FAILED, str(failure))


def look_at_app(runtime: Runtime, endpoint_id: int, stopping: threading.Event) -> None:
    """Record why a READY app refuses connections, or that it takes them again; it stays READY, and is not started.

    Raises ContainerRuntimeError.
    """
    endpoint = _read(endpoint_id)
    if endpoint is None or endpoint.state != EndpointState.READY:
        return
    status = _inspect(runtime, endpoint.session, endpoint.port)
    obstacle, output, words = _obstacle(status), status.output, ""
    if obstacle == AppObstacle.LOOPBACK:
        words = _loopback_explanation(endpoint)
    elif obstacle and endpoint.session.image.apps.filter(name=endpoint.app).exclude(command="").exists():
        code, memory = _exit_words(status)
        words = f"{endpoint.title} has ended{code}{memory}."
    elif obstacle:
        words = f"Nothing listens on port {endpoint.port} any more. Start it again, listening on 0.0.0.0."
    else:
        output = ""
    if (obstacle, words, output) != (endpoint.obstacle, endpoint.detail, endpoint.output):
        app_states.report(endpoint, EndpointState.READY, words, output, obstacle)


def _start(runtime: Runtime, endpoint: Endpoint, app: App, stopping: threading.Event) -> None:
    """Start the app unless it runs or somebody listens on its port, and wait for its first answer."""
    with runner.container_lock(endpoint.session_id):
        if _read(endpoint.pk) is None:
            return
        status = _inspect(runtime, endpoint.session, endpoint.port)
        if status.is_loopback_only:
            words = _loopback_explanation(endpoint)
            app_states.report(endpoint, EndpointState.FAILED, words, status.output, AppObstacle.LOOPBACK)
            return
        if not status.is_listening:  # else a user has started it, and it was only slow to answer
            token = {app.token_variable: endpoint.token} if app.token_variable else {}
            command, variables = start_command(app.port, app.command), environment(app.port) | token
            runtime.execute(endpoint.session_id, endpoint.session.attempt, command, variables)
    _await_response(runtime, endpoint, app, stopping)


def _await_response(runtime: Runtime, endpoint: Endpoint, app: App, stopping: threading.Event) -> None:
    """Probe until the app responds, ends or times out, and report its output every POLL_INTERVAL_SECONDS."""
    began = time.monotonic()
    next_inspection = began
    while not stopping.is_set():
        if _is_response(_probe(endpoint, app), app):
            app_states.report(endpoint, EndpointState.READY)
            return
        if time.monotonic() >= next_inspection:
            status = _inspect(runtime, endpoint.session, endpoint.port)
            problem = _problem(endpoint, status, time.monotonic() - began)
            state = EndpointState.FAILED if problem else EndpointState.STARTING
            words = problem or f"Starting {endpoint.title} …"
            if not app_states.report(endpoint, state, words, status.output, _obstacle(status)) or problem:
                return
            next_inspection = time.monotonic() + POLL_INTERVAL_SECONDS
        stopping.wait(PROBE_PAUSE_SECONDS)


def _problem(endpoint: Endpoint, status: AppStatus, seconds: float) -> str:
    """Return why the start has failed; "" while it may still succeed."""
    if not (status.runs or status.is_listening):
        code, memory = _exit_words(status)
        return f"{endpoint.title} ended{code}{memory} before it answered."
    if status.is_loopback_only:
        return _loopback_explanation(endpoint)
    if seconds > START_TIMEOUT_SECONDS:
        who = f"{endpoint.title} runs, but" if status.runs else "What listens there"
        return f"{who} has not answered on port {endpoint.port} for {seconds:.0f} s."
    return ""


def _exit_words(status: AppStatus) -> tuple[str, str]:
    code = "" if status.exit_code is None else f" with exit code {status.exit_code}"
    return code, ", perhaps for want of memory" if status.exit_code in (None, KILLED) else ""


def _obstacle(status: AppStatus) -> str:
    """Return the AppObstacle that was seen, or ""."""
    if status.is_loopback_only:
        return AppObstacle.LOOPBACK.value
    return "" if status.runs or status.is_listening else AppObstacle.EXITED.value


def _wait_for_user(runtime: Runtime, endpoint: Endpoint) -> None:
    """Report what is missing and leave the endpoint STARTING for the next round; FAILED after USER_START_TIMEOUT."""
    status = _inspect(runtime, endpoint.session, endpoint.port)
    if status.is_loopback_only:
        words = _loopback_explanation(endpoint)
    elif status.is_listening:
        words = f"What listens on port {endpoint.port} does not speak HTTP, or does not answer yet."
    else:
        words = f"Nothing listens on port {endpoint.port} yet. Start it in the terminal, listening on 0.0.0.0."
    is_over = clock.now() - endpoint.opened_at > USER_START_TIMEOUT
    state = EndpointState.FAILED if is_over else EndpointState.STARTING
    if (state, words) != (endpoint.state, endpoint.detail):
        app_states.report(
            endpoint, state, words, obstacle=AppObstacle.LOOPBACK.value if status.is_loopback_only else ""
        )


def _loopback_explanation(endpoint: Endpoint) -> str:
    return (
        f"What listens on port {endpoint.port} does so on 127.0.0.1, where only the session itself reaches it. Start it"
        " anew listening on 0.0.0.0: most programs take --host 0.0.0.0."
    )


def _probe(endpoint: Endpoint, app: App | None) -> ProbeResult:
    return probe(str(endpoint.session.address), endpoint.port, app.readiness_path if app else "/")


def _is_response(result: ProbeResult, app: App | None) -> bool:
    """Return whether the app responds; one started by a user may respond with an error of its own."""
    return result is ProbeResult.OK or (result is ProbeResult.ERROR and not (app and app.command))


def _is_busy(runtime: Runtime, endpoint: Endpoint) -> bool:
    """Return whether an app that has responded before goes on listening, as one does that serves a long request."""
    if endpoint.state != EndpointState.READY:
        return False
    status = _inspect(runtime, endpoint.session, endpoint.port)
    return status.is_listening and not status.is_loopback_only


def _inspect(runtime: Runtime, session: Session, port: int) -> AppStatus:
    """Return what is seen of the app; asked again where the engine lost the output, as it may of short programs."""
    output = ""
    for _ in range(INSPECTIONS):
        output = runtime.execute(session.pk, session.attempt, status_command(port), {}).output
        if STATUS_HEAD_END in output:
            break
    return read_status(output, port)


def _read(endpoint_id: int) -> Endpoint | None:
    """Return the endpoint while it is open and its session runs."""
    current = Endpoint.objects.unclosed().filter(pk=endpoint_id, session__status=Status.RUNNING)
    return current.select_related("session__image").first()


def starting(host: Host) -> QuerySet[Endpoint]:
    """Return the endpoints of this host's running sessions that are STARTING."""
    running = Endpoint.objects.filter(session__host=host, session__status=Status.RUNNING)
    return running.filter(state=EndpointState.STARTING)


_starter: Final = AppStarter()  # of this process
begin, look, warm_up, resume, end = _starter.begin, _starter.look, _starter.warm_up, _starter.resume, _starter.end
