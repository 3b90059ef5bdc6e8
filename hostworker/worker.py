"""What a host worker does beside its tasks: heartbeats, reconciling, listening for exits, watching the GPUs."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from django.db import close_old_connections, connections

from hostworker import app_starter, jupyter_activity, reconciler, runner, session_keys
from hostworker import watchdog as gpu_watchdog
from hostworker.jupyter_activity import JupyterActivity
from hostworker.privileged.base import PrivilegesError
from hostworker.privileged.firewall import FirewallError
from hostworker.runtime.base import EngineUnreachableError, Runtime
from hostworker.session_keys import SessionKeys
from hostworker.watchdog import Watchdog
from resources import services as hosts
from resources.kick import kick_scheduler
from resources.models import Host

logger = logging.getLogger(__name__)

RECONCILE_SECONDS: Final = 5
KEEP_WARM_SECONDS: Final = 60
AT_ONCE: Final = 8  # starts, and stops, taken up again by the reconciler


class HostWorker:
    """Keeps one host's rows and containers together while its worker lives."""

    def __init__(
        self,
        runtime: Runtime,
        host: Host,
        watchdog: Watchdog | None = None,
        hold_firewall: Callable[[], None] | None = None,
    ) -> None:
        self.runtime = runtime
        self.host = host
        self._hold_firewall = hold_firewall
        self._stopped = threading.Event()
        self._engine_answers = True
        self._under_way: set[tuple[object, ...]] = set()
        self._starts = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="start")
        self._stops = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="stop")
        loops: list[tuple[Callable[[], None], float]] = [
            (self.heartbeat, hosts.HEARTBEAT_SECONDS),
            (self.reconcile, RECONCILE_SECONDS),
            (self.listen, 1),
            (self.keep_warm, KEEP_WARM_SECONDS),
            (SessionKeys(runtime, host).poll, session_keys.POLL_INTERVAL_SECONDS),
            (JupyterActivity(host).poll, jupyter_activity.POLL_INTERVAL_SECONDS),
        ]
        if watchdog:
            loops.append((watchdog.poll, gpu_watchdog.POLL_INTERVAL_SECONDS))
        if hold_firewall:
            loops.append((self.apply_firewall, RECONCILE_SECONDS))
        self._threads = [
            threading.Thread(target=self._repeat, args=loop, name=loop[0].__name__, daemon=True) for loop in loops
        ]

    def begin(self) -> None:
        """Reconcile once, so that the host is ready if its engine is, and go on in the background."""
        if self._hold_firewall:
            self._once(self.apply_firewall)
        self._once(self.reconcile)
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Stop the background work; sessions keep running."""
        self._stopped.set()
        app_starter.end()
        begun = [thread for thread in self._threads if thread.ident is not None]
        for thread in begun:
            thread.join()
        if not begun:  # told to end while it began; what an earlier worker kept ready is put away all the same
            self._once(self.keep_warm)
        for pool in (self._starts, self._stops):
            pool.shutdown(cancel_futures=True)

    def heartbeat(self) -> None:
        """Say that the host lives."""
        hosts.heartbeat(self.host)

    def reconcile(self) -> None:
        """Bring containers and rows together; the host takes sessions only while this succeeds."""
        try:
            reconciler.reconcile(self.runtime, self.host, self._act)
        except EngineUnreachableError as error:
            hosts.declare_joining(self.host)
            if self._engine_answers:
                logger.error("host %s: takes no sessions, its container engine does not answer: %s", self.host, error)
            self._engine_answers = False
            return
        self._engine_answers = True
        app_starter.resume(self.runtime, self.host)
        if hosts.declare_ready(self.host):
            logger.info("host %s: ready", self.host)
            kick_scheduler()

    def listen(self) -> None:
        """End sessions as their containers exit; returns only by an exception or when the worker ends."""
        for state in self.runtime.exits(self._stopped):
            close_old_connections()
            runner.note_exit(self.runtime, state)

    def keep_warm(self) -> None:
        """Keep ready what makes the next starts quick; returns when the worker ends, or where there is nothing to."""
        self.runtime.keep_warm(self._stopped)

    def apply_firewall(self) -> None:
        """Have the rules in place that keep sessions from the host's own services."""
        if self._hold_firewall:
            self._hold_firewall()

    def _act(self, *action: Any) -> None:
        """Do (function, *arguments) in the background unless it is waiting there or under way already.

        Stops have threads of their own: starts, which may pull an image for long, do not hold them up.
        """
        if action in self._under_way:
            return
        self._under_way.add(action)
        pool = self._stops if action[0] is runner.stop else self._starts
        pool.submit(self._do, *action).add_done_callback(lambda _: self._under_way.discard(action))

    def _do(self, *action: Any) -> None:
        self._once(*action)
        connections.close_all()  # these threads are seldom busy, and a database has few connections to spare

    def _repeat(self, function: Callable[[], object], seconds: float) -> None:
        while not self._stopped.is_set():
            self._once(function)
            self._stopped.wait(seconds)
        connections.close_all()

    def _once(self, function: Callable[..., object], *arguments: object) -> None:
        """Call the function so that no failure, such as a database that restarts, ends the loop it is part of."""
        try:
            close_old_connections()
            function(*arguments)
        except (EngineUnreachableError, FirewallError, PrivilegesError) as error:
            # Says all; a page of traceback for every attempt would hide the rest.
            logger.warning("host %s: %s failed, will try again: %s", self.host, function.__name__, error)
        except Exception:
            logger.exception("host %s: %s failed, will try again", self.host, function.__name__)
        finally:
            close_old_connections()
