"""Fair share of a resource group: what projects and users have used of it, decayed, by weight. Pure.

Use is the largest part, over cores, memory and GPU, of what the group has, times the hours for which it was held:
dominant-resource fairness (Ghodsi et al., NSDI 2011) over time. It decays exponentially, as in Slurm and HTCondor:
after a half-life it counts half. What is held now counts as one more hour at once, so that a pass which starts many
sessions shares them out.

Shares have two levels, as in Slurm's Fair Tree: projects, and users without one, divide the group by their weights, and
the members of a project divide its share by theirs.

GPUs count by the weight of their model, both those of the group and those that are held: equal weights are as none.
What is held is added up in integers, so weights of 1 change no bit (ADR 115).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from math import exp, fsum, log
from operator import add
from typing import Final

from resources.amounts.units import PLAIN_WEIGHT
from scheduler.core.types import (
    EPOCH,
    Association,
    DecayedUsage,
    HostView,
    Rules,
    RunningSession,
    SessionRequest,
    association_of,
)

AHEAD_SECONDS: Final = 3600.0  # of what is held now, counted as used already
ASSURED_PART: Final = 0.5  # of a fair share, which no past use takes away
SCALE: Final = 10**6  # use is compared in microseconds of the whole group, per unit of weight
STARVING: Final = 0  # first element of the key of a request whose owner is starving
ALL: Final = Association(0, 0)
Key = tuple[int, int, int, int]  # rank of a request: starving, priority, assured, use
DueParts = Mapping[Association, float]  # of what siblings divide among them, or of the whole group
_NOTHING: Final = (0.0, 0.0, 0.0)
_NOT_HELD: Final = (0, 0, 0)


class FairShares:
    """Use of one resource group by associations, while sessions are placed and end."""

    def __init__(
        self,
        hosts: Iterable[HostView],
        rules: Rules,
        running: Iterable[RunningSession],
        used: Mapping[Association, DecayedUsage],
        weights: Mapping[Association, int],
    ) -> None:
        """Take the group's hosts and running sessions, what ended sessions have used, and weights."""
        hosts = tuple(hosts)
        gpus = [gpu for host in hosts for gpu in host.gpus]
        self._gpu_weights = {gpu.id: gpu.weight for gpu in gpus}
        cpu, memory_bytes = sum(host.cpu for host in hosts), sum(host.memory_bytes for host in hosts)
        self._gpu_milli = sum(gpu.capacity_milli for gpu in gpus)
        self._weighted = sum(gpu.capacity_milli * gpu.weight for gpu in gpus)
        self._totals = cpu, memory_bytes, self._weighted / PLAIN_WEIGHT
        self._wanted_totals = cpu, memory_bytes, self._weighted * self._gpu_milli
        self._rules = rules
        self._decay = log(2) / rules.half_life.total_seconds()  # per second
        self.used: dict[Association, DecayedUsage] = {}
        self._weights = weights
        self._known_weights: dict[Association, int] = {}
        self._running: dict[Association, dict[str, RunningSession]] = {}
        self._held: dict[Association, list[int]] = {}  # as `_amounts_of`, times the percentage that counts
        self._members: dict[Association, set[Association]] = {}  # of each project
        self._session_counts: Counter[int] = Counter()  # running sessions, by user
        self._last_ends: dict[int, datetime] = {}  # when a user last had a session end
        self._bases: dict[Association, tuple[float, float, float]] = {}  # use at `_now`, what is held now aside
        self._now: datetime | None = None
        for holder, usage in used.items():
            self.set_used(holder, usage)
        for session in running:
            self.add(session)

    def add(self, session: RunningSession) -> None:
        """Count a session that has started."""
        holder = association_of(session)
        self._note(holder)
        self._running.setdefault(holder, {})[session.session_id] = session
        self._session_counts[session.owner_id] += 1
        self._count(session, 1)
        if session.started_at != self._now:  # one that starts now has used nothing yet
            self._forget_base(holder)

    def remove(self, session: RunningSession, ended_at: datetime | None = None) -> None:
        """Forget a session; with `ended_at`, record what it has used by then."""
        holder = association_of(session)
        mine = self._running[holder]
        del mine[session.session_id]
        if not mine:
            del self._running[holder]
        self._session_counts[session.owner_id] -= 1
        self._count(session, -1)
        self._forget_base(holder)
        if ended_at is not None:
            cpu, memory, fgpu = map(add, self._decayed(holder, ended_at), self._use_of(session, ended_at))
            self.set_used(holder, DecayedUsage(cpu, memory, fgpu, ended_at))

    def set_used(self, holder: Association, usage: DecayedUsage) -> None:
        """Replace what the ended sessions of a user have used, for a project or without one."""
        self._note(holder)
        self.used[holder] = usage
        self._last_ends[holder.user_id] = max(usage.at, self._last_ends.get(holder.user_id, usage.at))
        self._forget_base(holder)

    def weight(self, holder: Association) -> int:
        """Return the weight of a project as a whole, or of a user, whose weight is the same in every project."""
        found = self._known_weights.get(holder)
        if found is None:
            own = Association(0, holder.user_id) if holder.user_id else holder
            found = self._known_weights[holder] = self._weights.get(own, self._rules.default_weight)
        return found

    def due(self, waiting: Iterable[Association]) -> DueParts:
        """Return the parts due to all who wait, given here, or hold something: projects, their members, users."""
        members = self._running.keys() | set(waiting)
        holders = members | {member.branch for member in members}
        sums: Counter[Association] = Counter()
        for holder in holders:
            sums[holder.parent] += self.weight(holder)
        return {holder: self.weight(holder) / sums[holder.parent] for holder in holders}

    def assured(self, due: DueParts) -> DueParts:
        """Return the parts of the group that are assured to them."""
        return {
            holder: ASSURED_PART * part * (1 if holder.parent == ALL else due[holder.parent])
            for holder, part in due.items()
        }

    def key(self, holder: Association, request: SessionRequest, now: datetime, assured: DueParts) -> Key:
        """Return the rank of a request among those of the siblings of `holder`, its owner or the project.

        The lowest is served next. First is whose owner has held nothing and waited for the group's starvation limit,
        the longest first. Then higher priority. Then what stays within the part `assured` to the holder, whatever was
        used before. Then by use, for the weight.
        """
        owner_id = request.owner_id
        if not self._session_counts[owner_id]:
            since = max(request.queued_at, self._last_ends.get(owner_id, request.queued_at))
            if now - since >= self._rules.starvation_limit:
                return STARVING, 0, 0, (since - EPOCH) // timedelta(seconds=1)
        charge, (cpu, memory, fgpu_milli) = request.charge_percent, request.shape[:3]
        held = self._held.get(holder, _NOT_HELD)
        wanted = (  # in integers; what waits counts with the mean weight of the group
            held[0] + charge * cpu,
            held[1] + charge * memory,
            held[2] * self._gpu_milli + charge * fgpu_milli * self._weighted,
        )
        is_assured = _part(wanted, self._wanted_totals) / 100 <= assured[holder]
        return 1, -request.priority, not is_assured, self.use(holder, now)

    def use(self, holder: Association, now: datetime) -> int:
        """Return its use: microseconds of the whole group, per unit of weight; what is held counts ahead."""
        cpu, memory_bytes, weighted = self._held.get(holder, _NOT_HELD)
        held = zip(self.base(holder, now), (cpu, memory_bytes, weighted / PLAIN_WEIGHT), strict=True)
        seconds = [base + AHEAD_SECONDS * amount / 100 for base, amount in held]
        return round(SCALE * _part(seconds, self._totals) / self.weight(holder))

    def parts(self, now: datetime, parent: Association = ALL) -> dict[Association, float]:
        """Return what projects and users without one, or the members of a project, have used by now.

        In seconds of the whole group.
        """
        members = self._running.keys() | self.used.keys()
        holders = {member.branch for member in members} if parent == ALL else self._members.get(parent, set())
        return {holder: _part(self.base(holder, now), self._totals) for holder in holders}

    def base(self, holder: Association, now: datetime) -> tuple[float, float, float]:
        """Return what its sessions, ended or running, have used by `now`: core, byte and milli-fGPU seconds."""
        if now != self._now:
            self._now = now
            self._bases.clear()
        found = self._bases.get(holder)
        if found is None:
            if holder.user_id:
                uses = [self._use_of(session, now) for session in self._running.get(holder, {}).values()]
                uses.append(self._decayed(holder, now))
            else:
                uses = [_NOTHING, *(self.base(member, now) for member in self._members.get(holder, ()))]
            cpu, memory, fgpu = (fsum(column) for column in zip(*uses, strict=True))  # exact, in whatever order
            found = self._bases[holder] = cpu, memory, fgpu
        return found

    def _note(self, holder: Association) -> None:
        """Note that a project has this member."""
        if holder.project_id:
            self._members.setdefault(holder.branch, set()).add(holder)

    def _forget_base(self, holder: Association) -> None:
        self._bases.pop(holder, None)
        self._bases.pop(holder.branch, None)

    def _decayed(self, holder: Association, now: datetime) -> tuple[float, float, float]:
        usage = self.used.get(holder)
        if usage is None:
            return _NOTHING
        left = exp(-self._decay * max(0.0, (now - usage.at).total_seconds()))
        return usage.cpu_seconds * left, usage.memory_byte_seconds * left, usage.fgpu_milli_seconds * left

    def _use_of(self, session: RunningSession, now: datetime) -> tuple[float, float, float]:
        """Return what a session has used since its start, decayed to `now`."""
        ran = max(timedelta(0), now - session.started_at).total_seconds()
        seconds = (1 - exp(-self._decay * ran)) / self._decay * session.charge_percent / 100
        cpu, memory_bytes, weighted = self._amounts_of(session)
        return cpu * seconds, memory_bytes * seconds, weighted / PLAIN_WEIGHT * seconds

    def _amounts_of(self, session: RunningSession) -> tuple[int, int, int]:
        """Return its cores, bytes, and milli-fGPU times the mean weight of its GPUs, in thousandths, rounded down."""
        cpu, memory_bytes, fgpu_milli = session.shape[:3]
        weight = session.gpu_weight
        if weight is None and fgpu_milli:
            weight = (
                sum(milli * self._gpu_weights.get(gpu, PLAIN_WEIGHT) for gpu, milli in session.shares) // fgpu_milli
            )
        return cpu, memory_bytes, fgpu_milli * (weight or 0)

    def _count(self, session: RunningSession, sign: int) -> None:
        holder = association_of(session)
        for each in {holder, holder.branch}:
            held = self._held.setdefault(each, [*_NOT_HELD])
            for position, amount in enumerate(self._amounts_of(session)):
                held[position] += sign * session.charge_percent * amount


def _part(amounts: Iterable[float], totals: Iterable[float]) -> float:
    """Return the largest part that these amounts are of what the group has."""
    return max((amount / total for amount, total in zip(amounts, totals, strict=True) if total), default=0.0)
