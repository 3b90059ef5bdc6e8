"""Wait queue indexed by request class: a pass evaluates only requests that may start because of a change. Pure.

Every request in the queue is new or was refused on the cluster state as it is. So only these can start: new ones, those
no longer above a limit, and those that fit a host that has gained capacity. The first request of each group is
evaluated in any case, as it determines the head. Until there is a head the turn is that of the queue's order, and then
that of the shortest predicted run time.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain
from operator import attrgetter

from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.types import ClassKey, Placement, RunningSession, SessionRequest, Shape
from scheduler.core.waiting.request_class import QueueEntry, QueueKey, RequestClass
from scheduler.core.waiting.turns import Turns

_CPU, _MEMORY_BYTES, _MAX_REQUEST_MILLI = map(attrgetter, ("cpu", "memory_bytes", "max_request_milli"))


class WaitQueue:
    """Requests that wait for the groups of a cluster state, served by the rules of `placement.plan`."""

    def __init__(self, cluster: ClusterState) -> None:
        """Begin empty."""
        self._cluster = cluster
        self._hypothetical_ids: set[str] = set()
        self._classes: dict[int, dict[ClassKey, RequestClass]] = {group_id: {} for group_id in cluster.groups}
        self._over_limit: dict[tuple[int, int | None], dict[QueueKey, SessionRequest]] = {}  # by user and project
        self._grown = {group_id: GrownHosts() for group_id in cluster.groups}
        self._complete: set[int] = set()  # groups whose classes have all had a turn, or will
        self._turns = Turns()  # of the pass
        self._several = AlternativeEntries()
        self.over_limit_ids: set[str] = set()  # requests that were above a limit at any time
        self.evaluated = 0  # classes and requests: what a forecast counts as work

    @property
    def is_empty(self) -> bool:
        """Whether no request waits."""
        return not self._over_limit and not any(self._classes.values())

    def copy(self, cluster: ClusterState) -> "WaitQueue":
        """Return a copy for a copy of the cluster state, in which nothing is new; limits are evaluated again."""
        copy = WaitQueue(cluster)
        copy._classes = {
            group_id: {class_key: request_class.copy() for class_key, request_class in classes.items()}
            for group_id, classes in self._classes.items()
        }
        copy._several = self._several.copy()
        for classes in self._classes.values():
            for request_class in classes.values():
                for key, request in request_class:
                    if cluster.limits.are_exceeded_by(request):
                        copy.remove(key, request)
                        copy._set_aside((key, request))
                        copy._drop_head(request)
        for entries in self._over_limit.values():
            for key, request in entries.items():
                copy.add(key, request, is_new=False)
        return copy

    def add(
        self, key: QueueKey, request: SessionRequest, *, is_new: bool = True, is_hypothetical: bool = False
    ) -> None:
        """Add a request, new or already refused; requests of groups without hosts are left out.

        A hypothetical request is asked about only: where it would start it takes nothing.
        """
        if is_hypothetical:
            self._hypothetical_ids.add(request.id)
        classes = self._classes.get(request.group_id)
        if classes is None:
            return
        if self._cluster.limits.are_exceeded_by(request):
            self._set_aside((key, request))
            self._drop_head(request)
            return
        class_key = request.class_key
        request_class = classes.get(class_key)
        if request_class is None:
            request_class = classes[class_key] = RequestClass(request)
        request_class.add(key, request)
        self._several.add(key, request)
        if is_new:
            request_class.is_new = True

    def remove(self, key: QueueKey, request: SessionRequest) -> None:
        """Remove a request, above a limit or not."""
        classes = self._classes.get(request.group_id)
        if classes is None:
            return
        self._several.remove(key, request)
        request_class = classes.get(request.class_key)
        if request_class is not None and request_class.remove(key, request):
            if not request_class.queues:
                del classes[request.class_key]
            return
        holder_ids = request.owner_id, request.project_id
        del self._over_limit[holder_ids][key]
        if not self._over_limit[holder_ids]:
            del self._over_limit[holder_ids]

    def withdraw(self, session_id: str) -> None:
        """Remove what is left of a session that had several entries."""
        for key, request in self._several.pop(session_id).items():
            self.remove(key, request)

    def note_growth(self, group_id: int, host: HostCapacity) -> None:
        """Note that a host of the group has gained capacity since the last `serve`."""
        self._grown[group_id].add(host)

    def readmit(self, freed: Iterable[RunningSession]) -> None:
        """Evaluate again the requests above a limit that they share with one of the sessions ended."""
        owners = {running.owner_id for running in freed}
        projects = {running.project_id for running in freed} - {None}
        for holder_ids in [ids for ids in self._over_limit if ids[0] in owners or ids[1] in projects]:
            for key, request in self._over_limit.pop(holder_ids).items():
                self.add(key, request)

    def serve(self, at: datetime) -> list[tuple[SessionRequest, tuple[Placement, ...]]]:
        """Start the requests that can start, in order, and remove them; return them with their members' placements."""
        started: list[tuple[SessionRequest, tuple[Placement, ...]]] = []
        self._turns = Turns()
        chosen = {group_id: self._candidates(group_id, at) for group_id in self._classes}
        for group_id in chosen:
            self._turns.rank(group_id, self._cluster.groups[group_id])
        self._turns.begin(chain.from_iterable(chosen.values()))
        self._complete = {group_id for group_id, found in chosen.items() if len(found) == len(self._classes[group_id])}
        while turn := self._turns.pop():
            self.evaluated += 1
            request_class, entry = turn
            if self._cannot_start(request_class, entry[1]):
                self._complete.discard(request_class.group_id)
            elif placements := self._serve_entry(request_class, entry, at):
                started.append((entry[1], placements))
        for session_id in self._several.started:
            self.withdraw(session_id)
        self._several.started.clear()
        for request_class in chain.from_iterable(chosen.values()):
            request_class.is_new = False
        for grown in self._grown.values():
            grown.clear()
        return started

    def _serve_entry(self, request_class: RequestClass, entry: QueueEntry, at: datetime) -> tuple[Placement, ...]:
        """Start the first request of a class if it can start, and remove it; return its members' placements."""
        request = entry[1]
        if self._several.started and request.id in self._several.started:
            self._pass_over(request_class, entry, at)
        elif self._cluster.limits.are_exceeded_by(request):
            self._set_aside(request_class.pop(entry))
            self._drop_head(request)
            self._continue(request_class, request, at)
        elif placements := self._place(request, at):
            self._several.start(*request_class.pop(entry))
            self._continue(request_class, request, at)
            return placements
        else:
            self._complete.discard(request.group_id)
            self._restrict_to_backfill(request_class, at)
        return ()

    def _pass_over(self, request_class: RequestClass, entry: QueueEntry, at: datetime) -> None:
        """Remove the entry of a session that has started by another, and what was reserved for it."""
        key, request = request_class.pop(entry)
        self._several.remove(key, request)
        self._drop_head(request)
        self._continue(request_class, request, at)

    def _continue(self, request_class: RequestClass, served: SessionRequest, at: datetime) -> None:
        """Push the next request of the class, and the first of the group as long as there is no head."""
        group_id, classes = served.group_id, self._classes[served.group_id]
        if not self._turns.push(request_class) and not request_class.queues:
            del classes[served.class_key]
        if classes and group_id not in self._complete and self._cluster.groups[group_id].head is None:
            first = self._first(group_id, at)
            if first is not None:
                self._turns.begin([first])  # starts, or becomes the head before others start

    def _restrict_to_backfill(self, request_class: RequestClass, at: datetime) -> None:
        """Serve only requests of the class that end before the head's start, if the reserved host has capacity."""
        group = self._cluster.groups[request_class.group_id]
        reservation = group.reservation
        if request_class.longest is not None or reservation is None or reservation.at is None:
            return
        if reservation.fits(request_class.shape):
            request_class.longest = reservation.at - at - group.rules.overhead
            self._turns.push(request_class)

    def _cannot_start(self, request_class: RequestClass, request: SessionRequest) -> bool:
        """Return whether a request that was refused before still is: others have taken the capacity gained."""
        if request_class.is_new or self._grown[request_class.group_id].fits(request_class.shape):
            return False
        head = self._cluster.groups[request_class.group_id].head
        return head is not None and head.id != request.id

    def _place(self, request: SessionRequest, at: datetime) -> tuple[Placement, ...]:
        group = self._cluster.groups[request.group_id]
        reserved = group.reserved_hosts if group.head is not None and group.head.id == request.id else []
        placements = self._cluster.place(request, at)
        self._turns.rank(request.group_id, group)
        if released := [host for host in reserved if not host.is_reserved]:  # by another entry of the session
            self._offer(request.group_id, released)
        if placements and request.id in self._hypothetical_ids:
            for placement in placements:
                self._cluster.end(request.group_id, placement.session_id)
        if placements:
            self._grown[request.group_id].update_maximum()
        return placements

    def _set_aside(self, entry: QueueEntry) -> None:
        """Keep a request that is above a limit apart until the limit allows it."""
        key, request = entry
        self._several.add(key, request)
        self._over_limit.setdefault((request.owner_id, request.project_id), {})[key] = request
        self.over_limit_ids.add(request.id)

    def _first(self, group_id: int, at: datetime) -> RequestClass | None:
        """Return the class that holds the first request of a group that a host could hold; None if there is none."""
        group, classes = self._cluster.groups[group_id], self._classes[group_id].values()
        first = min(classes, key=attrgetter("first"), default=None)
        if first is None or group.could_hold(first.shape, at):
            return first
        able = (found for found in classes if group.could_hold(found.shape, at))
        return min(able, key=attrgetter("first"), default=None)

    def _candidates(self, group_id: int, at: datetime) -> list[RequestClass]:
        """Return the classes that may start a request now, and that of the first; drop an outdated reservation."""
        classes, group = self._classes[group_id], self._cluster.groups[group_id]
        if not classes:
            return []
        self.evaluated += len(classes)
        first, grown, head = self._first(group_id, at), self._grown[group_id], group.head
        grown.update_maximum()
        released = []
        is_same = head is not None and first is not None and head.id == first.head.id
        if head is None or not is_same or head.shape.spans_hosts or grown.fits(head.shape):
            released = group.reserved_hosts
            group.clear_head()
        elif group.reservation is None or group.reservation.at is None:
            released = group.move_whole_hosts(grown.hosts, at)  # as time passes no start can become known
        if released:
            grown.extend(released)
        return [
            request_class
            for request_class in classes.values()
            if request_class is first or request_class.is_new or grown.fits(request_class.shape)
        ]

    def _drop_head(self, request: SessionRequest) -> None:
        """Drop the reservation if `request`, above a limit now, is the head; push the classes that fit its host."""
        group = self._cluster.groups[request.group_id]
        if group.reservation is None or not group.is_head(request):
            return
        reserved = group.reserved_hosts
        group.clear_head()
        self._turns.rank(request.group_id, group)
        self._offer(request.group_id, reserved)

    def _offer(self, group_id: int, hosts: Iterable[HostCapacity]) -> None:
        """Push the classes that fit hosts which are not reserved any more."""
        self._grown[group_id].extend(hosts)
        self._turns.begin(
            request_class
            for request_class in self._classes[group_id].values()
            if request_class.queues and self._grown[group_id].fits(request_class.shape)
        )


