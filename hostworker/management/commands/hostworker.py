"""`manage.py hostworker`: the one process that a GPU host runs for its sessions."""

import logging
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict
from importlib import import_module
from typing import Any

from celery import current_app
from celery.platforms import EX_OK
from celery.signals import worker_shutting_down
from celery.worker import state as celery_state
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from hostaccess.pooler import pooler_problem
from hostworker.agent import engine_lock
from hostworker.agent.firewall_watch import FirewallWatch
from hostworker.agent.kernel_watch import KernelWatch
from hostworker.agent.worker import HostWorker
from hostworker.enforcement.programs import NVML, ProgramsMissingError
from hostworker.enforcement.simulation import load_nvml
from hostworker.enforcement.telemetry import NvmlTelemetry
from hostworker.gpus.accelerator_watch import AcceleratorWatch
from hostworker.gpus.gpu_readings import GpuReadings
from hostworker.gpus.sysfs_sampler import SysfsSampler
from hostworker.gpus.watchdog import Watchdog
from hostworker.runtime.container_config import NETWORK, bridge_device
from hostworker.runtime.factory import (
    cluster_problem,
    engine_id,
    engine_problem,
    find_accelerators,
    find_accelerators_again,
    firewall_problem,
    get_enforcer,
    get_privileges,
    get_runtime,
    is_engine_here,
)
from proxy.limits import OpenFileLimitError, raise_open_file_limit
from resources.accelerators.kinds import NVIDIA
from resources.checks import HOST_TAG
from resources.gpus.discovery import Device, Machine, this_machine
from resources.hosts import local_address
from resources.hosts.claims import HostNameTakenError, claim, this_identity
from resources.hosts.services import register_host
from resources.models import Host
from resources.versions import VERSION_TAG
from sessions.notify import host_queue

TASKS_AT_ONCE = 16  # threads: they wait for the engine most of the time


logger = logging.getLogger(__name__)


class Command(BaseCommand):
    """Register this host, take up its sessions again, then start and stop sessions as told."""

    requires_system_checks = (HOST_TAG, VERSION_TAG)  # all others load all pages
    help = "Register this machine as a host and run its sessions until stopped; running sessions outlive it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--replace", action="store_true", help="take the place of the machine that had this name")

    def handle(self, *args: Any, replace: bool, **options: Any) -> None:
        """Run until SIGTERM or Ctrl-C."""
        name = settings.COMPUTE_HOST_NAME
        try:
            raise_open_file_limit()
        except OpenFileLimitError as error:
            raise CommandError(str(error)) from error
        if pooler := pooler_problem():
            raise CommandError(pooler)
        if refused := engine_problem():
            raise CommandError(f"The container engine at {settings.COMPUTE_DOCKER_URL} will not do: {refused}.")
        if problem := get_enforcer().problem():
            logger.warning("host %s: lends whole GPUs only: %s", name, problem)
        machine, engine = _machine(name, can_hook=not problem), engine_id()
        is_shared = settings.COMPUTE_SHARED_ENGINE or not engine
        try:
            with nullcontext() if is_shared else closing(engine_lock.take(engine)):
                self._serve(name, machine, engine, replace=replace)
        except engine_lock.EngineTakenError as error:
            raise CommandError(str(error)) from error

    def _serve(self, name: str, machine: Machine, engine: str, *, replace: bool) -> None:
        """Register the machine as the host `name` and run the host worker."""
        identity = this_identity(engine)
        try:
            claim(name, identity, replaces=replace)
        except HostNameTakenError as error:
            raise CommandError(str(error)) from error
        host = register_host(
            name,
            machine,
            settings.COMPUTE_HOST_GROUP,
            has_mps=bool(settings.COMPUTE_MPS_DIR),
            gateway_url=settings.COMPUTE_GATEWAY_URL,
            cluster_address=_cluster_address(name),
            identity=asdict(identity),
        )
        watched = tuple(device for device in machine.devices if device.kind == host.group.accelerator == NVIDIA)
        watchdog = _watchdog(host, watched)
        accelerators = _accelerator_watch(host, machine, sampler := SysfsSampler())
        readings = GpuReadings(host, NvmlTelemetry() if watchdog else sampler) if watchdog or accelerators else None
        import_module("hostworker.tasks")
        arbiter = get_enforcer().arbiter if watched else None
        worker = HostWorker(
            get_runtime(),
            host,
            watchdog,
            _firewall(host),
            get_privileges(),
            readings,
            arbiter,
            KernelWatch(host, get_privileges()) if is_engine_here() else None,
            accelerators,
        )
        signal.signal(signal.SIGTERM, end_before_celery)
        try:
            worker.begin()
            current_app.worker_main(_celery_arguments(name))
        finally:
            worker.end()


