"""Free capacity of one host, while sessions are placed and end. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from scheduler.core.capacity.gpu_closeness import GpuCloseness, closeness_of
from scheduler.core.types import GPU_MODEL_TRAIT, Closeness, GpuView, Shape, Shares, Topology

MAX_MEMBERS: Final = 1 << 20  # of a cluster: beyond any
Rank = tuple[int, ...]  # of a host under a placement policy: the lowest is preferred; ends with index and version


class HostCapacity:
    """Free capacity of one host.

    `max_request_milli` is the largest GPU request that fits on its devices now: its whole free devices plus the largest
    part free on another. As a request takes whole devices and at most one part, it fits exactly if it is not larger.
    A host that does not divide its devices takes multiples of `granularity_milli` only: of a whole device.
    `device_free` is the free milli-fGPU by device, `sorted_free` the same ascending, `total_free` their sum.
    `device_owed` is what was taken beyond that, by sessions that will hold it once others have ended (`preemption`).
    `closeness` is None where it makes no difference which whole devices a session gets.
    """

    __slots__ = (
        "changed_in",
        "closeness",
        "cpu",
        "device_free",
        "device_owed",
        "gpu_capacity",
        "gpu_ids",
        "gpu_model",
        "granularity_milli",
        "host_id",
        "index",
        "is_reserved",
        "max_request_milli",
        "memory_bytes",
        "rank",
        "sorted_free",
        "topology",
        "total_free",
        "traits",
        "useless",
        "version",
    )

    def __init__(
        self,
        *,
        host_id: int,
        index: int,
        cpu: int,
        memory_bytes: int,
        gpus: Sequence[GpuView],
        divides: bool = True,
        traits: frozenset[str] = frozenset(),
        closeness: Closeness = (),
        topology: Topology = (),
    ) -> None:
        """Take the free amounts of the host and its devices; `index` is its position among the hosts of its group."""
        self.host_id, self.index = host_id, index
        self.cpu, self.memory_bytes = cpu, memory_bytes
        self.traits, self.topology = traits, topology
        self.gpu_capacity = gpus[0].capacity_milli if gpus else 0
        self.granularity_milli = 1 if divides else self.gpu_capacity or 1
        self.gpu_ids = [gpu.id for gpu in gpus]
        self.gpu_model = next((trait for trait in sorted(traits) if trait.startswith(f"{GPU_MODEL_TRAIT}:")), "")
        self.device_free = [max(0, gpu.free_milli) for gpu in gpus]
        self.device_owed = [max(0, -gpu.free_milli) for gpu in gpus]
        self.closeness = closeness_of(closeness)
        self.is_reserved = False  # hidden from the search of its group
        self.version = 0  # number of the latest change in its group that touched this host
        self.changed_in: dict[int, HostCapacity] | None = None  # bucket of changed hosts that holds it, by index
        self.rank: Rank = ()  # under policies that do not depend on the shape
        self.useless: int | None = None  # free GPU of no use, as the policy measures it; None: not known
        self.update_totals()

    def update_totals(self) -> None:
        """Derive `total_free`, `sorted_free` and `max_request_milli` from `device_free`."""
        device_free, gpu_capacity = self.device_free, self.gpu_capacity
        self.total_free, self.useless = sum(device_free), None
        self.sorted_free = sorted_free = sorted(device_free)
        self.max_request_milli = device_free.count(gpu_capacity) * gpu_capacity
        parts = bisect_left(sorted_free, gpu_capacity)
        if parts and self.granularity_milli == 1:
            self.max_request_milli += sorted_free[parts - 1]

    def fits(self, shape: Shape) -> bool:
        """Return whether the host can take `shape` now."""
        return (
            (self.max_request_milli >= shape.fgpu_milli or shape.members > 1)
            and self.cpu >= shape.cpu
            and self.memory_bytes >= shape.memory_bytes
            and not shape.fgpu_milli % self.granularity_milli
            and (
                shape.members == 1
                or self._members_on_gpus(shape.member_milli, shares_gpus=shape.shares_gpus) >= shape.gpu_members
            )
            and (not shape.traits or self.traits.issuperset(shape.traits))
        )

    def member_count(self, one: Shape, *, shares_gpus: bool) -> int:
        """Return how many members the host can take now that need `one` each."""
        if not self.fits(one):
            return 0
        by_amounts = min(self.cpu // max(1, one.cpu), self.memory_bytes // max(1, one.memory_bytes))
        return min(by_amounts, self._members_on_gpus(one.fgpu_milli, shares_gpus=shares_gpus))

    def members_beside(self, main: Shape, one: Shape, *, shares_gpus: bool) -> int:
        """Return how many members that need `one` each the host can take beside the first; -1 where not the first."""
        if not self.fits(main):
            return -1
        by_cpu, by_memory = (self.cpu - main.cpu) // max(1, one.cpu), self.memory_bytes - main.memory_bytes
        on_gpus = self._members_on_gpus(one.fgpu_milli, shares_gpus=shares_gpus)
        if main.fgpu_milli and one.fgpu_milli:  # as much
            on_gpus -= 1
        return max(0, min(by_cpu, by_memory // max(1, one.memory_bytes), on_gpus))

    def _members_on_gpus(self, each: int, *, shares_gpus: bool) -> int:
        """Return for how many members the free GPUs are enough; MAX_MEMBERS without GPU."""
        whole = self.gpu_capacity
        if not each:
            return MAX_MEMBERS
        if each % self.granularity_milli or (each > whole and each % (whole or 1)):
            return 0  # a member gets whole devices, or a part of one
        if each >= whole:
            return self.device_free.count(whole) // (each // whole) if whole else 0
        if not shares_gpus:
            return len(self.sorted_free) - bisect_left(self.sorted_free, each)
        return sum(free // each for free in self.device_free)

    def part_devices(self, fgpu_milli: int) -> list[int]:
        """Return the devices that can give the part of a request that fits and leave enough whole ones for its rest."""
        whole, part = divmod(fgpu_milli, self.gpu_capacity)
        free = self.device_free
        has_spare = free.count(self.gpu_capacity) > whole
        return [d for d, amount in enumerate(free) if part <= amount and (has_spare or amount < self.gpu_capacity)]

    def equals(self, other: "HostCapacity") -> bool:
        """Return whether both have the same amounts free and the same traits, and are both reserved or both not."""
        return (
            self.sorted_free == other.sorted_free
            and self.cpu == other.cpu
            and self.memory_bytes == other.memory_bytes
            and self.granularity_milli == other.granularity_milli
            and self.is_reserved == other.is_reserved
            and self.traits == other.traits
        )

    def split(self, fgpu_milli: int, part_devices: Sequence[int]) -> dict[int, int]:
        """Return {device index: milli-fGPU} for a request that fits.

        It consists of whole devices, and a part on the first of `part_devices`, as the method of this name returns
        them. Where closeness is known, free devices are chosen by it: instead of a whole one for the part, another
        whole one may be taken.
        """
        if fgpu_milli and self.closeness is not None:
            return self._close_split(self.closeness, *divmod(fgpu_milli, self.gpu_capacity), part_devices)
        return self.first_split(fgpu_milli, part_devices)

    def first_split(self, fgpu_milli: int, part_devices: Sequence[int]) -> dict[int, int]:
        """As `split`, with the first free devices, whichever are close: what is left are the same amounts."""
        if not fgpu_milli:
            return {}
        whole, part = divmod(fgpu_milli, self.gpu_capacity)
        if not whole:
            return {part_devices[0]: part}
        if fgpu_milli == self.gpu_capacity:
            return {self.device_free.index(fgpu_milli): fgpu_milli}
        split = {part_devices[0]: part} if part else {}
        unused = [d for d, free in enumerate(self.device_free) if free == self.gpu_capacity and d not in split]
        split.update(dict.fromkeys(unused[:whole], self.gpu_capacity))
        return split

    def split_members(self, shape: Shape, *, most_free_first: bool) -> dict[int, int]:
        """Return {device index: milli-fGPU} for the members of a cluster that fits.

        Parts are taken of the devices with the least free, or with the most.
        """
        each, left = shape.member_milli, shape.gpu_members
        if not each or not each % self.gpu_capacity:
            return self.split(shape.fgpu_milli, ())
        split: dict[int, int] = {}
        free, sign = self.device_free, -1 if most_free_first else 1
        for device in sorted(range(len(free)), key=lambda device: (sign * free[device], device)):
            count = min(left, free[device] // each if shape.shares_gpus else int(free[device] >= each))
            if count:
                split[device] = count * each
                left -= count
        return split

    def _close_split(
        self, closeness: GpuCloseness, whole: int, part: int, part_devices: Sequence[int]
    ) -> dict[int, int]:
        capacity = self.gpu_capacity
        if not whole and self.device_free[part_devices[0]] < capacity:
            return {part_devices[0]: part}
        free = [device for device, amount in enumerate(self.device_free) if amount == capacity]
        if not part:
            return dict.fromkeys(closeness.choose(free, whole), capacity)
        device = part_devices[0]
        if self.device_free[device] < capacity:
            return {device: part} | dict.fromkeys(closeness.choose(free, whole, device), capacity)
        device, *others = closeness.choose(free, whole + 1)
        return {device: part} | dict.fromkeys(others, capacity)

    def closeness_for(self, fgpu_milli: int, *, when_empty: bool = False) -> int:
        """Return how close to each other the whole devices are that a request would get if it fits; 0 if not known.

        `when_empty`: were all devices free.
        """
        if self.closeness is None:
            return 0
        free = [device for device, amount in enumerate(self.device_free) if when_empty or amount == self.gpu_capacity]
        return self.closeness.total(self.closeness.choose(free, fgpu_milli // self.gpu_capacity))

    def take(self, shape: Shape, split: dict[int, int]) -> Shares:
        """Take `shape`, split over the devices as given; return the shares in device order."""
        self.cpu -= shape.cpu
        self.memory_bytes -= shape.memory_bytes
        self.useless = None
        if not split:
            return ()
        for device, share in split.items():
            self.device_free[device] -= share
        self.update_totals()
        if len(split) == 1:  # by far the most frequent case
            ((device, share),) = split.items()
            return ((self.gpu_ids[device], share),)
        return tuple((self.gpu_ids[device], split[device]) for device in sorted(split))

    def give_back(self, shape: Shape, shares: Shares, sign: int = 1) -> None:
        """Return what an ended session held, or take it (`sign` -1); shares of devices that are gone are dropped."""
        self.cpu += sign * shape.cpu
        self.memory_bytes += sign * shape.memory_bytes
        for gpu_id, share in shares:
            if gpu_id in self.gpu_ids:
                device = self.gpu_ids.index(gpu_id)
                balance = self.device_free[device] - self.device_owed[device] + sign * share
                self.device_free[device], self.device_owed[device] = max(0, balance), max(0, -balance)
        self.update_totals()

    def covers(self, shares: Shares) -> bool:
        """Return whether all that was taken is there: of the cores, the memory and the devices of these shares."""
        owed = {gpu_id for gpu_id, amount in zip(self.gpu_ids, self.device_owed, strict=True) if amount}
        gpu_ids = {gpu_id for gpu_id, _ in shares}
        return self.cpu >= 0 and self.memory_bytes >= 0 and not owed & gpu_ids and gpu_ids <= {*self.gpu_ids}

    def copy(self) -> "HostCapacity":
        """Return an independent copy, unversioned and unranked."""
        copy: HostCapacity = object.__new__(HostCapacity)  # written out for speed: a forecast copies all hosts
        copy.host_id, copy.index = self.host_id, self.index
        copy.gpu_capacity, copy.granularity_milli = self.gpu_capacity, self.granularity_milli
        copy.gpu_ids, copy.gpu_model, copy.topology = self.gpu_ids, self.gpu_model, self.topology
        copy.cpu, copy.memory_bytes, copy.traits = self.cpu, self.memory_bytes, self.traits
        copy.max_request_milli, copy.total_free = self.max_request_milli, self.total_free
        copy.device_free, copy.sorted_free = self.device_free.copy(), self.sorted_free
        copy.device_owed, copy.closeness = self.device_owed.copy(), self.closeness
        copy.is_reserved, copy.version, copy.changed_in, copy.rank = self.is_reserved, 0, None, ()
        copy.useless = None
        return copy
