"""What must hold of a story: while it is told, a minute after its last fault, and once all deadlines are over."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from django.db import connection

from arrays.models import Array, ArrayTask
from deployments.models import Deployment
from hostworker.containers import parking, runner
from hostworker.runtime_protocol import ContainerPhase
from imports.models import Import
from resources.models import Host, HostStatus
from sessions.clusters import settling
from sessions.lifecycle import FINAL, HOSTED, UNPLACED, Kind, Reason, Status
from sessions.models import Cluster, Lease, Session
from tests.invariants import broken_invariants
from tests.virtual.clock import NO_TIME, START
from tests.virtual.machines import VirtualHost
from tests.virtual.operations import Teller
from tests.virtual.story import Story
from tests.virtual.words import Words
from tests.virtual.world import (
    GROUP_LIFETIME,
    HOUR,
    LOSS_GRACE,
    MAX_LIFETIME,
    ROUND,
    WAIT_LIMIT,
    World,
)

MAX_ROUNDS: Final = 40
ROUNDS: Final = 6  # of ten seconds: a minute in which the platform settles
SLACK: Final = timedelta(seconds=30)  # by which a deadline is enforced late, and clocks are compared
START_ALLOWANCE: Final = timedelta(minutes=5)  # of the resource groups, by default
SETTLED: Final = frozenset({Status.PENDING, Status.RUNNING, Status.PARKED, *FINAL})
BY_PEOPLE: Final = {
    Reason.USER_REQUEST: "end",
    Reason.ADMIN_REQUEST: "end",
    Reason.CONTAINER_EXITED: "exit",
    Reason.OUT_OF_MEMORY: "exit",
    Reason.REQUEUED: "requeue",
}
ENDS: Final = frozenset({*FINAL, Status.TERMINATING})


@dataclass
class Verdict:
    """What was found wrong, in words, by kind."""

    violations: list[str] = field(default_factory=list)
    wrong_words: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    leaked_leases: list[str] = field(default_factory=list)
    sessions: int = 0

    @property
    def problems(self) -> list[str]:
        """All of them."""
        return [*self.violations, *self.wrong_words, *self.lost, *self.orphans, *self.leaked_leases]


class Judge:
    """Watches a story in a world."""

    def __init__(self, world: World) -> None:
        """Begin with the world as it was reset."""
        self.world = world
        self.teller = Teller(world)
        self.verdict = Verdict()
        self._words = Words(self.teller)
        self._last_event = 0
        self._since: dict[str, tuple[str, datetime]] = {}  # status of each session, and when it truly entered it
        self._started: dict[str, datetime] = {}  # when a session truly began to run or to be placed
        self._faulty = False

    def judge(self, story: Story) -> Verdict:
        """Tell the story, leave the platform alone, and return what is wrong."""
        for number, operation in enumerate(story.operations):
            self.world.steps_told = number
            self.teller.tell(operation)
            self._look()
        self._invariants("at the end of the story")
        self._calm_down()
        self._settle()
        self._after_a_minute()
        self._after_the_silence()
        self.teller.workloads.end_all()
        self._wait_for_deadlines()
        self.verdict.violations += self.world.errors
        self.verdict.sessions = len(self.teller.submitted)
        return self.verdict

    def _calm_down(self) -> None:
        """End all faults that go on by themselves; clocks stay as they are."""
        for host in self.world.hosts:
            host.runtime.is_down = False
            if host.silent_since:
                self.world.bring_back(host)

    def _settle(self) -> None:
        has_settled = False
        for _ in range(MAX_ROUNDS if self._has_workloads() else ROUNDS):
            had_settled = has_settled
            self.world.round()
            self._look()
            has_settled = self._has_settled()
            if has_settled and had_settled:  # who waits has been told so after the last host was ready
                break

    @staticmethod
    def _has_workloads() -> bool:
        """Return whether there is what takes a step after the other: a rollout, an array, an import."""
        return Deployment.objects.live().exists() or Array.objects.live().exists() or Import.objects.live().exists()

    def _has_settled(self) -> bool:
        here = [host for host in self.world.hosts if not host.is_gone]
        return not (
            Session.objects.exclude(status__in=SETTLED).exists()
            or settling.unsettled().exists()
            or Host.objects.filter(pk__in=[host.row.pk for host in here]).exclude(status=HostStatus.READY).exists()
            or any(host.queue or host.pulls for host in self.world.hosts)
        )

    def _after_a_minute(self) -> None:
        self._invariants("a minute later")
        self.world.carry_on()  # deployments say what their replicas wait for, which the last pass may have found
        self.verdict.wrong_words += self._words.wrong(is_quiet=True)
        rows = {row.pk: row for row in Session.objects.all()}
        if missing := set(self.teller.submitted) - set(rows):
            self.verdict.lost.append(f"sessions are gone: {sorted(missing)}")
        seen: set[str] = set()
        for host in self.world.hosts:
            for (pk, attempt), phase in () if host.is_gone else host.runtime.states().items():
                row = rows.get(pk)
                if row is None or (row.host_id, row.attempt, row.status in HOSTED) != (host.row.pk, attempt, True):
                    self.verdict.orphans.append(f"{phase} container of {pk}, {row and row.status} on {host.name}")
                elif phase is ContainerPhase.RUNNING:
                    seen.add(pk)
                    self._check_spec(row, host)
        here = [row for row in rows.values() if row.host_id not in self._gone]
        for row in here:
            self._check_settled(row, is_seen=row.pk in seen)
        self._check_clusters(here)

    def _after_the_silence(self) -> None:
        """Check clusters once more after hosts that are gone were lost; until then their sessions stay as they are."""
        if self._gone:
            self.world.round(LOSS_GRACE)
            self._settle()
            self._check_clusters(Session.objects.all())

    @property
    def _gone(self) -> set[int]:
        """The ids of the hosts that have gone for ever."""
        return {host.row.pk for host in self.world.hosts if host.is_gone}

    def _check_clusters(self, rows: Iterable[Session]) -> None:
        """Check that each cluster waits, runs, is parked or has ended as a whole; elastic ones do not go on alone."""
        clusters: dict[str, list[Session]] = {}
        for row in rows:
            if row.cluster_id:
                clusters.setdefault(row.cluster_id, []).append(row)
        for cluster_id, all_members in clusters.items():
            members = [member for member in all_members if not member.is_elastic]
            alone = [member for member in all_members if member.is_elastic and member.status not in FINAL]
            unplaced = [sum(member.status == status for member in members) for status in UNPLACED]
            left = [member for member in members if not member.has_succeeded or member.kind != Kind.BATCH]
            ended = [member for member in left if member.status in FINAL]
            if any(count not in (0, len(members)) for count in unplaced) or len(ended) not in (0, len(left)):
                states = sorted((member.rank, member.status, member.reason) for member in members)
                self.verdict.violations.append(f"cluster {cluster_id} is no whole: {states}")
            if any(unplaced) and any(member.status not in UNPLACED for member in alone):
                self.verdict.violations.append(f"elastic members of cluster {cluster_id} run while the others wait")
            if ended and alone:
                self.verdict.violations.append(
                    f"elastic members of cluster {cluster_id} have not ended with the others"
                )

    def _check_spec(self, row: Session, host: VirtualHost) -> None:
        spec = host.runtime.spec(row.pk, row.attempt)
        if spec and not row.resize:
            has = spec.cpu, spec.memory_bytes, sum(gpu.share_milli for gpu in spec.gpus)
            holds = row.cpu, row.memory, row.fgpu
            if any(mine > held for mine, held in zip(has, holds, strict=True)):
                self.verdict.violations.append(f"the container of {row.pk} has {has}, the session holds {holds}")

    def _check_settled(self, row: Session, *, is_seen: bool) -> None:
        if row.status == Status.RUNNING and not is_seen:
            self.verdict.violations.append(f"{row.pk} is RUNNING without a container")
        if row.status not in SETTLED:
            self.verdict.violations.append(f"{row.pk} is still {row.status} after a minute")
        if row.status == Status.RUNNING:
            if row.resize:
                self.verdict.violations.append(f"{row.pk} is still being resized after a minute")
            elapsed = self.world.clock.now - self._started_of(row)
            if elapsed > self._limit(row) + row.extension + SLACK:
                self.verdict.violations.append(f"{row.pk} runs {elapsed}, past its limit of {self._limit(row)}")

    def _started_of(self, row: Session) -> datetime:
        """Return from when its limits count: of a cluster's members, when the last began that is not elastic."""
        members = row.members.filter(is_elastic=False)
        return max(self._started.get(pk, START) for pk in members.values_list("pk", flat=True))

    def _wait_for_deadlines(self) -> None:
        """Let more time pass than anything may take: then all has ended, and nothing is left."""
        tasks = 2 * ArrayTask.objects.count()  # each of which may be tried again
        longest_chain = 1 + len(self.teller.submitted) + tasks  # each of which waits for the end of the one before
        for by in (WAIT_LIMIT + HOUR, ROUND, ROUND) * longest_chain:
            if not (Session.objects.exclude(status__in=FINAL).exists() or self._has_workloads()):
                break
            self.teller.workloads.cancel_held()
            self.world.round(by)
            self._look()
        self.world.work()
        self.world.carry_on()
        for host in self.world.hosts:
            if host.is_gone:
                continue
            if host.runtime.saved_keys():
                self.world.act_on_host(host, parking.clear_saved, host.runtime, host.row, fault=None)
            if left := [*host.runtime.states(), *host.runtime.saved_keys()]:
                self.verdict.orphans.append(f"{host.name} still has {left} in the end")
        self._invariants("in the end")
        self.verdict.wrong_words += self._words.wrong(is_quiet=False)
        for left in (*Deployment.objects.live(), *Array.objects.live(), *Import.objects.live()):
            self.verdict.violations.append(f"{left!r} is {left.state} for ever")
        if leases := list(Lease.objects.values_list("session_id", flat=True)):
            self.verdict.leaked_leases.append(f"leases are left: {leases}")
        for row in Session.objects.exclude(status__in=FINAL):
            self.verdict.violations.append(f"{row.pk} is {row.status} for ever ({row.reason})")
        self.world.sweep()
        for cluster in Cluster.objects.all():
            if (cluster.ended_at, cluster.network, cluster.private_key) != (cluster.ended_at or NO_TIME, None, ""):
                self.verdict.violations.append(f"cluster {cluster.pk} has left its network or its key")
        if runner._preparing:
            self.verdict.violations.append(f"still preparing {runner._preparing}")
            runner._preparing.clear()

    def _invariants(self, when: str) -> None:
        self.verdict.violations += [f"{when}: {text}" for text in broken_invariants()]

    def _look(self) -> None:
        """Check that whatever has happened to sessions since the last look has a reason in the story."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT id, session_id, old_status, new_status, reason FROM compute_sessionevent"
                " WHERE id > %s AND old_status <> new_status ORDER BY id",
                [self._last_event],
            )
            events = cursor.fetchall()
        for number, pk, old, new, reason in events:
            self._last_event = number
            is_end = new in ENDS or (new == Status.PENDING and old)
            if is_end and (problem := self._unexplained(pk, Status(old), Reason(reason))):
                self.verdict.lost.append(f"{pk}: {old} -> {new} ({reason}): {problem}")
            self._since[pk] = new, self.world.clock.now
            if new == Status.SCHEDULED:  # its limits count from then at the latest
                self._started[pk] = self.world.clock.now + START_ALLOWANCE
            if new == Status.RUNNING:
                self._started[pk] = min(self._started[pk], self.world.clock.now)
        self._killed()

    def _killed(self) -> None:
        for host in self.world.hosts:
            for pk, attempt in host.runtime.killed:
                row = Session.objects.filter(pk=pk, attempt=attempt, host=host.row).first()
                if row and row.status == Status.RUNNING:
                    self.verdict.lost.append(f"the container of {pk} was ended while it is RUNNING")
            host.runtime.killed.clear()

    def _unexplained(self, pk: str, old: Status, reason: Reason) -> str:
        """Return why this end, or return to the queue, has no cause; "" if it has one."""
        if old == Status.TERMINATING:  # its cause was looked at when it was stopped
            return ""
        if reason in BY_PEOPLE:
            return "" if self._was_asked(pk, BY_PEOPLE[reason]) else "nobody asked for it"
        if reason == Reason.CONTAINER_LOST:
            return "" if (pk, "lose") in self.teller.asked else "nobody removed its container"
        row = Session.objects.select_related("owner__policy", "host").get(pk=pk)
        in_state = self.world.clock.now - self._since[pk][1]
        began = self._started_of(row) if row.is_elastic else self._started.get(pk, self.world.clock.now)
        ran = self.world.clock.now - began
        least = {
            Reason.LIFETIME: self._limit(row) - SLACK,
            Reason.TIME_LIMIT: self._limit(row) - SLACK,
            Reason.START_TIMEOUT: timedelta(minutes=31) - SLACK,
        }
        if reason in (Reason.LIFETIME, Reason.TIME_LIMIT):
            return "" if ran >= least[reason] + row.extension else f"it had run {ran}"
        return self._unexplained_by_platform(row, old, reason, in_state)

    def _was_asked(self, pk: str, what: str) -> bool:
        """Return whether this was asked for of a session, or of the array of which it runs a task."""
        row = Session.objects.get(pk=pk)
        names = {pk, row.name.rpartition("-")[0]} if row.is_task else {pk}
        return any((name, what) in self.teller.asked for name in names)

    def _unexplained_by_platform(self, row: Session, old: Status, reason: Reason, in_state: timedelta) -> str:
        silence = max(self._silence(host.longest_silence, host.silent_since) for host in self.world.hosts)
        is_explained = {
            Reason.HOST_LOST: silence >= LOSS_GRACE,
            Reason.CLAIM_TIMEOUT: in_state >= timedelta(seconds=30) - SLACK / 30 or silence >= timedelta(seconds=20),
            Reason.PENDING_TIMEOUT: in_state >= WAIT_LIMIT - SLACK,
            Reason.PARK_TIMEOUT: in_state >= WAIT_LIMIT - SLACK,
            Reason.PREEMPTED: row.is_preemptible,
            Reason.DEPLOYMENT: row.kind == Kind.REPLICA,
            Reason.DEPENDENCY_FAILED: row.depends_on.exists(),
            Reason.CLUSTER_ENDED: row.members.exclude(pk=row.pk).filter(status__in=ENDS).exists(),
            Reason.CLUSTER_RETURNED: row.members.exclude(pk=row.pk).filter(attempt__gt=0).exists(),
        }.get(reason, True)
        return "" if is_explained else f"after {in_state} {old}, hosts silent for {silence} at most"

    def _silence(self, longest: timedelta, since: datetime | None) -> timedelta:
        return max(longest, self.world.clock.now - since if since else NO_TIME)

    def _limit(self, row: Session) -> timedelta:
        limits = [GROUP_LIFETIME]
        if row.owner_id == self.world.users[0].pk:
            limits.append(MAX_LIFETIME)
        if row.time_limit is not None:
            limits.append(row.time_limit)
        return min(limits)
