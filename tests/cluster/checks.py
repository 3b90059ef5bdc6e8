"""What has to hold of a cluster once it is quiet, and when it is."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from django.db import InterfaceError, OperationalError, connection
from django.db.models import QuerySet
from django.utils import timezone

from resources.models import Host as HostRow
from resources.models import HostStatus
from sessions.lifecycle import FINAL, HOSTED, Reason, Status
from sessions.models import Lease, Session
from sessions.requeueing.host_faults import MAX_RETRIES
from sessions.templatetags.session_words import reason_words
from tests.cluster import gangs, workloads
from tests.cluster.people import Promises
from tests.cluster.site import Host, Site
from tests.invariants import broken_invariants
from tests.told import problem_of

POLL_S: Final = 0.5
QUIET_S: Final = 150.0  # within which everything has settled after the last fault: the grace of hosts, and its sweeps
ORPHAN_S: Final = 60.0
LATE_S: Final = 25.0  # of the end of a session at its time limit: sweeps are five seconds apart, stops take as long
SLACK_S: Final = 90.0  # after a fault has ended, for its consequences to be recorded

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Excuse:
    """Why sessions of a host could not live on: a fault that nobody survives, and when."""

    host: str
    reasons: frozenset[Reason]
    begun: float  # Unix time
    ended: float


@dataclass
class Verdict:
    """What is wrong, in words."""

    violations: list[str] = field(default_factory=list)
    wrong_words: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    leaked_leases: list[str] = field(default_factory=list)


def asked(question: Callable[[], Answer]) -> Answer:
    """Return the answer of the database, asked again where its connection was cut."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return question()
        except (OperationalError, InterfaceError):
            connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


