"""What can happen in a story, each by the product's own functions."""

from collections import defaultdict
from datetime import timedelta
from typing import Any, Final

from django.db import transaction

from hostworker.containers import runner
from hostworker.runtime_protocol import ContainerPhase
from resources.amounts.units import GIB, MIB
from resources.gpus.discovery import Device
from resources.hosts import services as hosts
from resources.kick import kick_scheduler
from resources.models import GpuWeight, Host
from sessions.drains import services as drains
from sessions.extensions import services as extensions
from sessions.launching import services
from sessions.launching.requests import ClusterRequest
from sessions.lifecycle import DependencyKind, Status
from sessions.models import ClusterMode, Session
from sessions.parking import services as parking
from sessions.requeueing import requests as requeue
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize
from tests.virtual.clock import NO_TIME, START
from tests.virtual.faults import Fault
from tests.virtual.machines import VirtualHost
from tests.virtual.story import Operation
from tests.virtual.workloads import Workloads
from tests.virtual.world import HOUR, MINUTE, TIME_LIMIT, World

SPANS: Final = (
    *(timedelta(seconds=seconds) for seconds in (1, 4, 8, 15, 25, 35, 70, 130)),
    *(4 * MINUTE, 6 * MINUTE, 11 * MINUTE, 32 * MINUTE, 75 * MINUTE),
)
SKEWS: Final = (3 * MINUTE, -3 * MINUTE, HOUR, -HOUR, 3 * HOUR, -3 * HOUR, NO_TIME, -30 * HOUR, 30 * HOUR)
MEANWHILE: Final = ("terminate", "force_end", "park", "sweep", "resize", "requeue", "pass_time", "run_pass")


