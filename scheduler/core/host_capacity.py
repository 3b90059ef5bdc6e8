"""What a host has left while sessions are placed and end. Pure."""

from bisect import bisect_left
from collections.abc import Sequence

from scheduler.core.types import GpuView, Shape, Shares

Rank = tuple[int, ...]  # of a host by a placement policy: the lowest is tried first


class HostCapacity:
    """What one host has left.

    `fgpu` is the largest GPU request that fits its devices now: its whole free devices, and the largest part that is
    free on another. As a request takes whole devices and one rest, it fits exactly if it is not above that. A host that
    does not divide its devices takes multiples of `grain` only: of a whole one. `levels` is what devices have free,
    ascending.
    """

    __slots__ = (
        "changed_in",
        "cpu",
        "device_free",
        "fgpu",
        "free",
        "gpu_capacity",
        "gpu_ids",
        "granularity",
        "host_id",
        "index",
        "is_reserved",
        "memory",
        "rank",
        "sorted_free",
        "version",
    )

    def __init__(
        self, *, host_id: int, index: int, cpu: int, memory: int, gpus: Sequence[GpuView], divides: bool = True
    ) -> None:
        """Take what is free on the host and its devices; `index` is its place among the hosts of its group."""
        self.host_id = host_id
        self.index = index
        self.cpu = cpu
        self.memory = memory
        self.gpu_capacity = gpus[0].capacity if gpus else 0
        self.granularity = 1 if divides else self.gpu_capacity or 1
        self.gpu_ids = [gpu.id for gpu in gpus]
        self.device_free = [gpu.free if gpu.free > 0 else 0 for gpu in gpus]
        self.is_reserved = False
        self.version = 0  # the number of the last change in its group
        self.changed_in: dict[int, HostCapacity] | None = None  # of its group, by index: rooms of its size that changed
        self.rank: Rank = ()  # of the policies for which the shape does not matter
        self.measure()

    def measure(self) -> None:
        """Derive `free`, `levels` and `fgpu` from the devices."""
        device_free, gpu_capacity = self.device_free, self.gpu_capacity
        self.free = sum(device_free)
        self.sorted_free = sorted_free = sorted(device_free)
        self.fgpu = device_free.count(gpu_capacity) * gpu_capacity
        parts = bisect_left(sorted_free, gpu_capacity)
        if parts and self.granularity == 1:
            self.fgpu += sorted_free[parts - 1]

    def fits(self, shape: Shape) -> bool:
        """Say whether the host can take `shape` now."""
        return (
            self.fgpu >= shape.fgpu
            and self.cpu >= shape.cpu
            and self.memory >= shape.memory
            and not shape.fgpu % self.granularity
        )

    def split(self, fgpu: int, rest_on: Sequence[int]) -> dict[int, int]:
        """Return {device: share}: whole devices, and the rest on the first of `rest_on`. It must fit."""
        if not fgpu:
            return {}
        whole, rest = divmod(fgpu, self.gpu_capacity)
        if not whole:
            return {rest_on[0]: rest}
        if fgpu == self.gpu_capacity:
            return {self.device_free.index(fgpu): fgpu}
        split = {rest_on[0]: rest} if rest else {}
        empty = [d for d, free in enumerate(self.device_free) if free == self.gpu_capacity and d not in split]
        split.update(dict.fromkeys(empty[:whole], self.gpu_capacity))
        return split

    def take(self, shape: Shape, split: dict[int, int]) -> Shares:
        """Take `shape` as `split` over the devices; return (gpu id, milli-fGPU) in device order."""
        self.cpu -= shape.cpu
        self.memory -= shape.memory
        if not split:
            return ()
        for device, share in split.items():
            self.device_free[device] -= share
        self.measure()
        if len(split) == 1:  # the usual case, by far
            ((device, share),) = split.items()
            return ((self.gpu_ids[device], share),)
        return tuple((self.gpu_ids[device], split[device]) for device in sorted(split))

    def give(self, shape: Shape, shares: Shares, sign: int = 1) -> None:
        """Take back what an ended session held, or (-1) give it away; shares of devices that are gone are dropped."""
        self.cpu += sign * shape.cpu
        self.memory += sign * shape.memory
        for gpu_id, share in shares:
            if gpu_id in self.gpu_ids:
                self.device_free[self.gpu_ids.index(gpu_id)] += sign * share
        self.measure()

    def copy(self) -> "HostCapacity":
        """Return a room that changes by itself."""
        copy: HostCapacity = object.__new__(HostCapacity)  # written out: an estimate copies all rooms
        copy.host_id, copy.index = self.host_id, self.index
        copy.gpu_capacity, copy.granularity, copy.gpu_ids = self.gpu_capacity, self.granularity, self.gpu_ids
        copy.cpu, copy.memory, copy.fgpu, copy.free = self.cpu, self.memory, self.fgpu, self.free
        copy.device_free, copy.sorted_free = self.device_free.copy(), self.sorted_free
        copy.is_reserved, copy.version, copy.changed_in, copy.rank = self.is_reserved, 0, None, ()
        return copy