class AlternativeEntries:
    """Entries of sessions that have several: once a session has started by one, its others are withdrawn."""

    __slots__ = ("_by_session", "started")

    def __init__(self) -> None:
        self._by_session: dict[str, dict[QueueKey, SessionRequest]] = {}
        self.started: set[str] = set()  # in this pass: their other entries are passed over

    def copy(self) -> "AlternativeEntries":
        """Return a copy, in which nothing has started."""
        copy = AlternativeEntries()
        copy._by_session = {session_id: entries.copy() for session_id, entries in self._by_session.items()}
        return copy

    def add(self, key: QueueKey, request: SessionRequest) -> None:
        """Note an entry, unless it is its session's only one."""
        if request.alternatives or request.is_alternative:
            self._by_session.setdefault(request.id, {})[key] = request

    def remove(self, key: QueueKey, request: SessionRequest) -> None:
        """Take back `add`."""
        entries = self._by_session.get(request.id)
        if entries is not None:
            entries.pop(key, None)
            if not entries:
                del self._by_session[request.id]

    def start(self, key: QueueKey, request: SessionRequest) -> None:
        """Remove the entry by which a session has started; the others count as started elsewhere."""
        if request.id in self._by_session:
            self.remove(key, request)
            self.started.add(request.id)

    def pop(self, session_id: str) -> dict[QueueKey, SessionRequest]:
        """Remove and return the entries of a session."""
        return self._by_session.pop(session_id, {})


