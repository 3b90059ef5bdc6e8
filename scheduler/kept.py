"""What a process keeps of the platform's state, so that it reads and decides anew only what has changed.

`take_in` brings it up to date, `serve` is the pass, `news` what those who wait are told. It must be dropped if what was
decided is not written, as when the pass fails.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from accounts.limits import PolicyLimits
from scheduler.core.forecast import Start
from scheduler.core.placement import LOOK_AHEAD
from scheduler.core.reasons import Explainer, Words
from scheduler.core.standing import Standing
from scheduler.core.terms import Owner, Placement, Request, Running, Shape
from scheduler.snapshot import NOTHING, Changes, Loaded, Waiter, usage_of
from scheduler.telling import is_news, written
from sessions.models import Told

Place = tuple[int, Shape]  # group and shape: whoever waits for the same is told the same, limits aside
Holders = tuple[int, int | None]  # user and project


class Kept:
    """Who waits, who runs and what everybody was told, as read and decided so far."""

    def __init__(self, loaded: Loaded) -> None:
        """Begin with the whole state."""
        self.since = loaded.since
        self.standing = Standing(loaded.snapshot)
        self.waiters = {waiter.request.id: waiter for waiter in loaded.waiters}
        self.supposed: set[str] = set()  # placed here and not read since: others may have been quicker
        self._running = {running.session_id: running for running in loaded.snapshot.running}
        self._held = set(self.waiters).difference(self.standing.requests)
        self._words: dict[Place, Words | None] = {}  # as told last
        self._grounds: dict[int, object] = {}  # what they hang on, by group
        self._unexplained = set(self.standing.requests)
        self._promised = {name for name, waiter in self.waiters.items() if waiter.told.eta is not None}
        self._touched: set[Holders] = set()  # who may take more, or less, than when those who wait were told last
        self._by_place: dict[Place, set[str]] = defaultdict(set)
        self._by_holders: dict[Holders, set[str]] = defaultdict(set)
        for request in self.standing.requests.values():
            self._index(request)

    def take_in(self, changes: Changes) -> None:
        """Note what has changed since `since`. What is known already may be among it."""
        self.since = changes.since
        self.supposed.clear()
        waiting = {waiter.request.id: waiter for waiter in changes.waiters}
        for session_id in changes.ids:
            waiter, was = waiting.get(session_id), self.waiters.get(session_id)
            if waiter is not None and was is not None and waiter[:3] == was[:3]:
                self._hear(waiter, was.told)
                del waiting[session_id]
            else:
                self._forget_waiter(session_id)
        here = {running.session_id: running for running in changes.running}
        gone = [self._running[name] for name in changes.ids if name in self._running]
        same = {running.session_id for running in gone if here.get(running.session_id) == running}
        self._replace(
            [running for running in gone if running.session_id not in same],
            [running for name, running in here.items() if name not in same],
        )
        self.admit(changes.limits)
        for session_id, waiter in waiting.items():
            self._note(waiter)
            self._held.add(session_id)

    def admit(self, limits: Mapping[int, PolicyLimits]) -> None:
        """Note the limits of users, where they are not known yet."""
        used = None
        for owner_id, its in limits.items():
            if not self.standing.board.knows(owner_id):
                used = usage_of(self._running.values()) if used is None else used
                self.standing.board.admit(owner_id, Owner(limits=its, used=used.get(owner_id, NOTHING)))

    def release(self, now: datetime) -> None:
        """Let those into the queue who wait for nothing but room from now on."""
        for session_id in [name for name in self._held if self.waiters[name].held(now) is None]:
            self._held.remove(session_id)
            request = self.waiters[session_id].request
            self.standing.add(request)
            self._index(request)
            self._unexplained.add(session_id)

    def serve(self, now: datetime) -> list[Placement]:
        """Place everybody who can start, by the state as it is known; return where."""
        self.release(now)
        placements = self.standing.serve(now)
        for placement in placements:
            request = self.waiters.pop(placement.session_id).request
            self._forget_words(request)
            self._touched.add((request.owner_id, request.project_id))
            self._running[request.id] = self.standing.board.groups[request.group_id].running[request.id]
            self.supposed.add(request.id)
        return placements

    def news(self, now: datetime) -> list[Told]:
        """Return what those who wait are to be told, where it says something new; it counts as told from then on."""
        explain = Explainer(self.standing.board)
        starts = self.standing.starts(now, LOOK_AHEAD)
        doubtful = self._doubtful(explain)
        doubtful.update(starts)
        doubtful.update(self._promised.intersection(self.standing.requests))
        found = []
        for session_id in doubtful:
            reason, detail = explain.explain(self.waiters[session_id].request)[1:3]
            found.append(_told(session_id, reason.value, detail, starts.get(session_id)))
        for session_id in self._held:
            held = self.waiters[session_id].held(now)
            if held is not None:
                found.append(held)
        new = [written(told) for told in found if is_news(self.waiters[told.session_id].told, told, now)]
        for told in new:
            self._note(self.waiters[told.session_id]._replace(told=told))
        return new

    def _hear(self, waiter: Waiter, known: Told) -> None:
        """Note what a session was told, as this process or another has written it."""
        if waiter.told != known:
            self._note(waiter)
            if waiter.request.id in self.standing.requests:
                self._unexplained.add(waiter.request.id)

    def _note(self, waiter: Waiter) -> None:
        self.waiters[waiter.request.id] = waiter
        if waiter.told.eta is not None:
            self._promised.add(waiter.request.id)
        else:
            self._promised.discard(waiter.request.id)

    def _forget_waiter(self, session_id: str) -> None:
        waiter = self.waiters.pop(session_id, None)
        if waiter is None:
            return
        if session_id in self._held:
            self._held.remove(session_id)
        else:
            self.standing.remove(session_id)
            self._forget_words(waiter.request)
        self._promised.discard(session_id)

    def _replace(self, gone: Sequence[Running], here: Sequence[Running]) -> None:
        """Note who runs no longer as it was, and who runs now."""
        for running in gone:
            del self._running[running.session_id]
        self._running.update((running.session_id, running) for running in here)
        self._touched.update((running.owner_id, running.project_id) for running in (*gone, *here))
        self.standing.update(gone, here)

    def _index(self, request: Request) -> None:
        self._by_place[request.group_id, request.shape].add(request.id)
        self._by_holders[request.owner_id, request.project_id].add(request.id)

    def _forget_words(self, request: Request) -> None:
        self._by_place[request.group_id, request.shape].remove(request.id)
        self._by_holders[request.owner_id, request.project_id].remove(request.id)
        self._unexplained.discard(request.id)
        self._promised.discard(request.id)

    def _doubtful(self, explain: Explainer) -> set[str]:
        """Return those whose reason, or its words, may be another than they were told."""
        doubtful, self._unexplained = self._unexplained, set()
        was, groups = self._grounds, {group_id for group_id, _ in self._by_place}
        self._grounds = {group_id: explain.ground(group_id) for group_id in groups}
        moved = {group_id for group_id in groups if group_id not in was or self._grounds[group_id] != was[group_id]}
        for place, names in self._by_place.items():
            words = explain.words(*place) if names and place[0] in moved else self._words.get(place)
            if words != self._words.get(place):
                self._words[place] = words
                doubtful |= names
        touched = [holders for holders in self._touched if self.standing.board.limits_any(*holders)]
        users, projects = {user for user, _ in touched}, {project for _, project in touched} - {None}
        for (user, project), names in self._by_holders.items():
            if user in users or project in projects:
                doubtful |= names
        self._touched.clear()
        return doubtful


def _told(session_id: str, reason: str, detail: str, start: Start | None) -> Told:
    return Told(session_id, reason, detail, start.at if start else None, start.because if start else "")