def end_before_celery(number: int, frame: object) -> None:
    """Handle SIGTERM until Celery replaces this handler.

    Python ignores the exception where the signal comes during a destructor: Celery ends as soon as it begins, then.
    """
    celery_state.should_stop = EX_OK  # type: ignore[assignment]
    worker_shutting_down.send(sender=None, sig="SIGTERM", how="Warm", exitcode=EX_OK)
    sys.exit()


def _machine(name: str, *, can_hook: bool) -> Machine:
    """Return the part of this machine that the settings let the host lend. Raises CommandError."""
    accelerators = find_accelerators()
    for problem in accelerators.problems:
        logger.warning("host %s: %s", name, problem)
    try:
        return this_machine(
            host_name=name,
            simulated=settings.COMPUTE_SIMULATED_GPUS,
            cpu=settings.COMPUTE_HOST_CPU,
            memory=settings.COMPUTE_HOST_MEMORY,
            gpus=settings.COMPUTE_HOST_GPUS,
            can_hook=can_hook,
            context_bytes=get_enforcer().context_memory,
            accelerators=accelerators,
        )
    except ValueError as error:
        raise CommandError(str(error)) from error


def _celery_arguments(host_name: str) -> list[str]:
    options = {
        "queues": host_queue(host_name),
        "hostname": f"host@{host_name}",
        "loglevel": settings.COMPUTE_LOG_LEVEL,
        "pool": "threads",
        "concurrency": TASKS_AT_ONCE,
    }
    named = [f"--{name}={value}" for name, value in options.items()]
    return ["--quiet", "worker", *named, "--without-gossip", "--without-mingle", "--without-heartbeat"]


def _cluster_address(host_name: str) -> str:
    """Return the address of this host for the networks of clusters; "" where it can have none."""
    if problem := cluster_problem():
        logger.warning("host %s: takes no members of clusters: %s", host_name, problem)
        return ""
    return local_address.for_clusters()


def _firewall(host: Host) -> Callable[[], None] | None:
    """Return what keeps sessions from the host's own services by rules; None where they are not wanted or not to be."""
    if not settings.COMPUTE_FIREWALL:
        return None
    if problem := firewall_problem():
        text = "host %s: sessions can reach what the host binds to all interfaces, and all private networks: %s"
        logger.error(text, host, problem)
        return None
    return FirewallWatch(host, get_privileges(), bridge_device(NETWORK)).hold


def _accelerator_watch(host: Host, machine: Machine, sampler: SysfsSampler) -> AcceleratorWatch | None:
    """Return the watch over accelerators that NVML does not know; None where the host's group lends others."""
    if host.group.accelerator == NVIDIA:
        return None
    named = {*settings.COMPUTE_HOST_GPUS, *(device.uuid for device in machine.devices)}
    may_lend = named.__contains__ if settings.COMPUTE_HOST_GPUS else lambda uid: True
    return AcceleratorWatch(host, find_accelerators_again, may_lend, sampler)


def _watchdog(host: Host, devices: Sequence[Device]) -> Watchdog | None:
    """Return the watch over these GPUs of NVIDIA's; None where there are none, or none that can be watched."""
    enforcer = get_enforcer()
    if not devices:
        return None
    if any(device.is_simulated for device in devices):
        try:
            sizes = {device.uuid: device.memory for device in devices}
            load_nvml(enforcer.programs.installed() / NVML, enforcer.simulation, sizes)
        except (ProgramsMissingError, OSError) as error:
            logger.warning("host %s: its simulated GPUs are not watched: %s", host, error)
            return None
    hooks, privileges = enforcer.programs.hook_inodes, enforcer.privileges
    charged = enforcer.arbiter.charged if enforcer.arbiter else lambda: None
    charged_memory = enforcer.folders.charged_memory
    return Watchdog(host, NvmlTelemetry(), hooks, enforcer.context_memory, privileges, charged, charged_memory)