class GrownHosts:
    """Hosts of a group that have gained capacity since the last `serve`: refused requests can fit on these only.

    Until the next one is added they only lose capacity. So a host on which a shape did not fit is not looked at again,
    and most shapes that do not fit any more are known by the maximum.
    """

    __slots__ = ("_by_index", "_hosts", "_maximum", "_passed")

    def __init__(self) -> None:
        self._by_index: dict[int, HostCapacity] = {}
        self._hosts: list[HostCapacity] = []
        self._maximum = (0, 0, 0)  # of cores, bytes and milli-fGPU each: larger shapes need no look at every host
        self._passed: dict[Shape, int] = {}  # by shape: how many of the hosts it is known not to fit on

    @property
    def hosts(self) -> Sequence[HostCapacity]:
        """The hosts, in the order in which they were added."""
        return self._hosts

    def add(self, host: HostCapacity) -> None:
        """Add a host, or note that it has gained more; call `update_maximum` before `fits`."""
        if host.index not in self._by_index:
            self._by_index[host.index] = host
            self._hosts.append(host)
        self._passed.clear()

    def extend(self, hosts: Iterable[HostCapacity]) -> None:
        """Count hosts with more room, in what they have at most too."""
        for host in hosts:
            self.add(host)
        self.update_maximum()

    def clear(self) -> None:
        """Remove all hosts."""
        self._by_index.clear()
        self._hosts.clear()
        self._passed.clear()
        self._maximum = (0, 0, 0)

    def update_maximum(self) -> None:
        """Take into account that hosts were added or have changed."""
        if hosts := self._hosts:
            self._maximum = (
                max(map(_CPU, hosts)),
                max(map(_MEMORY_BYTES, hosts)),
                max(map(_MAX_REQUEST_MILLI, hosts)),
            )

    def fits(self, shape: Shape) -> bool:
        """Return whether one of the hosts can take `shape`, or a member of a cluster that may span hosts."""
        cpu, memory_bytes, fgpu_milli = self._maximum
        if shape.members > 1:
            one = shape.of_members(1)
            if shape.spans_hosts and shape.main and self.fits(shape.of_members(1, with_main=True)):
                return True
            return self.fits(one) and (shape.spans_hosts or any(host.fits(shape) for host in self._hosts))
        if shape.cpu > cpu or shape.memory_bytes > memory_bytes or shape.fgpu_milli > fgpu_milli:
            return False
        hosts, known = self._hosts, self._passed.get(shape, 0)
        position = known
        while position < len(hosts) and not hosts[position].fits(shape):
            position += 1
        if position != known:
            self._passed[shape] = position
        return position < len(hosts)
