"""Why a session waits, in a sentence for its owner. Pure.

The same state gives the same text, for each change is stored. Sentences name what is missing and the most that is
offered, never the place in the queue or who holds what.
"""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import Final

from accounts.limits import FIELDS, PolicyLimits
from resources.units import amount_text, fgpu_text, listing, size_text
from scheduler.core.cluster_state import ClusterState, RemainingLimits
from scheduler.core.host_capacity import HostCapacity
from scheduler.core.types import SessionRequest, Shape, WaitExplanation
from sessions.lifecycle import Reason

NO_HOST_TEXT: Final = "No host of this session's resource group is ready."
CLOSED_TEXT: Final = "Every ready host of this session's resource group is closed for new sessions at present."
RESERVED_TEXT: Final = (
    "What it needs is free, but kept for a session that waits in front of it: there it could start only if it were "
    "sure to end in time."
)
HELD_TEXT: Final = "What it needs is free, but kept for a session that has waited in front of it for too long."

ReasonText = tuple[Reason, str]


class Explainer:
    """Says why requests wait, by the state that a pass has left on its board; cheap to ask for many of a kind."""

    def __init__(self, cluster: ClusterState) -> None:
        """Take the board; it must not change before the last question."""
        self._cluster = cluster
        self._shortages: dict[tuple[int, bool], Shortage] = {}  # by group, and whether a GPU must be divided
        self._known: dict[tuple[int, Shape], ReasonText] = {}
        self._over_limit: dict[tuple[PolicyLimits, str, tuple[str, ...], Shape], ReasonText] = {}

    def explain(self, request: SessionRequest) -> WaitExplanation:
        """Return the reason, and the sentence for the owner."""
        if self._cluster.exceeds_limit(request):
            return WaitExplanation(request.id, *self._limit(request))
        return WaitExplanation(request.id, *self.explain_shortage(request.group_id, request.shape))

    def explain_shortage(self, group_id: int, shape: Shape) -> ReasonText:
        """Return why there is no room for a shape in a group."""
        reason_text = self._known.get((group_id, shape))
        if reason_text is None:
            reason_text = self._known[group_id, shape] = self._explain_shortage(group_id, shape)
        return reason_text

    def _explain_shortage(self, group_id: int, shape: Shape) -> ReasonText:
        group = self._cluster.groups.get(group_id)
        if group is None:
            return Reason.NO_HOST, CLOSED_TEXT if group_id in self._cluster.closed_groups else NO_HOST_TEXT
        state = group.reservation
        if state is not None and state.host.fits(shape):
            return Reason.RESERVED, HELD_TEXT if state.at is None else RESERVED_TEXT
        divided = bool(group.gpu_capacity and shape.fgpu % group.gpu_capacity)
        return Reason.NO_CAPACITY, self._shortage(group_id, divided=divided).text(shape)

    def explanation_inputs(self, group_id: int) -> object:
        """Return what all that `words` says of a group hangs on: as long as it is equal, so are the words."""
        group = self._cluster.groups.get(group_id)
        if group is None:
            return None
        offered = [self._shortage(group_id, divided=divided).steps for divided in (True, False)]
        state = group.reservation
        if state is None:
            return offered, None
        return offered, (state.at is None, state.host.cpu, state.host.memory, state.host.fgpu, state.host.granularity)

    def _shortage(self, group_id: int, *, divided: bool) -> "Shortage":
        group = self._cluster.groups[group_id]
        divided = divided and not group.divides
        shortage = self._shortages.get((group_id, divided))
        if shortage is None:
            shortage = self._shortages[group_id, divided] = Shortage(group.capacity.hosts, divided=divided)
        return shortage

    def _limit(self, request: SessionRequest) -> ReasonText:
        user, *_ = limits_of = self._cluster.limits_of(request.owner_id, request.project_id)
        holder = next(allowance for allowance in limits_of if allowance.exceeds_limit(request))
        whose = "Your policy" if holder is user else "Your project"
        over = _over(holder, request)
        key = (holder.limits, whose, over, request.shape)
        reason_text = self._over_limit.get(key)
        if reason_text is None:
            reason = Reason.USER_LIMIT if holder is user else Reason.PROJECT_LIMIT
            reason_text = self._over_limit[key] = reason, limit_text(holder.limits, over, request.shape, whose)
        return reason_text


def _over(holder: RemainingLimits, request: SessionRequest) -> tuple[str, ...]:
    """Return the amounts in which the request is above what `holder` may still take."""
    if holder.sessions < 1:
        return ("sessions",)
    return tuple(name for name in FIELDS if name != "sessions" and getattr(holder, name) < getattr(request, name))


def limit_text(limits: PolicyLimits, over: Sequence[str], shape: Shape, whose: str = "Your policy") -> str:
    """Return the sentence for a request that would exceed `limits` in the amounts named in `over`."""
    if "sessions" in over:
        return _sessions_text(limits.sessions or 0, whose)
    allowed = listing([amount_text(field, getattr(limits, field)) for field in over])
    asked = listing([amount_text(field, getattr(shape, field)) for field in over])
    who = "you would" if whose == "Your policy" else "its members would"
    return f"{whose} allows {allowed} at once; with the {asked} of this session {who} hold more."


def _sessions_text(limit: int, whose: str) -> str:
    if limit == 0:
        return f"{whose} allows no running sessions."
    if limit == 1:
        return f"{whose} allows 1 running session at once, and it is in use."
    return f"{whose} allows {limit} running sessions at once, and all are in use."


