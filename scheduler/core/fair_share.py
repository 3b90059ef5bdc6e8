"""Fair share of a resource group: what users have used of it, decayed, by weight. Pure.

A user's use is the largest part, over cores, memory and GPU, of what the group has, times the hours for which it was
held: dominant-resource fairness (Ghodsi et al., NSDI 2011) over time. It decays exponentially, as in Slurm and
HTCondor: after a half-life it counts half. What users hold now counts as one more hour at once, so that a pass which
starts many sessions shares them out.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from math import exp, fsum, log
from operator import add
from typing import Final

from scheduler.core.types import EPOCH, DecayedUsage, HostView, Rules, RunningSession, SessionRequest

AHEAD_SECONDS: Final = 3600.0  # of what is held now, counted as used already
ASSURED_PART: Final = 0.5  # of a user's fair share, which no past use takes away
SCALE: Final = 10**6  # use is compared in microseconds of the whole group, per unit of weight
Key = tuple[int, int, int, int]  # rank of a request: starving, priority, assured, use
_NOTHING: Final = (0.0, 0.0, 0.0)


class FairShares:
    """Use of one resource group by user, while sessions are placed and end."""

    def __init__(
        self,
        hosts: Iterable[HostView],
        rules: Rules,
        running: Iterable[RunningSession],
        used: Mapping[int, DecayedUsage],
        weights: Mapping[int, int],
    ) -> None:
        """Take the group's hosts and running sessions, and by user id what ended sessions have used, and weights."""
        hosts = tuple(hosts)
        self._totals = (
            sum(host.cpu for host in hosts),
            sum(host.memory_bytes for host in hosts),
            sum(gpu.capacity_milli for host in hosts for gpu in host.gpus),
        )
        self._rules = rules
        self._decay = log(2) / rules.half_life.total_seconds()  # per second
        self.used = dict(used)
        self._weights = weights
        self._running: dict[int, dict[str, RunningSession]] = {}
        self._held: dict[int, list[int]] = {}  # cores, bytes, milli-fGPU, each times the percentage that counts
        self._bases: dict[int, tuple[float, float, float]] = {}  # use at `_now`, what is held now aside
        self._now: datetime | None = None
        for session in running:
            self.add(session)

    def add(self, session: RunningSession) -> None:
        """Count a session that has started."""
        self._running.setdefault(session.owner_id, {})[session.session_id] = session
        self._count(session, 1)
        if session.started_at != self._now:  # one that starts now has used nothing yet
            self._bases.pop(session.owner_id, None)

    def remove(self, session: RunningSession, ended_at: datetime | None = None) -> None:
        """Forget a session; with `ended_at`, record what it has used by then."""
        mine = self._running[session.owner_id]
        del mine[session.session_id]
        if not mine:
            del self._running[session.owner_id]
        self._count(session, -1)
        self._bases.pop(session.owner_id, None)
        if ended_at is not None:
            before = self._decayed(session.owner_id, ended_at)
            cpu, memory, fgpu = map(add, before, self._use_of(session, ended_at))
            self.used[session.owner_id] = DecayedUsage(cpu, memory, fgpu, ended_at)

    def set_used(self, owner_id: int, usage: DecayedUsage) -> None:
        """Replace what ended sessions of a user have used."""
        self.used[owner_id] = usage
        self._bases.pop(owner_id, None)

    def weight(self, owner_id: int) -> int:
        """Return the weight of a user."""
        return self._weights.get(owner_id, self._rules.default_weight)

    def active_weight(self, waiting: Iterable[int]) -> int:
        """Return the sum of the weights of those users, and of those who hold something."""
        return sum(map(self.weight, self._running.keys() | set(waiting)))

    def key(self, request: SessionRequest, now: datetime, active_weight: int) -> Key:
        """Return the rank of a request: the lowest is served next.

        First who has held nothing and waited for the group's starvation limit, the longest first. Then higher priority.
        Then what stays within half of its owner's fair share, whatever was used before. Then by use, for the weight.
        """
        owner_id = request.owner_id
        if owner_id not in self._running:
            since = max(request.queued_at, self.used[owner_id].at) if owner_id in self.used else request.queued_at
            if now - since >= self._rules.starvation_limit:
                return 0, 0, 0, (since - EPOCH) // timedelta(seconds=1)
        held = self._held.get(owner_id, (0, 0, 0))
        wanted = [mine + request.charge_percent * more for mine, more in zip(held, request.shape[:3], strict=True)]
        fair_part = self.weight(owner_id) / active_weight
        is_assured = self._part(wanted) / 100 <= ASSURED_PART * fair_part
        return 1, -request.priority, not is_assured, self.use(owner_id, now)

    def use(self, owner_id: int, now: datetime) -> int:
        """Return a user's use: microseconds of the whole group, per unit of weight; what is held counts ahead."""
        held = self._held.get(owner_id, (0, 0, 0))
        seconds = [
            base + AHEAD_SECONDS * amount / 100 for base, amount in zip(self.base(owner_id, now), held, strict=True)
        ]
        return round(SCALE * self._part(seconds) / self.weight(owner_id))

    def parts(self, now: datetime) -> dict[int, float]:
        """Return what each user has used by now, in seconds of the whole group."""
        return {owner_id: self._part(self.base(owner_id, now)) for owner_id in self._running.keys() | self.used.keys()}

    def base(self, owner_id: int, now: datetime) -> tuple[float, float, float]:
        """Return what a user's sessions, ended or running, have used by `now`: core, byte and milli-fGPU seconds."""
        if now != self._now:
            self._now = now
            self._bases.clear()
        found = self._bases.get(owner_id)
        if found is None:
            uses = [self._use_of(session, now) for session in self._running.get(owner_id, {}).values()]
            columns = zip(self._decayed(owner_id, now), *uses, strict=True)
            cpu, memory, fgpu = (fsum(column) for column in columns)  # exact, whatever the order of the sessions
            found = self._bases[owner_id] = cpu, memory, fgpu
        return found

    def _part(self, amounts: Iterable[float]) -> float:
        """Return the largest part that these amounts are of what the group has."""
        return max((amount / total for amount, total in zip(amounts, self._totals, strict=True) if total), default=0.0)

    def _decayed(self, owner_id: int, now: datetime) -> tuple[float, float, float]:
        usage = self.used.get(owner_id)
        if usage is None:
            return _NOTHING
        left = exp(-self._decay * max(0.0, (now - usage.at).total_seconds()))
        return usage.cpu_seconds * left, usage.memory_byte_seconds * left, usage.fgpu_milli_seconds * left

    def _use_of(self, session: RunningSession, now: datetime) -> tuple[float, float, float]:
        """Return what a session has used since its start, decayed to `now`."""
        ran = max(timedelta(0), now - session.started_at).total_seconds()
        seconds = (1 - exp(-self._decay * ran)) / self._decay * session.charge_percent / 100
        cpu, memory_bytes, fgpu_milli, _ = session.shape
        return cpu * seconds, memory_bytes * seconds, fgpu_milli * seconds

    def _count(self, session: RunningSession, sign: int) -> None:
        held = self._held.setdefault(session.owner_id, [0, 0, 0])
        for position, amount in enumerate(session.shape[:3]):
            held[position] += sign * session.charge_percent * amount
