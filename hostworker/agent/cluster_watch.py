"""Looks after the networks of this host's clusters: none stays without its cluster, and no member outside of its own.

A member's command waits until all members answer to it. For whom it waits is the detail of its session, after a while.
"""

import logging
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

from hostworker.cluster_protocol import ClusterControl, ClusterPlace
from hostworker.containers import cluster_networks
from hostworker.privileged.cluster_network.network import PORT
from hostworker.runtime_protocol import ContainerRuntimeError, Key, Runtime
from resources.amounts.units import listing
from resources.models import Host
from sessions import notify
from sessions.lifecycle import Status
from sessions.models import Cluster, Session

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.2
LOOK_SECONDS: Final = 5.0
# After which members join again that have. Those that wait do at each look, and those of clusters that have changed.
REPAIR_SECONDS: Final = 60.0
SILENCE_NOTED_SECONDS: Final = 10.0
NAMED: Final = 3  # members at most
RUNNING: Final = "Running."


class ClusterWatch:
    """Watches the clusters of one host; `has_clusters` says whether any may be placed there."""

    def __init__(
        self, runtime: Runtime, clusters: ClusterControl, host: Host, has_clusters: Callable[[], bool]
    ) -> None:
        self._runtime = runtime
        self._clusters = clusters
        self._host = host
        self._has_clusters = has_clusters
        self._has_networks = True  # of an earlier worker's
        self._looked_at = self._repaired_at = float("-inf")
        self._begun: set[Key] = set()
        self._joined: dict[Key, list[str]] = {}  # the addresses of the members' hosts by which these have joined
        self._waiting: list[Session] = []
        self._asked: dict[str, tuple[float, float]] = {}  # by cluster that waits: since when, and when to ask next
        self._noted: dict[str, str] = {}  # by cluster that waits

    def poll(self) -> None:
        """Look at the rows now and then, and as a member has come up; let those begin who were waited for."""
        now = time.monotonic()
        has_started = cluster_networks.started.is_set()
        cluster_networks.started.clear()
        if now - self._looked_at >= LOOK_SECONDS:
            self._look(now, has_started=has_started)
        elif has_started:  # and has joined before: that takes more than all the rest of this
            self._find_waiting(now)
        for cluster_id, members in groupby(self._waiting, lambda member: member.cluster_id or ""):
            self._ask(cluster_id, list(members), now)

    def _look(self, now: float, *, has_started: bool) -> None:
        self._looked_at = now
        if not (has_started or self._has_networks or self._has_clusters()):
            return
        self._has_networks = cluster_networks.keep(self._runtime, self._host)
        members = self._find_waiting(now)
        is_repair_due = now - self._repaired_at >= REPAIR_SECONDS
        if is_repair_due:
            self._repaired_at = now
        for member in members:
            key, addresses = (member.pk, member.attempt), member.cluster.host_addresses if member.cluster else []
            if not is_repair_due and member not in self._waiting and self._joined.get(key) == addresses:
                continue
            try:
                cluster_networks.join(self._runtime, member)
                self._joined[key] = addresses
            except ContainerRuntimeError as error:  # as where it has just ended
                self._joined.pop(key, None)
                logger.warning("session %s: not in its cluster's network, will try again: %s", member.pk, error)

    def _find_waiting(self, now: float) -> Sequence[Session]:
        """Read which members run, and note who of them waits; return all."""
        members = list(cluster_networks.members(self._host))
        keys = {(member.pk, member.attempt) for member in members}
        self._begun &= keys
        self._joined = {key: addresses for key, addresses in self._joined.items() if key in keys}
        self._waiting = [member for member in members if (member.pk, member.attempt) not in self._begun]
        self._asked = {member.cluster_id or "": (now, now) for member in self._waiting} | {
            cluster_id: times for cluster_id, times in self._asked.items() if self._waits(cluster_id)
        }
        return members

    def _waits(self, cluster_id: str) -> bool:
        return any(member.cluster_id == cluster_id for member in self._waiting)

    def _ask(self, cluster_id: str, members: Sequence[Session], now: float) -> None:
        """Let the cluster's members on this host begin if all others answer to one; ask ever more rarely."""
        since, due = self._asked[cluster_id]
        place = cluster_networks.place_of(members[0])
        if now < due or place is None:
            return
        if detail := self._waits_for(members[0], place):
            self._asked[cluster_id] = since, now + min(LOOK_SECONDS, (now - since) / 10)
            if now - since >= SILENCE_NOTED_SECONDS:
                self._note(cluster_id, members, detail)
            return
        for member in members:
            self._clusters.let_begin(member.pk, member.attempt)
            self._begun.add((member.pk, member.attempt))
        self._note(cluster_id, members, RUNNING)
        self._noted.pop(cluster_id, None)
        self._waiting = [member for member in self._waiting if member.cluster_id != cluster_id]

    def _waits_for(self, member: Session, place: ClusterPlace) -> str:
        """Return for whom the member waits, or "". In a network of their own none answers before it is there."""
        if place.host_network and Cluster.objects.filter(pk=member.cluster_id, started_at=None).exists():
            return "Waits for the other members to run."
        if not (silent := self._clusters.silent(member.pk, member.attempt, place)):
            return ""
        names = listing(silent if len(silent) <= NAMED else [*silent[:NAMED], f"{len(silent) - NAMED} more"])
        if place.host_network:
            return f"Waits for {names} to answer. Where they run, a firewall is between their hosts."
        return f"Waits for {names} to answer. Where they run, UDP port {PORT} is not open between their hosts."

    def _note(self, cluster_id: str, members: Sequence[Session], detail: str) -> None:
        """Store it as the members' detail, where they have another."""
        if self._noted.get(cluster_id, RUNNING) == detail:
            return
        self._noted[cluster_id] = detail
        Session.objects.filter(pk__in=[each.pk for each in members], status=Status.RUNNING).update(detail=detail)
        notify.sessions_changed([(each.pk, each.owner_id, each.project_id) for each in members])