def eta_reason_text(request: SessionRequest, ended: int, was_over_limit: bool) -> str:
    """Return why a session starts when it is said to: `ended` sessions on its host have reached their limit by then."""
    if was_over_limit:
        return "by then enough of the sessions that count against the same limit reach their time limit"
    asked = amount_text("fgpu", request.fgpu) if request.fgpu else amount_text("cpu", request.cpu)
    if not ended:
        return "the sessions in front of it start by then"
    falls = "falls" if request.fgpu or request.cpu == 1 else "fall"
    return f"{asked} {falls} free when {_limits_reached(ended)}"


def _limits_reached(count: int) -> str:
    return "1 session reaches its time limit" if count == 1 else f"{count} sessions reach their time limit"


class Shortage:
    """Says what a group lacks for a shape that fits on none of its hosts; cheap to ask for many shapes.

    All that it says hangs on `steps`: the most GPU that a host has; and for less and less GPU, wherever hosts with no
    less have more of them, the most cores and bytes.
    """

    def __init__(self, hosts: Collection[HostCapacity], *, divided: bool = False) -> None:
        """Take the rooms of the group's hosts, at least one, as the pass has left them.

        `divided`: for shapes that need a part of a GPU. Hosts that lend whole ones only have no GPU for them.
        """
        most: dict[int, tuple[int, int]] = {}  # cores and bytes that hosts with so much GPU have, each at the most
        for host in hosts:
            fgpu = 0 if divided and host.granularity > 1 else host.fgpu
            cpu, memory = most.get(fgpu, (0, 0))
            if host.cpu > cpu or host.memory > memory or fgpu not in most:
                most[fgpu] = max(cpu, host.cpu), max(memory, host.memory)
        self._texts: dict[Shape, str] = {}
        self._gpu_capacity = max(host.gpu_capacity for host in hosts)  # 0 without GPUs
        self._none_divides = divided and all(host.granularity > 1 for host in hosts if host.gpu_capacity)
        self.steps: list[tuple[int, int, int]] = []
        cpu = memory = 0
        for fgpu, amounts in sorted(most.items(), reverse=True):
            if not self.steps or amounts[0] > cpu or amounts[1] > memory:
                cpu, memory = max(cpu, amounts[0]), max(memory, amounts[1])
                self.steps.append((fgpu, cpu, memory))
        self._negated_fgpus = [-fgpu for fgpu, _, _ in self.steps]  # ascending, for bisect

    def text(self, shape: Shape) -> str:
        """Return what no host has; else what no host has beside the GPU asked for; else that it is not together."""
        text = self._texts.get(shape)
        if text is None:
            text = self._texts[shape] = self._compose(shape)
        return text

    def _compose(self, shape: Shape) -> str:
        """Write the sentence, or up to three; together they stay within the 300 characters of a session's detail."""
        alone = self._missing_cpu_and_memory(shape, len(self._negated_fgpus), "")
        if shape.fgpu > self._most_fgpu:
            alone.insert(0, self._gpu_text(shape.fgpu))
        if alone:
            return " ".join(alone)
        beside_gpu = bisect_right(self._negated_fgpus, -shape.fgpu)  # how many steps have the GPU asked for
        beside = self._missing_cpu_and_memory(shape, beside_gpu, " beside the GPU asked for")
        if beside:
            return " ".join(beside)
        wanted = listing([amount_text(field, amount) for field, amount in shape._asdict().items() if amount])
        return f"Waiting for {wanted} on one host: each is free somewhere, but not all on the same host."

    @property
    def _most_fgpu(self) -> int:
        return -self._negated_fgpus[0]

    def _missing_cpu_and_memory(self, shape: Shape, steps: int, where: str) -> list[str]:
        """Return a sentence for each that hosts of the first `steps`, in order of GPU, do not have."""
        texts = []
        _, cpu, memory = self.steps[steps - 1] if steps else (0, 0, 0)
        if shape.cpu > cpu:
            is_free = f"at most {cpu} {'is' if cpu == 1 else 'are'} free" if cpu else "none is free"
            texts.append(f"Waiting for {amount_text('cpu', shape.cpu)} on one host: {is_free}{where}.")
        if shape.memory > memory:
            is_free = f"at most {size_text(memory)} is free" if memory else "none is free"
            texts.append(f"Waiting for {amount_text('memory', shape.memory)} on one host: {is_free}{where}.")
        return texts

    def _gpu_text(self, fgpu: int) -> str:
        wanted = f"Waiting for {amount_text('fgpu', fgpu)}"
        most = fgpu_text(self._most_fgpu)
        if not self._gpu_capacity:
            return f"{wanted}: no ready host of this session's resource group has a GPU."
        if self._none_divides:
            return f"{wanted}: no ready host of this session's resource group can divide a GPU; whole ones can be had."
        if fgpu <= self._gpu_capacity:
            return f"{wanted} on one GPU: the most that is free on a single GPU is {most}."
        whole, remainder = divmod(fgpu, self._gpu_capacity)
        parts = ["1 whole GPU" if whole == 1 else f"{whole} whole GPUs"]
        if remainder:
            parts.append(f"{fgpu_text(remainder)} fGPU of another")
        return f"{wanted} on one host, as {listing(parts)}: the most that one host can give this way is {most}."
