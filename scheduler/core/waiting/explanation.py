"""Explanations: why a session waits, in a sentence for its owner. Pure.

Equal states give equal texts, as each change is stored. A sentence names what is missing and the most that is offered,
never a position in the queue or another user's sessions.
"""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final

from accounts.limits import FIELDS, PolicyLimits
from resources.amounts.units import amount_text, fgpu_text, listing, size_text
from scheduler.core.capacity.host_capacity import HostCapacity
from scheduler.core.capacity.host_types import could_hold
from scheduler.core.capacity.member_search import Room
from scheduler.core.cluster.cluster_state import ClusterState
from scheduler.core.cluster.group_state import GroupState
from scheduler.core.cluster.reservation import Reservation
from scheduler.core.queue.remaining_limits import RemainingLimits
from scheduler.core.types import (
    ARCHITECTURE_TRAIT,
    CLUSTER_TRAIT,
    CORES_TRAIT,
    FILES_TRAIT,
    GPU_MEMORY_TRAIT,
    GPU_MODEL_TRAIT,
    GPU_SIZE_TRAIT,
    IMAGE_TRAIT,
    STORAGE_TRAIT,
    HostIds,
    SessionRequest,
    Shape,
    Traits,
    WaitExplanation,
    entries_in,
)
from sessions.lifecycle import Reason

NO_HOST_TEXT: Final = "No host of this session's resource group is ready."
CLOSED_TEXT: Final = "Every ready host of this session's resource group is closed for new sessions at present."
RESERVED_TEXT: Final = (
    "What it needs is free, but kept for a session that waits in front of it: there it could start only if it were "
    "sure to end in time."
)
MAX_LENGTH: Final = 300  # characters of a session's detail
WHOLE_HOST_TEXT: Final = "What it needs is free, but kept for a session that has waited in front of it for too long."

BEYOND_CAPACITY: Final = {Reason.USER_LIMIT, Reason.PROJECT_LIMIT, Reason.NO_SUITABLE_HOST, Reason.NO_STORAGE}
BY_SIZE: Final = {Reason.NO_CAPACITY, Reason.NO_SUITABLE_HOST}  # whose texts name GPUs of one size
OTHER_SIZES_TEXT: Final = "GPUs of other sizes would do as well."

ReasonText = tuple[Reason, str]


