"""Deployments, arrays and imports in a virtual world: what people do with them, and what carries them on."""

import json
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from django.db import models

from arrays import reconciliation as array_reconciliation
from arrays import services as arrays
from arrays.models import Array, ArrayState
from arrays.serializers import ArrayRequestSerializer
from deployments import services as deployments
from deployments.models import Deployment, Replica
from deployments.replicas import reconciliation
from deployments.requests import DeploymentRequest, HealthCheck, RevisionRequest
from deployments.scaling import services as scaling
from engine.engine import EngineConnectionError, ExecError
from hostworker.replicas import replica_watch
from hostworker.runtime_protocol import ContainerPhase, ContainerRuntimeError
from imports import services as imports
from imports.models import Import, ImportState, ImportTarget
from imports.requests import ImportRequest
from imports.runs import delivery, progress
from resources.amounts.units import GIB, MIB
from resources.models import Gpu
from sessions.access.engine_address import HostUnreachableError
from sessions.lifecycle import Status
from sessions.models import Session
from tests.virtual.faults import Fault
from tests.virtual.machines import VirtualHost

if TYPE_CHECKING:
    from tests.virtual.operations import Teller
    from tests.virtual.world import World

SICK: Final = "Nothing listens on port 8000."
PROBLEM: Final = "The repository is not there."
HEALTH: Final = HealthCheck(start_seconds=60, interval_seconds=5, timeout_seconds=2, retries=3)
UNREACHED: Final = (HostUnreachableError, EngineConnectionError, ExecError)


