"""What users are told of sessions, deployments, arrays and imports, held against what a story did."""

import re
from typing import TYPE_CHECKING

from arrays.models import ENDED, Array, ArrayState, TaskState
from deployments.models import Deployment, DeploymentState
from deployments.replicas import reconciliation
from imports.models import Import, ImportState
from resources.models import Host, HostStatus
from sessions.lifecycle import FINAL, HOSTED, DependencyState, Reason, Status
from sessions.models import Session
from sessions.templatetags.session_words import reason_words
from tests.told import LIVELY, end_said, problem_of
from tests.virtual.clock import NO_TIME
from tests.virtual.world import LOSS_GRACE

if TYPE_CHECKING:
    from tests.virtual.operations import Teller


class Words:
    """Compares the words for users with what has happened."""

    def __init__(self, teller: "Teller") -> None:
        """Begin with a story of which nothing was told."""
        self._teller, self._world = teller, teller.world

    def wrong(self, *, is_quiet: bool) -> list[str]:
        """Return what is not so, in words. `is_quiet`: all has settled, so that why one waits must be so now."""
        related = ("host", "owner", "resource_group", "cluster")
        found = []
        for row in Session.objects.select_related(*related).order_by("pk"):
            text = reason_words(row)
            problem = (
                problem_of(row, text)
                or (self._of_end(row, text) if row.status in FINAL else "")
                or (self._of_wait(row) if is_quiet else "")
            )
            if problem:
                found.append(f"{row.pk} is {row.status} ({row.reason}), told {text!r}: {problem}")
        found += [f"{row.state} deployment, told {row.problem!r}: {why}" for row, why in self._deployments(is_quiet)]
        found += [f"{row.state} array, told {row.reason!r}: {why}" for row, why in self._arrays()]
        found += [f"{row.state} import, told {row.problem!r}: {why}" for row, why in self._imports()]
        return found

    def _of_end(self, row: Session, text: str) -> str:
        of = found.groupdict() if (found := end_said(row, text)) else {}
        if (actor := of.get("actor") or of.get("forced_by")) and actor not in self._askers(row):
            return f"it was asked for by {sorted(self._askers(row))}"
        if row.reason == Reason.CONTAINER_EXITED and int(of.get("code") or 0) not in self._teller.exits[row.pk]:
            return f"it ended with {self._teller.exits[row.pk]}"
        if row.reason == Reason.OUT_OF_MEMORY and None not in self._teller.exits[row.pk]:
            return "it had memory enough"
        if (name := of.get("lost")) and not self._was_silent(name):
            return "that host was not silent for so long"
        if cause := of.get("cause"):
            told = row.members.get(rank=self._rank(of["member"])).events.values_list("reason", "detail")
            return "" if any(cause in (detail, "") or not detail for _, detail in told) else "that member did not"
        if row.reason == Reason.TIME_LIMIT and (row.started_at is None) != text.startswith("Its start"):
            return f"it started at {row.started_at}"
        return ""

    def _of_wait(self, row: Session) -> str:
        """Return what is wrong with why a session waits; of one that may start in several groups each has a reason."""
        if row.status != Status.PENDING or row.rank or row.group_choices:  # of a cluster, its first says it
            return ""
        ready = Host.objects.filter(group=row.resource_group, status=HostStatus.READY)
        is_any_open = ready.filter(is_cordoned=False).exists()
        dependencies = [each.state for each in row.shown_dependencies]
        held = Session.objects.filter(owner=row.owner, status__in=HOSTED)
        is_limited = row.owner_id == self._world.users[0].pk and held.exists()
        is_so = {
            Reason.SUBMITTED: False,
            Reason.NO_HOST: not is_any_open and (ready.exists() == ("closed" in row.detail)),
            Reason.NO_CAPACITY: is_any_open,
            Reason.RESERVED: is_any_open,
            Reason.USER_LIMIT: is_limited,
            Reason.DEPENDENCY: DependencyState.WAITING in dependencies,
            Reason.PREEMPTION: row.claim is not None,
        }.get(Reason(row.reason), True)
        return "" if is_so else f"hosts ready: {ready.count()}, dependencies: {dependencies}, holds: {held.count()}"

    def _deployments(self, is_quiet: bool) -> list[tuple[Deployment, str]]:
        found = []
        for row in Deployment.objects.order_by("pk"):
            lines = [line for line in row.problem.splitlines() if not line.startswith("Revision ")]
            if row.ended_at is not None and row.state == DeploymentState.ENDED and row.problem:
                found.append((row, "it has ended"))
            if row.state in (DeploymentState.FAILING, DeploymentState.DEGRADED) and not row.problem:
                found.append((row, "nothing is said"))
            if row.state in (DeploymentState.ASLEEP, DeploymentState.STOPPED) and is_quiet and lines:
                found.append((row, "none of it is wanted"))
            if is_quiet and row.state not in reconciliation.SETTLED and not row.problem:
                states = row.replica_rows.live().values_list("session__status", "health", "session__detail")
                found.append((row, f"nothing is said of why it is not as wanted: {list(states)}"))
            waiting = re.findall(r"^A replica waits: (.+)$", row.problem, re.MULTILINE)
            details = row.replica_rows.filter(session__status=Status.PENDING).values_list("session__detail", flat=True)
            if is_quiet and set(waiting) - set(details):
                found.append((row, f"they wait for {sorted(set(details))}"))
            found += [(row, event.what) for event in row.events.all() if event.what.endswith(" is replaced.")]
        return found

    def _arrays(self) -> list[tuple[Array, str]]:
        found = []
        for row in Array.objects.order_by("pk"):
            if row.state == ArrayState.HELD and not row.reason:
                found.append((row, "nothing is said of why it is held"))
            if row.has_ended and not re.fullmatch(r"(Cancelled by .+\.)?", row.reason):
                found.append((row, "it has ended"))
            for task in row.tasks.all():
                if task.state in (TaskState.FAILED, TaskState.CANCELLED) and not task.reason:
                    found.append((row, f"nothing is said of {task.state} task {task.index}"))
                if task.state in ENDED and LIVELY.search(task.reason):
                    found.append((row, f"{task.state} task {task.index} is told {task.reason}"))
        return found

    def _imports(self) -> list[tuple[Import, str]]:
        found = []
        for row in Import.objects.order_by("pk"):
            if (row.state == ImportState.FAILED) != bool(row.problem):
                found.append((row, "only a failure has a problem"))
            if LIVELY.search(row.problem.removeprefix("Its session ended first. ")):
                found.append((row, "it has ended"))
        return found

    def _askers(self, row: Session) -> set[str]:
        return self._teller.askers[row.pk] | self._teller.askers[row.name.rpartition("-")[0]]

    def _was_silent(self, name: str) -> bool:
        host = next(host for host in self._world.hosts if host.name == name)
        since = self._world.clock.now - host.silent_since if host.silent_since else NO_TIME
        return max(host.longest_silence, since) >= LOSS_GRACE

    @staticmethod
    def _rank(member: str) -> int:
        return 0 if member == "main1" else int(member.removeprefix("sub"))