class Explainer:
    """Explains waiting requests by the state that a pass has left; texts are cached by shape."""

    def __init__(self, cluster: ClusterState) -> None:
        """Take the state; it must not change as long as the explainer is used."""
        self._cluster = cluster
        self._shortages: dict[tuple[int, bool, Traits], Shortage] = {}  # by group, whether a GPU is divided, and traits
        self._known: dict[tuple[int, Shape], ReasonText] = {}
        self._rooms: dict[tuple[int, Shape, bool, HostIds], Room] = {}  # by group, member, GPU sharing and pins
        self._over_limit: dict[tuple[PolicyLimits, str, tuple[str, ...], Shape], ReasonText] = {}

    def explain(self, request: SessionRequest) -> WaitExplanation:
        """Return the reason and the sentence, without an estimate."""
        reason, text = self._explain_entry(request)
        if not request.alternatives:
            return WaitExplanation(request.id, reason, text)
        others = entries_in(request.group_id, request)[1:]
        for other in others:  # by GPU memory, on GPUs of another size, where it may be nearer to a start
            if reason in BEYOND_CAPACITY and (found := self._explain_entry(other))[0] not in BEYOND_CAPACITY:
                reason, text = found
        return WaitExplanation(request.id, reason, sizes_text(text, len(others)) if reason in BY_SIZE else text)

    def _explain_entry(self, request: SessionRequest) -> ReasonText:
        if self._cluster.limits.are_exceeded_by(request):
            return self._explain_limit(request)
        return self.explain_capacity(request.group_id, request.shape)

    def explain_capacity(self, group_id: int, shape: Shape) -> ReasonText:
        """Return why a group has no capacity for a shape."""
        text = self._known.get((group_id, shape))
        if text is None:
            reason, sentence = self._find_capacity_text(group_id, shape)
            text = self._known[group_id, shape] = reason, sentence + self._outlook(group_id, shape, len(sentence))
        return text

    def _outlook(self, group_id: int, shape: Shape, length: int) -> str:
        """Return what to add on hosts that are made for the group, after a text of this length."""
        outlook = self._cluster.outlooks.get(group_id)
        if outlook is None or not any(could_hold(kind, shape) for kind in outlook.types):
            return ""
        addition = f" {outlook.text}"
        return addition if length + len(addition) <= MAX_LENGTH else ""

    def _find_capacity_text(self, group_id: int, shape: Shape) -> ReasonText:
        group = self._cluster.groups.get(group_id)
        if group is None:
            return Reason.NO_HOST, CLOSED_TEXT if group_id in self._cluster.closed_groups else NO_HOST_TEXT
        reservation, room = group.reservation, Room()
        if shape.members > 1 and shape.main is None:
            one = group_id, shape.of_members(1), shape.shares_gpus, shape.pins
            room = self._rooms.get(one) or group.capacity.room_for(shape, group.reserved_hosts)
            self._rooms[one] = room
        if reservation is not None and _fits_now(shape, group, reservation, room):
            return Reason.RESERVED, WHOLE_HOST_TEXT if reservation.at is None else RESERVED_TEXT
        if not self._hosts_with(group_id, shape.traits):
            return self._missing_traits_text(group_id, shape.traits)
        divided = bool(group.gpu_capacity and shape.fgpu_milli % group.gpu_capacity)
        if shape.members > 1:
            text = cluster_text(shape, room, group.rules.core_milli)
        else:
            text = self._shortage(group_id, shape.traits, divided=divided).text(shape)
        return Reason.NO_CAPACITY, with_traits_text(text, self._phrases(shape.traits))

    def capacity_inputs(self, group_id: int, traits: Traits = ()) -> object:
        """Return all that `explain_capacity` reads of a group, for shapes with these traits but those of clusters.

        While this is equal, so are its texts.
        """
        group = self._cluster.groups.get(group_id)
        if group is None or not self._hosts_with(group_id, traits):
            return group is None
        offered = [self._shortage(group_id, traits, divided=divided).steps for divided in (True, False)]
        reservation = group.reservation
        if reservation is None:
            return offered, None
        amounts = [
            (
                host.traits.issuperset(traits),
                host.cpu,
                host.memory_bytes,
                tuple(host.sorted_free),
                host.granularity_milli,
            )
            for host in reservation.hosts
        ]
        return offered, (reservation.at is None, amounts)

    def _hosts_with(self, group_id: int, traits: Traits) -> Sequence[HostCapacity]:
        """Return the hosts of a group that have these traits."""
        hosts = self._cluster.groups[group_id].capacity.hosts
        return [host for host in hosts if host.traits.issuperset(traits)] if traits else hosts

    def _missing_traits_text(self, group_id: int, traits: Traits) -> ReasonText:
        """Return which of the traits no host of the group has; all of them where no host has all."""
        hosts = self._cluster.groups[group_id].capacity.hosts
        missing = [trait for trait in traits if not any(trait in host.traits for host in hosts)] or traits
        if all(kind_of(trait) == STORAGE_TRAIT for trait in missing):
            return Reason.NO_STORAGE, storage_text([self._name(trait) for trait in missing])
        return Reason.NO_SUITABLE_HOST, unsuitable_text(self._phrases(missing))

    def _name(self, trait: str) -> str:
        return self._cluster.trait_names.get(trait, trait.partition(":")[2])

    def _phrases(self, traits: Sequence[str]) -> list[str]:
        """Return what a host with these traits has, in words."""
        if not traits:
            return []
        names = {
            kind: [self._name(trait) for trait in traits if kind_of(trait) == kind]
            for kind in (
                *(ARCHITECTURE_TRAIT, CORES_TRAIT, STORAGE_TRAIT),
                *(GPU_MODEL_TRAIT, GPU_MEMORY_TRAIT, GPU_SIZE_TRAIT, IMAGE_TRAIT, CLUSTER_TRAIT, FILES_TRAIT),
            )
        }
        found = [f"a CPU of architecture {name}" for name in names[ARCHITECTURE_TRAIT]]
        amounts = [amount_text("cpu", int(cores)) for cores in names[CORES_TRAIT]]
        found += [f"{amount} or more" for amount in amounts]
        if names[STORAGE_TRAIT]:
            found.append(f"the storage {listing(names[STORAGE_TRAIT])}")
        found += [f"GPUs of the model {name}" for name in names[GPU_MODEL_TRAIT]]
        found += [f"GPUs of {size_text(int(size))} or more" for size in names[GPU_MEMORY_TRAIT]]
        found += [f"GPUs of {size_text(int(size.partition(':')[0]))}" for size in names[GPU_SIZE_TRAIT]]
        found += [f"the image {name}" for name in names[IMAGE_TRAIT]]
        found += ["networks for clusters" for _ in names[CLUSTER_TRAIT]]
        return found + [f"the files of this parked session, which are on host {name}" for name in names[FILES_TRAIT]]

    def _shortage(self, group_id: int, traits: Traits, *, divided: bool) -> "Shortage":
        divided = divided and not self._cluster.groups[group_id].divides
        shortage = self._shortages.get((group_id, divided, traits))
        if shortage is None:
            hosts, core_milli = self._hosts_with(group_id, traits), self._cluster.groups[group_id].rules.core_milli
            shortage = Shortage(hosts, divided=divided, core_milli=core_milli)
            self._shortages[group_id, divided, traits] = shortage
        return shortage

    def _explain_limit(self, request: SessionRequest) -> ReasonText:
        user, *_ = remaining = self._cluster.limits.of(request.owner_id, request.project_id)
        exceeded = next(limits for limits in remaining if limits.are_exceeded_by(request))
        whose = "Your policy" if exceeded is user else "Your project"
        names = _exceeded_amounts(exceeded, request)
        key = (exceeded.limits, whose, names, request.shape)
        text = self._over_limit.get(key)
        if text is None:
            reason = Reason.USER_LIMIT if exceeded is user else Reason.PROJECT_LIMIT
            asked = asked_by(request) | {"sessions": request.members}
            text = self._over_limit[key] = reason, limit_text(exceeded.limits, names, asked, whose)
        return text


