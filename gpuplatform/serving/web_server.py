"""Runs uvicorn in several processes at one address: with the platform, with the apps of sessions, or as a gateway.

Does not import Django's applications: a process that is spawned imports this module before Django is set up.
"""

import gc
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import Any, Final

import django
from django.core.management.base import CommandError
from django.utils.module_loading import import_string
from uvicorn import Config, Server
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import multiprocess
from uvicorn.supervisors.multiprocess import Multiprocess

from operations.machine.address import Address
from proxy.counters import CounterMemory, SharedCounters
from proxy.limits import OpenFileLimitError, raise_open_file_limit

MAX_MESSAGE_BYTES: Final = 2**20  # of a websocket message to the platform: ample for what people paste
SHUTDOWN_SECONDS: Final = 3  # for requests under way; websockets are told at once to connect again (1012)
START_SECONDS: Final = 60  # for a process to start, and for one that is stuck to answer
SWITCH_SECONDS: Final = 0.001  # for which a thread may keep the event loop, and so all connections, from its next event
BACKLOG: Final = 2048  # connections that the kernel queues until they are accepted
PASSED_DESCRIPTOR: Final = 3  # the first that systemd passes
MIN_AUTOMATIC: Final = 2  # processes, where no number is given: one alone cannot be replaced while it serves
MAX_AUTOMATIC: Final = 4


class ServerConfig(Config):
    """What a process serves, which the process itself loads after it was spawned."""

    def __init__(
        self,
        served: str,
        *,
        processes: int,
        trusted_proxies: Sequence[str] = (),
        has_metrics: bool = False,
        **arguments: object,
    ) -> None:
        """`served` names the function that is called in each process, with the counters of all and with `arguments`.

        With `has_metrics` the processes add their Prometheus metrics up.
        """
        super().__init__(
            "",  # see `load`
            loop="uvloop",
            forwarded_allow_ips=list(trusted_proxies),
            lifespan="on",
            ws_max_size=MAX_MESSAGE_BYTES,
            ws_per_message_deflate=False,  # would more than double the time of a key's echo in a terminal
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            timeout_worker_healthcheck=START_SECONDS,
            log_level="warning",
            log_config=None,  # its messages go to Django's handler
            access_log=False,
            backlog=BACKLOG,
            workers=processes,
        )
        self._served = served
        self._arguments: dict[str, object] = arguments
        self._counter_memory = CounterMemory(processes) if processes > 1 else None
        self.metrics_folder = tempfile.mkdtemp(prefix="gpuplatform-metrics-") if has_metrics and processes > 1 else None

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore it in a process that was spawned, maybe by a parent of the version before, which a reload keeps."""
        vars(self).update(state)
        if "_served" not in state:  # until that version need not be upgraded from any more
            self._arguments = {"host": self.host}
            self._served = "gpuplatform.applications.platform_and_apps"
            if not state["_has_platform"]:
                self._served = "gpuplatform.serving.data_plane.apps"
                self._arguments["drain_seconds"] = state["_drain_seconds"]

    def load(self) -> None:
        """Set Django up, and load what is served. SIGTERM ends a process at once until that is done."""
        sigterm_handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.setswitchinterval(SWITCH_SECONDS)
        if self.metrics_folder:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = self.metrics_folder  # read as prometheus_client is imported
        django.setup(set_prefix=False)
        counters = SharedCounters(self._counter_memory) if self._counter_memory else None
        self.app, self.http = import_string(self._served)(counters, **self._arguments)
        if parent := multiprocessing.parent_process():
            threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
        super().load()
        gc.freeze()  # a full collection that looks through all this stops every request for a sixth of a second
        signal.signal(signal.SIGTERM, sigterm_handler)


class WatchedProcess(multiprocess.Process):
    """A server process whose death ends the question whether it is well, which otherwise waits for START_SECONDS."""

    def start(self) -> None:
        """Start it, and close its end of the pipe here, so that its death closes the pipe."""
        super().start()
        self.child_conn.close()


def serve(config: ServerConfig, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT. SIGHUP ends one process, and replaces several, each once its successor serves.

    Raises CommandError where too few files may be open, and where a process finds that it cannot serve.
    """
    try:
        raise_open_file_limit()
    except OpenFileLimitError as error:
        raise CommandError(str(error)) from error
    try:
        if config.workers > 1:
            multiprocess.Process = WatchedProcess  # type: ignore[misc]
            parent = Multiprocess(config, [listener])
            parent.run()
            if STARTUP_FAILURE in {process.exitcode for process in parent.processes}:
                raise CommandError("a process could not start; the lines above say why")
        else:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # manage.py ignores it until here
            Server(config).run([listener])
    finally:
        if config.metrics_folder:
            shutil.rmtree(config.metrics_folder, ignore_errors=True)


def listener_at(address: Address, *, is_shared: bool = False) -> socket.socket:
    """Return a socket that is bound to the address, `is_shared` with other commands. Raises CommandError.

    One that systemd has opened is taken in its place: there, connections wait while the service is restarted.
    https://www.freedesktop.org/software/systemd/man/latest/sd_listen_fds.html
    """
    if os.environ.pop("LISTEN_PID", "") == str(os.getpid()) and os.environ.pop("LISTEN_FDS", "") == "1":
        return socket.socket(fileno=PASSED_DESCRIPTOR)
    where, family = (address.host, address.port), socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server(where, family=family, backlog=BACKLOG, reuse_port=is_shared)
    except OSError as error:
        raise CommandError(f"cannot listen on {address.host} port {address.port}: {error}") from error


def processes_of(wanted: int) -> int:
    """Return how many processes to run: where `wanted` is 0, one for each core, within bounds."""
    return wanted or max(MIN_AUTOMATIC, min(MAX_AUTOMATIC, len(os.sched_getaffinity(0))))


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, be it killed: it would keep the address."""
    multiprocessing.connection.wait([parent])
    os.kill(os.getpid(), signal.SIGTERM)