class Inspector:
    """Looks at a cluster's database and engines."""

    def __init__(self, site: Site, promises: Promises) -> None:
        self._site = site
        self._promises = promises
        self.excuses: list[Excuse] = []
        self._judged: set[str] = set()
        self._containers: dict[tuple[str, int], str] = {}  # of sessions that run, as seen before

    def wait_until_quiet(self) -> list[str]:
        """Return what is still under way when it should not be; empty once everything has settled."""
        deadline = time.monotonic() + QUIET_S
        while unrest := asked(self.unrest):
            if time.monotonic() > deadline:
                return unrest
            time.sleep(POLL_S)
        return []

    def unrest(self) -> list[str]:
        """Return what is under way, in words: hosts that are not ready, sessions between states, stray containers."""
        hosts = HostRow.objects.exclude(status=HostStatus.READY, is_cordoned=False).values_list("name", "status")
        found = [f"host {name} is {status}" for name, status in hosts]
        between = Session.objects.exclude(status__in=[*FINAL, Status.RUNNING, Status.PARKED])
        found += [f"session {pk} is {status}: {detail}" for pk, status, detail in _rows(between)]
        resizing = Session.objects.filter(status=Status.RUNNING, resize__isnull=False)
        found += [f"session {pk} is being resized" for pk in resizing.values_list("pk", flat=True)]
        found += [*gangs.unsettled(), *workloads.unsettled()]
        if found:
            return found
        for host in self._site.hosts:
            found += self._differences(host) or gangs.differences(host)
        return found

    def judge(self) -> Verdict:
        """Return what is wrong with a cluster that is quiet, or should be."""
        verdict = Verdict()
        verdict.violations += asked(broken_invariants)
        verdict.leaked_leases += [
            f"session {pk} has ended and holds a lease" for pk in asked(_ids_of_ended_lease_holders)
        ]
        verdict.violations += asked(self._overdue)
        verdict.wrong_words += asked(self._told_wrongly) + asked(workloads.wrong_ends)
        verdict.lost += asked(self._missing) + asked(self._wrongly_ended)
        verdict.violations += asked(self._restarted)
        return verdict

    def orphans(self) -> list[str]:
        """Return the containers of no live session, once those that are found first have had their minute."""
        deadline = time.monotonic() + ORPHAN_S
        while found := [text for host in self._site.hosts for text in asked(partial(self._strays, host))]:
            if time.monotonic() > deadline:
                return found
            time.sleep(POLL_S)
        return []

    def _differences(self, host: Host) -> list[str]:
        """Return where the engine differs from the rows."""
        try:
            containers = host.engine.containers()
        except OSError as error:
            return [f"the engine of {host.name} does not respond: {error}"]
        rows = set(_running(host.name))
        alive = {key for key, (_, state) in containers.items() if state == "running"}
        texts = [f"session {pk} has no container on {host.name}" for pk, _ in rows - alive]
        return texts + [f"a container of {key} on {host.name}" for key in set(containers) - rows - self._kept(host)]

    def _kept(self, host: Host) -> set[tuple[str, int]]:
        """Return the attempts that are parked on the host; their containers may not be saved yet."""
        parked = Session.objects.filter(parked_on__name=host.name, ended_at=None)
        return set(parked.values_list("pk", "parked_attempt"))

    def _strays(self, host: Host) -> list[str]:
        try:
            containers = set(host.engine.containers())
        except OSError as error:
            return [f"the engine of {host.name} does not respond: {error}"]
        live = Session.objects.filter(host__name=host.name, status__in=HOSTED).values_list("pk", "attempt")
        return [f"a container of {key} on {host.name}" for key in containers - set(live) - self._kept(host)]

    def _missing(self) -> list[str]:
        """Return the sessions that were accepted and are not there."""
        known = set(Session.objects.values_list("pk", flat=True))
        return [f"session {pk} was accepted and is gone" for pk in self._promises.accepted if pk not in known]

    def _overdue(self) -> list[str]:
        """Return the sessions that run past a limit that they were started with."""
        running = Session.objects.filter(status=Status.RUNNING, time_limit__isnull=False).exclude(started_at=None)
        now = timezone.now()
        late = {each.pk: (now - each.started_at - each.time_limit).total_seconds() for each in running}  # type: ignore[operator]
        return [f"session {pk} runs {by:.0f} s past its time limit" for pk, by in late.items() if by > LATE_S]

    def _told_wrongly(self) -> list[str]:
        """Return the sessions whose owner is told what does not go with their state; ended ones once."""
        rows = Session.objects.exclude(pk__in=self._judged).select_related("resource_group")
        told = [(row, reason_words(row)) for row in rows]
        return [
            f"session {row.pk} is {row.status} ({row.reason}), told {text!r}: {problem}"
            for row, text in told
            if (problem := problem_of(row, text))
        ]

    def _wrongly_ended(self) -> list[str]:
        """Return the sessions whose end nobody asked for, and no fault explains; each once."""
        texts = []
        for session in Session.objects.filter(status__in=FINAL).exclude(pk__in=self._judged).select_related("host"):
            self._judged.add(session.pk)
            if not self._is_explained(session):
                text = f"session {session.pk} ended as {session.status}, {session.reason}: {session.detail}"
                texts.append(f"{text} (host {session.host}, {session.ended_at}, {session.log_tail[-200:]!r})")
        return texts

    def _is_explained(self, session: Session) -> bool:
        reason, ended_at = Reason(session.reason), session.ended_at.timestamp() if session.ended_at else 0.0
        main = session.cluster_id or session.pk
        if reason == Reason.USER_REQUEST:
            return main in self._promises.ended
        if reason == Reason.TIME_LIMIT:
            return main in self._promises.limits
        if reason == Reason.DEPLOYMENT:  # which has other replicas now, or none
            return True
        if reason == Reason.CLUSTER_ENDED:  # by the end of another, which is looked at as well
            return session.members.filter(status__in=FINAL).exclude(reason=Reason.CLUSTER_ENDED).exists()
        if reason == Reason.CONTAINER_EXITED and session.command and session.exit_code == 0:
            return True
        if session.start_failures > MAX_RETRIES:  # each by a host's own fault, of which a round has many
            return True
        host = session.host.name if session.host else ""
        return any(
            excuse.host in (host, session.pk)
            and reason in excuse.reasons
            and excuse.begun - 1 <= ended_at <= excuse.ended + SLACK_S
            for excuse in list(self.excuses)
        )

    def _restarted(self) -> list[str]:
        """Return the sessions that run in another container than before, although nothing ended them."""
        now = {
            (pk, attempt): container
            for pk, attempt, container in Session.objects.filter(status=Status.RUNNING).values_list(
                "pk", "attempt", "container_id"
            )
        }
        texts = [
            f"session {key} runs in another container"
            for key, container in now.items()
            if self._containers.get(key, container) != container
        ]
        self._containers = now
        return texts


def _rows(sessions: "QuerySet[Session]") -> list[tuple[str, str, str]]:
    return list(sessions.values_list("pk", "status", "detail"))


def _running(host_name: str) -> list[tuple[str, int]]:
    running = Session.objects.filter(host__name=host_name, status=Status.RUNNING)
    return list(running.values_list("pk", "attempt"))


def _ids_of_ended_lease_holders() -> list[str]:
    holders = Session.objects.filter(pk__in=Lease.objects.values("session"), status__in=FINAL)
    return list(holders.values_list("pk", flat=True))