class Teller:
    """Tells a story to a world, and notes what must not surprise in the end."""

    def __init__(self, world: World) -> None:
        """Begin with the world as it was reset."""
        self.world = world
        self.submitted: list[str] = []
        self.asked: set[tuple[str, str]] = set()  # (session, what was asked for)
        self.askers: defaultdict[str, set[str]] = defaultdict(set)  # of the end of a session, or of an array
        self.exits: defaultdict[str, set[int | None]] = defaultdict(set)  # exit codes; None: out of memory
        self.workloads = Workloads(self)

    def tell(self, operation: Operation) -> None:
        """Have it happen."""
        act = Operation(MEANWHILE[operation.amount % len(MEANWHILE)], operation.which, operation.amount // 8)
        self.world.steps.meanwhile = lambda: self._happen(act)
        self._happen(operation)

    def _happen(self, operation: Operation) -> None:
        of = self if hasattr(self, operation.name) else self.workloads
        getattr(of, operation.name)(operation.which, operation.amount, operation.fault)

    # How it goes on

    def submit(self, which: int, amount: int, fault: Fault | None) -> None:
        cluster = self._cluster(which, amount)
        gpu_memory = (0, 0, 0, 3 * GIB, 8 * GIB)[amount % 5] if cluster is None else 0
        order = services.LaunchRequest(
            image=self.world.image,
            resource_group=self.world.groups[which // 7 % len(self.world.groups)],
            other_groups=self.world.groups[1:] if which % 5 == 0 else (),
            cpu=1 + amount % 3,
            memory=(1 + which % 3) * GIB,
            shared_memory=64 * MIB,
            fgpu=0 if gpu_memory else (0, 500, 1000, 2000, 1500, 500)[amount // 3 % 6],
            gpu_memory=gpu_memory,
            name=f"session-{len(self.submitted)}-{self.world.steps_told}",
            count=1 + (amount % 4 == 0 and cluster is None),
            command="true" if which % 3 == 0 else "",
            time_limit=TIME_LIMIT if which % 3 == 0 else None,
            is_preemptible=amount // 2 % 3 == 0 and cluster is None,
            priority=10 + 10 * (amount // 5 % 2),
            depends_on=self._dependencies(list(DependencyKind)[which // 11 % 4]) if which % 11 == 0 else {},
            cluster=cluster,
        )
        self.of_web(self._submit, self.world.users[which % 2], order, fault=fault)

    def _submit(self, owner: Any, order: services.LaunchRequest) -> None:
        for session in services.submit(owner, order):
            self.submitted += session.members.values_list("pk", flat=True)

    def _cluster(self, which: int, amount: int) -> ClusterRequest | None:
        """Return what a cluster is to be; about every third session is one."""
        if which // 3 % 3 < 2:
            return None
        modes = (ClusterMode.ANY, ClusterMode.SINGLE_HOST, ClusterMode.SPREAD)
        size = 2 + amount % 2
        return ClusterRequest(
            size=size,
            max_size=size + amount % 7 % 3 or None,
            mode=modes[amount // 2 % 3],
            shares_gpus=amount % 5 < 2,
            runs_on_all=which % 6 == 0,  # a batch session
            max_restarts=amount // 3 % 3,
        )

    def _dependencies(self, kind: DependencyKind) -> dict[Session, DependencyKind]:
        last = Session.objects.filter(pk__in=self.submitted[-1:])
        return {session.main: kind for session in last}

    def ask(self, session: Session, what: str, actor: Any) -> None:
        """Note what is asked for, of all members of a cluster, and by whom."""
        for pk in session.members.values_list("pk", flat=True):
            self.asked.add((pk, what))
            self.askers[pk].add(str(actor))

    def run_pass(self, which: int, amount: int, fault: Fault | None) -> None:
        self.world.run_pass(which, fault)

    def deliver(self, which: int, amount: int, fault: Fault | None) -> None:
        for host in self.world.hosts:
            self.world.deliver(host, which, fault)

    def pull(self, which: int, amount: int, fault: Fault | None) -> None:
        self.world.pull(self._host(which), fault)

    def go_on(self, which: int, amount: int, fault: Fault | None) -> None:
        """Let a host do all that it has to; the first thing with the fault."""
        host = self._host(which)
        self.world.deliver(host, amount, fault)
        self.world.work_off(host)

    def reconcile(self, which: int, amount: int, fault: Fault | None) -> None:
        self.world.reconcile(self._host(which), fault)

    def sweep(self, which: int, amount: int, fault: Fault | None) -> None:
        self.world.sweep(which, fault)

    def pass_time(self, which: int, amount: int, fault: Fault | None) -> None:
        self.world.advance(SPANS[which % len(SPANS)])
        if amount % 2:
            self.world.sweep()

    # What people do

    def terminate(self, which: int, amount: int, fault: Fault | None) -> None:
        if session := self._session(which):
            actor = self._person(session, amount)
            self.ask(session, "end", actor)
            self.of_web(services.terminate, session, fault=fault, actor=actor)

    def force_end(self, which: int, amount: int, fault: Fault | None) -> None:
        if session := self._session(which):
            self.ask(session, "end", self.world.admin)
            self.of_web(services.force_end, session, fault=fault, actor=self.world.admin)

    def extend(self, which: int, amount: int, fault: Fault | None) -> None:
        if session := self._session(which, Status.RUNNING):
            self.of_web(extensions.extend, session.pk, 10 * MINUTE, fault=fault, actor=self._person(session, amount))

    def resize(self, which: int, amount: int, fault: Fault | None) -> None:
        if session := self._session(which, Status.RUNNING):
            size = SessionSize(
                cpu=1 + amount % 4, memory=(1 + which % 4) * GIB, fgpu=session.fgpu and 250 + amount % 6 * 250
            )
            self.of_web(resizing.resize, session, size, fault=fault, actor=self.world.admin)

    def park(self, which: int, amount: int, fault: Fault | None) -> None:
        if session := self._session(which, Status.RUNNING):
            self.ask(session, "park", session.owner)
            self.of_web(parking.park, session, fault=fault, actor=session.owner)

    def resume(self, which: int, amount: int, fault: Fault | None) -> None:
        if session := self._session(which, Status.PARKED):
            self.of_web(parking.resume, session, fault=fault, actor=session.owner)

    def requeue(self, which: int, amount: int, fault: Fault | None) -> None:
        if session := self._session(which):
            self.ask(session, "requeue", self.world.admin)
            self.of_web(requeue.requeue, session, fault=fault, actor=self.world.admin)

    def cordon(self, which: int, amount: int, fault: Fault | None) -> None:
        rows = Host.objects.filter(pk=self._host(which).row.pk)
        self.of_web(hosts.cordon, rows, fault=fault, cordoned=amount % 3 == 0)

    def drain(self, which: int, amount: int, fault: Fault | None) -> None:
        host = Host.objects.get(pk=self._host(which).row.pk)
        end = None if amount % 3 == 0 else self.world.clock.now + amount % 20 * MINUTE
        self.asked.add((host.name, "drain"))
        self.of_web(drains.drain, host, fault=fault, end_at=end, reason="", actor=self.world.admin)

    def pull_gpu(self, which: int, amount: int, fault: Fault | None) -> None:
        """Have an accelerator vanish, or come back: by what a host's worker calls when it finds that."""
        host = self._host(which)
        self.world.act_on_host(host, self._find_gpu, host, amount % 2 == 1, fault=fault)

    def _find_gpu(self, host: VirtualHost, is_there: bool) -> None:
        gpu = host.row.gpus.order_by("index")[0]
        if is_there:
            device = Device(uuid=gpu.uuid, index=gpu.index, name=gpu.name, memory=gpu.memory, is_simulated=True)
            hosts.lend_again(host.row, [device])
        else:
            hosts.withdraw_gpus(host.row, {gpu.uuid: "It fell off the bus."})

    def weigh(self, which: int, amount: int, fault: Fault | None) -> None:
        """Have the GPUs of a model weigh otherwise in fair share from now on."""
        self.of_web(self._weigh, 1 + amount % 4, fault=fault)

    def _weigh(self, weight: int) -> None:
        with transaction.atomic():
            GpuWeight.objects.update_or_create(model="Simulated GPU", defaults={"weight": weight})
            kick_scheduler()

    # What happens to messages, containers, hosts and clocks

    def lose_message(self, which: int, amount: int, fault: Fault | None) -> None:
        if queue := self._host(which).queue:
            queue.pop(amount % len(queue))

    def delay_message(self, which: int, amount: int, fault: Fault | None) -> None:
        """Have a message come after all others."""
        if queue := self._host(which).queue:
            queue.append(queue.pop(amount % len(queue)))

    def flush_redis(self, which: int, amount: int, fault: Fault | None) -> None:
        """Lose all that Redis has: every message on its way to a host, and that a pass was requested."""
        self.world.kicked_until = START
        for host in self.world.hosts:
            host.queue.clear()

    def repeat_message(self, which: int, amount: int, fault: Fault | None) -> None:
        self.world.deliver(self._host(which), amount, fault, stays=True)

    def end_container(self, which: int, amount: int, fault: Fault | None) -> None:
        """Let a container end; most times the worker hears of it."""
        host = self._host(which)
        running = [key for key, phase in host.runtime.states().items() if phase is ContainerPhase.RUNNING]
        if running:
            key = running[amount % len(running)]
            self.note_end(key[0], None if amount % 3 == 0 else amount % 2)
            host.runtime.end(*key, exit_code=amount % 2, out_of_memory=amount % 3 == 0)
            if amount % 4:
                self.world.act_on_host(host, self._note_exit, host, key, fault=fault)

    def _note_exit(self, host: VirtualHost, key: tuple[str, int]) -> None:
        for state in host.runtime.containers():
            if (state.session, state.attempt) == key:
                runner.note_exit(host.runtime, state)

    def lose_container(self, which: int, amount: int, fault: Fault | None) -> None:
        host = self._host(which)
        if keys := list(host.runtime.states()):
            key = keys[amount % len(keys)]
            self.asked.add((key[0], "lose"))
            host.runtime.lose_container(*key)

    def need_image(self, which: int, amount: int, fault: Fault | None) -> None:
        """Take the image from a host, which gets it again unless the registry has lost it too."""
        can_pull = amount % 4 != 0
        if not can_pull:
            self.asked.add(("", "no image"))
        self._host(which).runtime.remove_image(self.world.image.reference, can_pull=can_pull)

    def cut_off(self, which: int, amount: int, fault: Fault | None) -> None:
        self.world.cut_off(self._host(which))

    def lose_host(self, which: int, amount: int, fault: Fault | None) -> None:
        """Have a host leave for ever, with its containers and what its worker has under way."""
        self._host(which).is_gone = True
        self.world.cut_off(self._host(which))
        self.world.kill_worker(self._host(which))

    def return_host(self, which: int, amount: int, fault: Fault | None) -> None:
        self.world.bring_back(self._host(which))

    def lose_power(self, which: int, amount: int, fault: Fault | None) -> None:
        self._note_exits(self._host(which))
        self.world.lose_power(self._host(which))

    def kill_worker(self, which: int, amount: int, fault: Fault | None) -> None:
        self.world.kill_worker(self._host(which))

    def stop_engine(self, which: int, amount: int, fault: Fault | None) -> None:
        """Have an engine away; every other time its containers end by that."""
        host = self._host(which)
        host.runtime.is_down = True
        if amount % 2:
            self._note_exits(host)
            self.world.stop_containers(host)

    def start_engine(self, which: int, amount: int, fault: Fault | None) -> None:
        self._host(which).runtime.is_down = False

    def restart_scheduler(self, which: int, amount: int, fault: Fault | None) -> None:
        self.world.schedulers[which % 2].restart()

    def set_clock(self, which: int, amount: int, fault: Fault | None) -> None:
        processes = [*self.world.hosts, *self.world.schedulers, self.world.web]
        processes[which % len(processes)].skew = SKEWS[amount % len(SKEWS)]

    def of_web(self, do: Any, *arguments: Any, fault: Fault | None, **named: Any) -> None:
        """Have the web process do this for a request."""

        def request() -> None:
            do(*arguments, **named)

        request.__name__ = do.__name__
        self.world.act(self.world.web, request, fault=fault)

    def note_end(self, pk: str, exit_code: int | None) -> None:
        """Note that a container of this session ends by itself; None: for want of memory."""
        self.asked.add((pk, "exit"))
        self.exits[pk].add(exit_code)

    def _note_exits(self, host: VirtualHost) -> None:
        for pk, _ in host.runtime.states():
            self.note_end(pk, 137)

    def _host(self, which: int) -> VirtualHost:
        return self.world.hosts[which % len(self.world.hosts)]

    def _session(self, which: int, status: Status | None = None) -> Session | None:
        """Return one of the sessions, ended ones included; one of this status if there is any."""
        if not self.submitted:
            return None
        related = ("owner__policy", "host", "parked_on", "image", "resource_group")
        sessions = Session.objects.select_related(*related)
        if status and (found := list(sessions.filter(status=status).order_by("pk"))):
            return found[which % len(found)]
        return sessions.get(pk=self.submitted[which % len(self.submitted)])

    def _person(self, session: Session, amount: int) -> Any:
        return self.world.admin if amount % 3 == 0 else session.owner