def _exceeded_amounts(remaining: RemainingLimits, request: SessionRequest) -> tuple[str, ...]:
    """Return the names of the amounts in which the request is above the remaining limits, as in `FIELDS`."""
    if remaining.sessions < request.members:
        return ("sessions",)
    left = {"cpu": remaining.cpu, "memory": remaining.memory_bytes, "fgpu": remaining.fgpu_milli}
    asked = asked_by(request)
    return tuple(name for name in FIELDS if name in left and left[name] < asked[name])


def kind_of(trait: str) -> str:
    """Return the kind of a trait, such as `STORAGE_TRAIT`."""
    return trait.partition(":")[0]


def storage_text(names: Sequence[str]) -> str:
    """Return the sentence for a request whose folders lie on storage roots that no host of its group has."""
    text = f"No ready host of this session's resource group has the storage of its folders now: {listing(names)}."
    return text if len(text) <= MAX_LENGTH else text.partition(":")[0] + "."


def unsuitable_text(phrases: Sequence[str]) -> str:
    """Return the sentence for a request for which no host of its group has all of `phrases`."""
    text = f"No ready host of this session's resource group has {listing(phrases)}."
    return text if len(text) <= MAX_LENGTH else "No ready host of this session's resource group suits its image."


def with_traits_text(text: str, phrases: Sequence[str]) -> str:
    """Return a sentence on missing capacity, and that only hosts with `phrases` count, where that has room."""
    addition = f" Only hosts with {listing(phrases)} count." if phrases else ""
    return text + addition if len(text + addition) <= MAX_LENGTH else text


def sizes_text(text: str, others: int) -> str:
    """Return a sentence on GPUs of one size, and that others would do, if there are so many and it has room."""
    return f"{text} {OTHER_SIZES_TEXT}" if others and len(text) + len(OTHER_SIZES_TEXT) < MAX_LENGTH else text


def asked_by(request: SessionRequest) -> dict[str, int]:
    """Return what a request asks for, and limits count, by the names in `FIELDS`, which `amount_text` takes."""
    return {"cpu": request.cpu, "memory": request.memory_bytes, "fgpu": request.fgpu_milli}


