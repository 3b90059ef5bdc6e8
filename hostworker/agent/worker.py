"""The host worker's background loops: heartbeat, reconciliation, container exits, GPU watchdog."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

from django.conf import settings
from django.db import InterfaceError, OperationalError, close_old_connections, connections

from folders.quotas import measure
from folders.storage import roots
from hostworker.agent import cluster_watch, host_probe, kernel_watch, output_watch, reconciler, starts
from hostworker.agent.cluster_watch import ClusterWatch
from hostworker.agent.due_work import DueWork, Work
from hostworker.agent.image_loops import ImageLoops
from hostworker.agent.kernel_watch import KernelWatch
from hostworker.agent.output_watch import OutputWatch
from hostworker.app_processes import jupyter_activity
from hostworker.app_processes import starter as app_starter
from hostworker.app_processes.jupyter_activity import JupyterActivity
from hostworker.containers import resizer, runner
from hostworker.enforcement.arbiter import Arbiter
from hostworker.gpus import accelerator_watch, arbiter_watch, gpu_readings, usage_recorder
from hostworker.gpus import watchdog as gpu_watchdog
from hostworker.gpus.accelerator_watch import AcceleratorWatch
from hostworker.gpus.arbiter_watch import ArbiterWatch
from hostworker.gpus.gpu_readings import GpuReadings
from hostworker.gpus.usage_recorder import UsageRecorder
from hostworker.gpus.watchdog import SessionGpuUse
from hostworker.images import converter, host_images
from hostworker.privileged.base import PrivilegesError
from hostworker.privileged.firewall import FirewallError
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.replicas import replica_watch
from hostworker.replicas.replica_watch import ReplicaWatch
from hostworker.runtime_protocol import EngineUnreachableError, Key, Runtime
from hostworker.storage import disk_watch, share_watch, storage_quota
from hostworker.storage.disk_watch import DiskWatch
from hostworker.storage.folder_storage import FolderStorage
from hostworker.storage.share_watch import ShareWatch
from hostworker.terminals import session_keys
from hostworker.terminals.session_keys import SessionKeys
from resources.amounts.units import bytes_from
from resources.hosts import services as hosts
from resources.kick import kick_scheduler
from resources.models import Host
from sessions.requeueing import host_faults

logger = logging.getLogger(__name__)

RECONCILE_SECONDS: Final = 5
ENGINE_GRACE_SECONDS: Final = 60.0  # of silence; then sessions that it was to start go elsewhere
KEEP_WARM_SECONDS: Final = 60
CLEAR_IMAGES_SECONDS: Final = 300
MAX_CONCURRENT: Final = 8  # starts, and as many stops, that the reconciler resumes


Loop = tuple[Callable[[], None], float]  # what is called, and the seconds between its calls


class GpuWatch(Protocol):
    """Watches the GPUs of a host: `watchdog.Watchdog`, or that of simulated hosts."""

    def poll(self) -> None:
        """Compare what sessions use with what they hold."""

    def readings(self) -> Mapping[str, SessionGpuUse]:
        """Return what each session uses of its GPUs, by id; {} where that was not measured lately."""


class HostWorker:
    """Runs one host's background loops in threads of their own, from `begin` to `end`."""

    def __init__(
        self,
        runtime: Runtime,
        host: Host,
        watchdog: GpuWatch | None = None,
        hold_firewall: Callable[[], None] | None = None,
        privileges: HostPrivileges | None = None,
        readings: GpuReadings | None = None,
        arbiter: Arbiter | None = None,
        kernel: KernelWatch | None = None,
        accelerators: AcceleratorWatch | None = None,
    ) -> None:
        self.runtime = runtime
        self.host = host
        self._hold_firewall = hold_firewall
        self._kernel = kernel
        self._arbiter = arbiter
        self._stopped = threading.Event()
        reserve_bytes = bytes_from(settings.COMPUTE_DISK_RESERVE)
        self._disk = DiskWatch(runtime, host, reserve_bytes, settings.COMPUTE_INODE_RESERVE)
        self._engine_silent_since: float | None = None  # by the monotonic clock; None while it answers
        self._due = DueWork(host)
        self._running: Collection[Key] | None = None  # at the last reconciliation; None before the first
        self._under_way: set[tuple[object, ...]] = set()
        self._starts = ThreadPoolExecutor(MAX_CONCURRENT, thread_name_prefix="start")
        self._stops = ThreadPoolExecutor(MAX_CONCURRENT, thread_name_prefix="stop")
        self._replicas = ReplicaWatch(host)
        self._storage = FolderStorage(runtime, host, privileges or HostPrivileges(), self._stopped)
        self.loops = [*self._own_loops(), *self._gpu_loops(watchdog, readings, arbiter)]  # each returns soon
        if accelerators:
            self.loops.append((accelerators.poll, accelerator_watch.POLL_INTERVAL_SECONDS))
        if hold_firewall:
            self.loops.append((self.apply_firewall, RECONCILE_SECONDS))
        if kernel:
            kernel.may_have_sessions = lambda: self._running is None or bool(self._running)
            self.loops.append((kernel.poll, kernel_watch.POLL_SECONDS))
        if runtime.clusters and host.cluster_address:
            clusters = ClusterWatch(runtime, runtime.clusters, host, lambda: self._due.is_due(Work.CLUSTERS))
            self.loops.append((clusters.poll, cluster_watch.POLL_SECONDS))
        listening: list[Loop] = [(self.listen, 1), (self.keep_warm, KEEP_WARM_SECONDS)]
        self._threads = [
            threading.Thread(target=self._repeat, args=loop, name=loop[0].__name__, daemon=True)
            for loop in (*self.loops, *listening)
        ]

    def _own_loops(self) -> list[Loop]:
        """Return what every host needs done."""
        due, images = self._due.only, ImageLoops(self.runtime, self.host)
        return [
            (self.heartbeat, hosts.HEARTBEAT_SECONDS),
            (self.reconcile, RECONCILE_SECONDS),
            (self.watch_disk, disk_watch.POLL_SECONDS),
            (self._storage.check_storage, roots.CHECK_SECONDS),
            (self.serve_roots, measure.POLL_SECONDS),
            (due(Work.QUOTAS, self._storage.hold_quotas), storage_quota.POLL_SECONDS),
            (due(Work.PROBE, self.probe), host_probe.POLL_INTERVAL_SECONDS),
            (images.report_images, host_images.REPORT_SECONDS),
            (due(Work.PULLS, images.pull_images), host_images.PULL_POLL_SECONDS),
            (images.clear_images, CLEAR_IMAGES_SECONDS),
            (OutputWatch(self.runtime, self.host).poll, output_watch.POLL_INTERVAL_SECONDS),
            (due(Work.SHARES, ShareWatch(self.runtime, self.host).poll), share_watch.POLL_INTERVAL_SECONDS),
            (SessionKeys(self.runtime, self.host).poll, session_keys.POLL_INTERVAL_SECONDS),
            (JupyterActivity(self.host).poll, jupyter_activity.POLL_INTERVAL_SECONDS),
            (due(Work.REPLICAS, self._replicas.poll), replica_watch.POLL_INTERVAL_SECONDS),
        ]

    def _gpu_loops(
        self, watchdog: GpuWatch | None, readings: GpuReadings | None, arbiter: Arbiter | None
    ) -> list[Loop]:
        """Return what is read of the GPUs and their sessions, and done with it; usage is recorded without GPUs too."""
        usage = UsageRecorder(self.runtime, self.host, watchdog.readings if watchdog else dict)
        loops: list[Loop] = [(usage.poll, usage_recorder.POLL_INTERVAL_SECONDS)]
        if watchdog:
            loops.append((watchdog.poll, gpu_watchdog.POLL_INTERVAL_SECONDS))
        if readings:
            loops.append((readings.poll, gpu_readings.POLL_INTERVAL_SECONDS))
        if arbiter:
            loops.append((ArbiterWatch(arbiter, lambda: self._due.sharing).poll, arbiter_watch.POLL_INTERVAL_SECONDS))
        return loops

    def begin(self) -> None:
        """Reconcile once, so that the host is ready if its engine is, then start the loops."""
        if self._hold_firewall:
            self._once(self.apply_firewall)
        if self._kernel:
            self._once(self._kernel.poll)
        self._once(self._storage.check_storage)  # so that the first sessions are placed where their folders are
        self._once(self.watch_disk)
        self._once(self.reconcile)
        self._once(host_images.resume_pulls, self.host)
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Stop the loops and wait for them; sessions keep running."""
        self._stopped.set()
        app_starter.end()
        starts.end()
        converter.end()
        begun = [thread for thread in self._threads if thread.ident is not None]
        for thread in begun:
            thread.join()
        self._storage.end()
        self._replicas.end()
        if not begun:  # ended while it began; what an earlier worker kept ready is removed all the same
            self._once(self.keep_warm)
        for pool in (self._starts, self._stops):
            pool.shutdown(cancel_futures=True)
        if self._arbiter:
            self._once(self._arbiter.end)

    def heartbeat(self) -> None:
        """Record that the host is alive; end the process if the host was removed or given to another machine."""
        if not hosts.heartbeat(self.host):
            logger.critical(
                "host %s: it was removed, or another machine has this name now, so this worker ends", self.host
            )
            os.kill(os.getpid(), signal.SIGTERM)

    def reconcile(self) -> None:
        """Reconcile containers with rows; the host is schedulable only while this succeeds."""
        try:
            may_have_sessions = self._due.is_due(Work.SESSIONS)
            self._running = reconciler.reconcile(
                self.runtime, self.host, self._act, self._running, may_have_sessions=may_have_sessions
            )
        except EngineUnreachableError as error:
            self._bear_silence(error)
            return
        self._engine_silent_since = None
        if self._due.is_due(Work.APPS):
            app_starter.resume(self.runtime, self.host)
        if self._due.is_due(Work.CONVERSIONS):
            converter.resume(self.runtime, self.host)
        if self._disk.is_short:
            self._withdraw()
        elif self._due.is_due(Work.READINESS) and hosts.declare_ready(self.host):
            logger.info("host %s: ready", self.host)
            kick_scheduler()

    def _withdraw(self) -> None:
        """Offer the host to no sessions until it is reconciled again."""
        if hosts.declare_joining(self.host):
            self._due.forget()

    def _bear_silence(self, error: EngineUnreachableError) -> None:
        """Take no sessions while the engine does not answer; after a while, give up those that it was to start."""
        self._withdraw()
        now = time.monotonic()
        if self._engine_silent_since is None:
            self._engine_silent_since = now
            logger.error("host %s: takes no sessions, its container engine does not answer: %s", self.host, error)
        elif now - self._engine_silent_since > ENGINE_GRACE_SECONDS:
            host_faults.requeue_prepared(self.host, "Its container engine does not answer.")

    def serve_roots(self) -> None:
        """Measure folders on the storage roots that this host has, and hold their owners to their limits."""
        if self._storage.roots:
            is_any_due, has_limits = self._due.is_due(Work.MEASUREMENTS), self._due.is_due(Work.LIMITS)
            self._storage.serve_roots(is_any_due=is_any_due, has_limits=has_limits)

    def probe(self) -> None:
        """Probe a host that was cordoned because it failed to start sessions."""
        host_probe.poll(self.runtime, self.host)

    def listen(self) -> None:
        """End sessions as their containers exit; returns only by an exception or when the worker ends."""
        for state in self.runtime.exits(self._stopped, self._note_memory_kill):
            close_old_connections()
            runner.note_exit(self.runtime, state)

    def _note_memory_kill(self, session_id: str, attempt: int) -> None:
        self._once(runner.note_memory_kill, session_id, attempt)

    def keep_warm(self) -> None:
        """Keep sandboxes ready for the next starts; returns when the worker ends, or where there are none to keep."""
        self.runtime.keep_warm(self._stopped)

    def watch_disk(self) -> None:
        """Bound what sessions write to this host's disk."""
        self._disk.poll()

    def apply_firewall(self) -> None:
        """Apply the firewall rules that keep sessions from the host's own services."""
        if self._hold_firewall:
            self._hold_firewall()

    def _act(self, *action: Any) -> None:
        """Submit (function, *arguments) to a thread pool unless the same call is queued or running.

        Stops have threads of their own: starts, which may pull an image for long, do not hold them up.
        """
        if action in self._under_way:
            return
        self._under_way.add(action)
        pool = self._stops if action[0] in (runner.stop, runner.keep_parked, resizer.apply) else self._starts
        pool.submit(self._do, *action).add_done_callback(lambda _: self._under_way.discard(action))

    def _do(self, *action: Any) -> None:
        self._once(*action)
        connections.close_all()  # idle threads would otherwise hold database connections

    def _repeat(self, function: Callable[[], object], seconds: float) -> None:
        while not self._stopped.is_set():
            self._once(function)
            self._stopped.wait(seconds)
        connections.close_all()

    def _once(self, function: Callable[..., object], *arguments: object) -> None:
        """Call the function and log its errors, so that none, such as a restarting database, ends the loop."""
        try:
            close_old_connections()
            function(*arguments)
        except (EngineUnreachableError, FirewallError, PrivilegesError, OperationalError, InterfaceError) as error:
            # An expected failure: the message says all, and a traceback for every attempt would fill the log.
            logger.warning("host %s: %s failed, will try again: %s", self.host, function.__name__, error)
        except Exception:
            logger.exception("host %s: %s failed, will try again", self.host, function.__name__)
        finally:
            close_old_connections()