class Workloads:
    """What people do with deployments, arrays and imports, each by the product's own functions."""

    def __init__(self, teller: "Teller") -> None:
        """Begin without any."""
        self._teller, self._world = teller, teller.world

    # Deployments

    def deploy(self, which: int, amount: int, fault: Fault | None) -> None:
        request = DeploymentRequest(
            name=f"served-{self._world.steps_told}",
            resource_group=self._world.groups[which // 7 % len(self._world.groups)],
            revision=self._revision(which, amount),
            replicas=1 + amount % 3,
            max_surge=which % 2,
            max_unavailable=1 - which % 2,
            strategy=("rolling", "rolling", "canary", "blue_green")[which // 2 % 4],
            step_seconds=30,
            drain_seconds=amount % 2 * 10,
        )
        self._of_web(deployments.create, self._world.users[which % 2], request, fault=fault)

    def scale(self, which: int, amount: int, fault: Fault | None) -> None:
        self._on_deployment(which, deployments.set_replicas, amount % 4, fault=fault)

    def roll_out(self, which: int, amount: int, fault: Fault | None) -> None:
        self._on_deployment(which, deployments.new_revision, self._revision(which, amount), fault=fault)

    def roll_back(self, which: int, amount: int, fault: Fault | None) -> None:
        self._on_deployment(which, deployments.abort_rollout, fault=fault)

    def restart(self, which: int, amount: int, fault: Fault | None) -> None:
        self._on_deployment(which, deployments.restart, fault=fault)

    def fall_asleep(self, which: int, amount: int, fault: Fault | None) -> None:
        bounds = {"min_replicas": 1, "max_replicas": 3, "idle_action": ("park", "end")[amount % 2]}
        self._on_deployment(which, scaling.change, bounds, fault=None)
        self._on_deployment(which, scaling.sleep_now, fault=fault)

    def wake(self, which: int, amount: int, fault: Fault | None) -> None:
        if row := self._one(Deployment.objects.live(), which):
            self._of_web(scaling.wake, row.pk, fault=fault)

    def end_deployment(self, which: int, amount: int, fault: Fault | None) -> None:
        self._on_deployment(which, deployments.end, fault=fault)

    def sicken(self, which: int, amount: int, fault: Fault | None) -> None:
        """Have a replica answer no probe from now on, or answer them again."""
        replicas = Replica.objects.filter(session__status=Status.RUNNING).order_by("pk")
        if replica := self._one(replicas, which):
            self._world.sick ^= {replica.pk}

    def advance(self, which: int, amount: int, fault: Fault | None) -> None:
        self._world.carry_on(which, fault)

    # Arrays

    def submit_array(self, which: int, amount: int, fault: Fault | None) -> None:
        owner = self._world.users[which % 2]
        body = {
            "image": self._world.image.reference,
            "resource_group": self._world.groups[which // 7 % len(self._world.groups)].name,
            "cpu": 1 + amount % 2,
            "memory": GIB,
            "shared_memory": 64 * MIB,
            "fgpu": ("0", "0.5")[amount // 2 % 2],
            "command": "true",
            "time_limit": 3600,
            "name": f"array-{self._world.steps_told}",
            "tasks": ("0-1", "0-3%1", "0-3%2", {"grid": {"rate": [1, 2, 3]}})[amount % 4],
            "retries": amount // 4 % 2,
        }
        written = ArrayRequestSerializer(data=body, context={"request": SimpleNamespace(user=owner)})
        written.is_valid(raise_exception=True)
        self._of_web(arrays.submit, owner, written.array_request(), fault=fault)

    def cancel_array(self, which: int, amount: int, fault: Fault | None) -> None:
        if row := self._one(Array.objects.live().order_by("pk"), which):
            self._cancel(row, None if amount % 2 else [0], fault)

    def _cancel(self, row: Array, indices: list[int] | None, fault: Fault | None) -> None:
        self._teller.asked.add((row.name, "end"))
        self._teller.askers[row.name].add(str(row.owner))
        self._of_web(arrays.cancel, row, fault=fault, actor=row.owner, indices=indices)

    def retry_array(self, which: int, amount: int, fault: Fault | None) -> None:
        if row := self._one(Array.objects.order_by("pk"), which):
            self._of_web(arrays.retry, row, fault=fault, actor=row.owner)

    def hold_array(self, which: int, amount: int, fault: Fault | None) -> None:
        if row := self._one(Array.objects.live().order_by("pk"), which):
            self._of_web(arrays.hold if amount % 3 else arrays.release, row, fault=fault, actor=row.owner)

    # Imports

    def import_(self, which: int, amount: int, fault: Fault | None) -> None:
        """Look at a repository, or fetch it into a session that runs."""
        owner = self._world.users[which % 2]
        session = Session.objects.filter(owner=owner, status=Status.RUNNING, cluster=None).order_by("pk").first()
        request = ImportRequest(
            address=f"https://github.com/o/r{self._world.steps_told}", session=session if amount % 2 else None
        )
        self._of_web(imports.begin if request.session else imports.look, owner, request, fault=fault)

    def end_import(self, which: int, amount: int, fault: Fault | None) -> None:
        """Let the program of an import end: with what it found, a problem, or without a word."""
        fetching = Import.objects.filter(state=ImportState.FETCHING, session__status=Status.RUNNING)
        row = self._one(fetching.select_related("session__host").order_by("pk"), which)
        if row is None or (host := self._world.host_of(row.session)) is None:
            return
        said = ({"found": {"files": 3}}, {"problem": PROBLEM}, {"progress": "Fetching", "bytes": 9})[amount % 3]
        key = row.session.pk, row.session.attempt
        if row.target == ImportTarget.SESSION:
            host.programs[row.pk] = json.dumps(said) + ("" if amount % 3 < 2 else "\ngone")
        elif host.runtime.states().get(key) is ContainerPhase.RUNNING:
            host.runtime.write_log(*key, json.dumps(said))
            self._teller.note_end(key[0], min(amount % 3, 1))
            host.runtime.end(*key, exit_code=min(amount % 3, 1))

    def cancel_import(self, which: int, amount: int, fault: Fault | None) -> None:
        if row := self._one(Import.objects.live().select_related("session").order_by("pk"), which):
            if row.session is not None and row.target != ImportTarget.SESSION:
                self._teller.ask(row.session, "end", row.owner)
            self._of_web(imports.cancel, row, fault=fault, actor=row.owner)

    def end_all(self) -> None:
        """Have the owners end all deployments, which would go on for ever, and let arrays go on."""
        for row in Deployment.objects.live().order_by("pk"):
            self._of_web(deployments.end, row, fault=None, actor=row.owner)
        for array in Array.objects.live().order_by("pk"):
            self._of_web(arrays.release, array, fault=None, actor=array.owner)

    def cancel_held(self) -> None:
        """Have the owners cancel arrays that are held where hosts or accelerators that they may need are gone."""
        if any(host.is_gone for host in self._world.hosts) or Gpu.objects.filter(is_present=False).exists():
            for row in Array.objects.live().filter(state=ArrayState.HELD).order_by("pk"):
                self._cancel(row, None, None)

    def _revision(self, which: int, amount: int) -> RevisionRequest:
        return RevisionRequest(
            image=self._world.image,
            cpu=1,
            memory=GIB,
            shared_memory=64 * MIB,
            fgpu=(0, 500, 1000)[amount // 3 % 3],
            gpu_memory=(0, 0, 2 * GIB)[which // 3 % 3] if amount // 3 % 3 == 0 else 0,
            command="serve",
            health=HEALTH,
        )

    def _on_deployment(self, which: int, do: Callable[..., object], *arguments: Any, fault: Fault | None) -> None:
        if row := self._one(Deployment.objects.live().order_by("pk"), which):
            self._of_web(do, row, *arguments, fault=fault, actor=row.owner)

    def _of_web(self, do: Any, *arguments: Any, fault: Fault | None, **named: Any) -> None:
        self._teller.of_web(do, *arguments, fault=fault, **named)

    @staticmethod
    def _one(rows: "models.QuerySet[Any]", which: int) -> Any:
        found = list(rows)
        return found[which % len(found)] if found else None


def carry_on() -> None:
    """Do what a scheduler does for deployments, arrays and imports; errors that it would log are raised."""
    for pk in reconciliation.due():
        reconciliation.reconcile(pk)
    for pk in sorted(array_reconciliation.due()):
        while array_reconciliation.reconcile(pk):
            pass
    related = ("session__host", "session__image", "credential", "owner")
    for row in Import.objects.live().select_related(*related).order_by("pk"):
        with suppress(*UNREACHED):
            progress.advance(row)
    for row in progress._to_stop().order_by("pk"):
        with suppress(*UNREACHED):
            progress._stop(row)


def probe(host: VirtualHost, sick: set[str]) -> None:
    """Have a host's worker probe the replicas that it has."""
    for row in replica_watch.probed(host.row).order_by("pk").values(*replica_watch._COLUMNS):
        found = Future[str]()
        found.set_result(SICK if row["session_id"] in sick else "")
        host.worker._replicas._record(row, found)


class _Programs:
    """Stands for the ways by which the scheduler reaches the programs of imports in containers."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def container(self, session: Session | None) -> tuple[VirtualHost, tuple[str, int]]:
        host = None if session is None else self._world.host_of(session)
        if session is None or host is None or host.is_cut_off or host.is_gone:
            raise HostUnreachableError("It is not reached.")
        return host, (session.pk, session.attempt)

    def deliver(self, host: VirtualHost, key: tuple[str, int], pk: str, job: object, *, starts: bool) -> None:
        del job
        self._ask(host, key)
        if starts:
            host.programs.setdefault(pk, "")

    def within(self, function: object, host: VirtualHost, key: tuple[str, int], *arguments: Any) -> str:
        container = self._ask(host, key)
        if function is delivery.stop:
            host.programs[arguments[0]] = "gone"
        return host.programs.get(arguments[0], "gone") if function is delivery.output else "\n".join(container.log)

    def _ask(self, host: VirtualHost, key: tuple[str, int]) -> Any:
        try:
            with host.runtime.operation("exec"):
                container = host.runtime.find(*key)
        except ContainerRuntimeError as error:
            raise EngineConnectionError(str(error)) from error
        if container is None or container.state.phase is not ContainerPhase.RUNNING:
            raise ExecError("It does not run.")
        return container


def borders(world: "World") -> list[Any]:
    """Return what stands for the borders of deployments, arrays and imports, as patches."""
    programs = _Programs(world)
    found: list[tuple[Any, str, Any]] = [
        (reconciliation, "_last_busy", lambda pk: {}),
        (reconciliation, "_totals", lambda pk: {}),
        (array_reconciliation, "monotonic", world.clock.monotonic),
        (progress, "_container", programs.container),
        (progress, "_delivered", programs.deliver),
        (progress, "_within", programs.within),
        (progress, "async_to_sync", lambda function: function),
    ]
    ids = [(model._meta.get_field("id"), "_get_default", world.next_id) for model in (Deployment, Array, Import)]
    return [mock.patch.object(*each) for each in (*found, *ids)]