def amounts_of(shape: Shape, core_milli: int) -> dict[str, int]:
    """Return the amounts of a shape by the same names: the cores that a session has by what it takes for each."""
    return {"cpu": shape.cpu // core_milli, "memory": shape.memory_bytes, "fgpu": shape.fgpu_milli}


def limit_text(limits: PolicyLimits, over: Sequence[str], asked: Mapping[str, int], whose: str = "Your policy") -> str:
    """Return the sentence for a request that would exceed `limits` in those of its amounts that are named in `over`."""
    who = "you would" if whose == "Your policy" else "its members would"
    if "sessions" in over:
        return _sessions_text(limits.sessions or 0, asked["sessions"], whose, who)
    allowed = listing([amount_text(field, getattr(limits, field)) for field in over])
    amounts = listing([amount_text(field, asked[field]) for field in over])
    return f"{whose} allows {allowed} at once; with the {amounts} of this session {who} hold more."


def _sessions_text(limit: int, members: int, whose: str, who: str) -> str:
    if limit == 0:
        return f"{whose} allows no running sessions."
    if members > 1:
        return (
            f"{whose} allows {limit} running sessions at once; with the {members} members of this cluster {who} hold "
            "more."
        )
    if limit == 1:
        return f"{whose} allows 1 running session at once, and it is in use."
    return f"{whose} allows {limit} running sessions at once, and all are in use."


def eta_reason_text(request: SessionRequest, free: Shape, ended: int, was_over_limit: bool, core_milli: int = 1) -> str:
    """Return a clause that says why a session starts at its estimate.

    `ended` sessions on its host, or hosts, reach their time limit by then, and `free` was free there before: what was
    short is named, else the main resource. `was_over_limit`: until then a limit forbids it. `core_milli` is that of its
    group.
    """
    if was_over_limit:
        return "by then enough of the sessions that count against the same limit reach their time limit"
    if not ended:
        return "the sessions in front of it start by then"
    if request.members > 1:
        return f"its {request.members} members have room when {_limits_reached(ended)}"
    asked, had = asked_by(request), amounts_of(free, core_milli)
    short = [name for name in asked if asked[name] > had[name]] or ["fgpu" if request.fgpu_milli else "cpu"]
    falls = "falls" if len(short) == 1 and (short[0] != "cpu" or request.cpu == 1) else "fall"
    return f"{listing([amount_text(name, asked[name]) for name in short])} {falls} free when {_limits_reached(ended)}"


def _limits_reached(count: int) -> str:
    return "1 session reaches its time limit" if count == 1 else f"{count} sessions reach their time limit"


def _fits_now(shape: Shape, group: GroupState, reservation: Reservation, room: Room) -> bool:
    """Return whether hosts have what a shape needs, reserved ones too."""
    if shape.main:
        return group.capacity.has_room(shape, group.reserved_hosts)
    return fits_members(shape, room) if shape.members > 1 else reservation.fits(shape)


def fits_members(shape: Shape, room: Room) -> bool:
    """Return whether there is room for all members of a cluster, which are of equal size."""
    if shape.mode == "any":
        return shape.members <= room.together
    return shape.members <= (room.hosts if shape.mode == "spread" else room.on_one_host)


def cluster_text(shape: Shape, room: Room, core_milli: int) -> str:
    """Return the sentence for a cluster: what it needs, and how much of that is there."""
    each = _each_text(shape.of_members(1), core_milli)
    if shape.main:
        return _main_text(shape, each, core_milli)
    members, hosts, found, most = shape.members, room.hosts, room.together, room.on_one_host
    if shape.pins:
        return f"Needs {members} members with {each} each on the hosts with their files: there is room for {found} now."
    if not found:
        return f"Needs {members} members with {each} each: no host has room for one now."
    if shape.mode == "single-host":
        return f"Needs {members} members with {each} each on one host: a host has room for {most} at most now."
    if shape.mode == "spread":
        if room.are_models_apart:
            return f"Needs {members} hosts with {each} each, of one GPU model: there is room on {hosts} of them now."
        return f"Needs {members} hosts with {each} each: there is room on {hosts} of them now."
    if room.are_models_apart:
        return f"Needs {members} members with {each} each, on GPUs of one model: there is room for {found} now."
    return f"Needs {members} members with {each} each: there is room for {found} now."


def _main_text(shape: Shape, each: str, core_milli: int) -> str:
    """Return the sentence for a cluster whose first member has amounts of its own."""
    first, more = _each_text(shape.of_members(1, with_main=True), core_milli), shape.members - 1
    if shape.mode == "single-host":
        return f"Needs main1 with {first} and {more} more with {each} each on one host: no host has room for all now."
    if shape.mode == "spread":
        return f"Needs main1 with {first} and {more} more with {each} each, on a host each: not all have room now."
    if shape.pins:
        return f"Needs main1 with {first} and {more} more with {each} each, where their files are: not all have room."
    return f"Needs main1 with {first} and {more} more with {each} each: not all have room now."


@lru_cache(maxsize=1024)
def _each_text(one: Shape, core_milli: int) -> str:
    """Return what a member needs: equal for clusters of many sizes."""
    return listing([amount_text(name, amount) for name, amount in amounts_of(one, core_milli).items() if amount])


class Shortage:
    """What a group lacks for a shape that fits on none of its hosts; texts are cached by shape.

    The texts depend on `steps` alone: by descending GPU, each (milli-fGPU, cores, bytes) where the most cores or bytes
    on a host with at least that much GPU grows.
    """

    def __init__(self, hosts: Collection[HostCapacity], *, divided: bool = False, core_milli: int = 1) -> None:
        """Take the hosts of the group, at least one, as the pass has left them, and what a session's core takes there.

        `divided`: for shapes that need a part of a GPU. Hosts that lend whole GPUs only then count as without GPU.
        """
        most: dict[int, tuple[int, int]] = {}  # by milli-fGPU offered: the most cores and bytes of such hosts
        for host in hosts:
            fgpu_milli = 0 if divided and host.granularity_milli > 1 else host.max_request_milli
            cpu, memory_bytes = most.get(fgpu_milli, (0, 0))
            if host.cpu > cpu or host.memory_bytes > memory_bytes or fgpu_milli not in most:
                most[fgpu_milli] = max(cpu, host.cpu), max(memory_bytes, host.memory_bytes)
        self._core_milli = core_milli
        self._texts: dict[Shape, str] = {}
        self._gpu_capacity = max(host.gpu_capacity for host in hosts)  # 0 without GPUs
        self._none_divides = divided and all(host.granularity_milli > 1 for host in hosts if host.gpu_capacity)
        self.steps: list[tuple[int, int, int]] = []
        cpu = memory_bytes = 0
        for fgpu_milli, amounts in sorted(most.items(), reverse=True):
            if not self.steps or amounts[0] > cpu or amounts[1] > memory_bytes:
                cpu, memory_bytes = max(cpu, amounts[0]), max(memory_bytes, amounts[1])
                self.steps.append((fgpu_milli, cpu, memory_bytes))
        self._negated_fgpus = [-fgpu_milli for fgpu_milli, _, _ in self.steps]  # ascending, for bisect

    def text(self, shape: Shape) -> str:
        """Return what no host has; else what no host has beside the GPU asked for; else that it is not together."""
        text = self._texts.get(shape)
        if text is None:
            text = self._texts[shape] = self._compose(shape)
        return text

    def _compose(self, shape: Shape) -> str:
        """Return one to three sentences, within the 300 characters of a session's detail."""
        alone = self._missing_cpu_and_memory(shape, len(self._negated_fgpus), "")
        if shape.fgpu_milli > self._most_fgpu_milli:
            alone.insert(0, self._gpu_text(shape.fgpu_milli))
        if alone:
            return " ".join(alone)
        beside_gpu = bisect_right(self._negated_fgpus, -shape.fgpu_milli)  # number of steps with the GPU asked for
        beside = self._missing_cpu_and_memory(shape, beside_gpu, " beside the GPU asked for")
        if beside:
            return " ".join(beside)
        amounts = amounts_of(shape, self._core_milli)
        wanted = listing([amount_text(name, amount) for name, amount in amounts.items() if amount])
        return f"Waiting for {wanted} on one host: each is free somewhere, but not all on the same host."

    @property
    def _most_fgpu_milli(self) -> int:
        return -self._negated_fgpus[0]

    def _missing_cpu_and_memory(self, shape: Shape, step_count: int, beside: str) -> list[str]:
        """Return a sentence for each amount that no host of the first `step_count` steps has."""
        texts = []
        _, cpu, memory_bytes = self.steps[step_count - 1] if step_count else (0, 0, 0)
        if shape.cpu > cpu:
            asked, cores = shape.cpu // self._core_milli, cpu // self._core_milli
            is_free = f"at most {cores} {'is' if cores == 1 else 'are'} free" if cores else "none is free"
            texts.append(f"Waiting for {amount_text('cpu', asked)} on one host: {is_free}{beside}.")
        if shape.memory_bytes > memory_bytes:
            is_free = f"at most {size_text(memory_bytes)} is free" if memory_bytes else "none is free"
            texts.append(f"Waiting for {amount_text('memory', shape.memory_bytes)} on one host: {is_free}{beside}.")
        return texts

    def _gpu_text(self, fgpu_milli: int) -> str:
        wanted = f"Waiting for {amount_text('fgpu', fgpu_milli)}"
        most = fgpu_text(self._most_fgpu_milli)
        if not self._gpu_capacity:
            return f"{wanted}: no ready host of this session's resource group has a GPU."
        if self._none_divides:
            return f"{wanted}: no ready host of this session's resource group can divide a GPU; whole ones can be had."
        if fgpu_milli <= self._gpu_capacity:
            return f"{wanted} on one GPU: the most that is free on a single GPU is {most}."
        whole, part = divmod(fgpu_milli, self._gpu_capacity)
        parts = ["1 whole GPU" if whole == 1 else f"{whole} whole GPUs"]
        if part:
            parts.append(f"{fgpu_text(part)} fGPU of another")
        return f"{wanted} on one host, as {listing(parts)}: the most that one host can give this way is {most}."
