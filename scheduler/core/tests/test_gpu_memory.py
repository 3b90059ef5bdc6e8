"""Requests by GPU memory among others, on GPUs of five sizes, beside a table of what each device has free.

Nobody gets a share but the smallest that has the memory, no device is lent beyond what it has, and nobody waits whom a
host could take that is not reserved: an exhaustive search says so after each pass.
"""

from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Final

import pytest

from accounts.limits import Amounts, PolicyLimits
from resources.amounts.units import GIB, MIB
from resources.gpus.shares import share_bytes, share_milli_for
from scheduler.core.incremental_state import IncrementalState
from scheduler.core.tests.worlds import NOW, make_host
from scheduler.core.types import (
    GpuChoice,
    HostView,
    LimitHolder,
    PlacementPolicyName,
    QueueOrder,
    Rules,
    SessionRequest,
    Snapshot,
    by_gpu_memory,
    entries_of,
    gpu_size_trait,
)

SIZES: Final = tuple(int(size * GIB) for size in (11.7, 15.9, 23.6, 39.4, 79.1))
CAPACITY: Final = 2000  # a GPU is 2 fGPU
LIMIT: Final = 2500


class Laboratory:
    """Hosts with GPUs of five sizes, who runs on them, and who waits."""

    def __init__(self, random: Random) -> None:
        self.random, self.count, self.now = random, 0, NOW
        self.hosts: dict[int, HostView] = {}
        self.size_of: dict[int, int] = {}
        for host_id in range(1, random.randint(5, 8)):
            size, divides = SIZES[host_id % 5], random.random() < 0.9
            host = make_host(host_id, [CAPACITY] * random.randint(1, 3), capacity=CAPACITY, divides=divides)
            self.hosts[host_id] = make_trait(host, gpu_size_trait(size, divides=divides))
            self.size_of[host_id] = size
        self.running: dict[str, tuple[SessionRequest, int, tuple[tuple[int, int], ...]]] = {}
        self.asked: dict[str, int] = {}  # bytes, of those by GPU memory
        rules = Rules(
            placement_policy=random.choice(list(PlacementPolicyName)),
            queue_order=random.choice(list(QueueOrder)),
            reservation_delay=timedelta(hours=random.choice((0, 1, 1000))),
        )
        owners = {1: PolicyLimits(), 2: PolicyLimits(fgpu=LIMIT)}
        holders = {owner: LimitHolder(limits=limits, used=Amounts()) for owner, limits in owners.items()}
        self.state = IncrementalState(
            Snapshot(hosts=tuple(self.hosts.values()), queue=(), owners=holders, rules={1: rules})
        )

    def submit(self) -> None:
        """Add a request by GPU memory, or for a share."""
        self.count += 1
        request = SessionRequest(
            id=f"s{self.count}",
            owner_id=self.random.choice((1, 1, 2)),
            group_id=1,
            cpu=self.random.randint(1, 3),
            memory_bytes=GIB,
            fgpu_milli=self.random.choice((10, 250, 500, 1000, 2000, 3000)),
            duration=self.random.choice((None, timedelta(hours=self.random.randint(1, 5)))),
            queued_at=self.now,
        )
        if self.random.random() < 0.7:
            self.asked[request.id] = wanted = self.random.choice(
                (self.random.randint(64 * MIB, SIZES[-1]), self.random.choice(SIZES), 4 * GIB, 12 * GIB)
            )
            kinds = sorted({(self.size_of[it.id], it.divides) for it in self.hosts.values()})
            choices = [
                GpuChoice(
                    share_milli_for(wanted, size, CAPACITY, divides=divides), gpu_size_trait(size, divides=divides)
                )
                for size, divides in kinds
                if size >= wanted
            ]
            if not choices:  # refused when it is submitted
                del self.asked[request.id]
                return
            request = by_gpu_memory(request._replace(fgpu_milli=1), {1: choices})
        self.state.add(request)

    def end(self) -> None:
        """Let a session end."""
        if self.running:
            name = self.random.choice(sorted(self.running))
            del self.running[name]
            self.asked.pop(name, None)
            session = self.state.cluster.groups[1].running[name]
            self.state.update([session], ())

    def cancel(self) -> None:
        """Have one wait no longer."""
        if self.state.requests:
            name = self.random.choice(sorted(self.state.requests))
            self.state.remove(name)
            self.asked.pop(name, None)

    def serve(self) -> None:
        """Make a pass, and compare it with the table."""
        self.now += timedelta(minutes=self.random.choice((0, 1, 30)))
        requests = dict(self.state.requests)
        for session_id, host_id, shares in self.state.serve(self.now):
            self.running[session_id] = requests[session_id], host_id, shares
            if session_id in self.asked:
                self._check_grant(self.asked[session_id], host_id, shares)
        self._check_free()
        reserved = {host.host_id for host in self.state.cluster.groups[1].reserved_hosts}
        for request in self.state.requests.values():
            able = [it for it in self.hosts.values() if it.id not in reserved and self._could_take(it, request)]
            assert not able, (request, able)

    def _check_grant(self, asked: int, host_id: int, shares: tuple[tuple[int, int], ...]) -> None:
        ((_, milli),) = shares
        size = self.size_of[host_id]
        assert share_bytes(size, milli, CAPACITY) >= asked
        assert not self.hosts[host_id].divides or share_bytes(size, milli - 1, CAPACITY) < asked

    def _held(self) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
        gpus, cpu, owners = defaultdict[int, int](int), defaultdict[int, int](int), defaultdict[int, int](int)
        for request, host_id, shares in self.running.values():
            cpu[host_id] += request.cpu
            for gpu_id, milli in shares:
                gpus[gpu_id] += milli
                owners[request.owner_id] += milli
        return gpus, cpu, owners

    def _check_free(self) -> None:
        gpus, cpu, owners = self._held()
        assert max(gpus.values(), default=0) <= CAPACITY
        assert all(cpu[host.id] <= host.cpu for host in self.hosts.values())
        assert owners[2] <= LIMIT

    def _could_take(self, host: HostView, request: SessionRequest) -> bool:
        """Return whether the host has what is asked for, by the table alone."""
        gpus, cpu, owners = self._held()
        free = [CAPACITY - gpus[gpu.id] for gpu in host.gpus]
        if host.cpu - cpu[host.id] < request.cpu:
            return False
        if (asked := self.asked.get(request.id)) is None:
            milli = request.fgpu_milli
        elif asked > self.size_of[host.id]:
            return False
        else:
            milli = next(
                it for it in range(1, CAPACITY + 1) if share_bytes(self.size_of[host.id], it, CAPACITY) >= asked
            )
            milli = milli if host.divides else CAPACITY
        if request.owner_id == 2 and owners[2] + milli > LIMIT:
            return False
        whole, part = divmod(milli, CAPACITY)
        if part and not host.divides:
            return False
        rest = sorted(free, reverse=True)
        return rest.count(CAPACITY) >= whole and (not part or any(it >= part for it in rest[whole:]))


def make_trait(host: HostView, trait: str) -> HostView:
    """Return the host with a trait."""
    return replace(host, traits=host.traits | {trait})


def live(operations: int, seed: int) -> None:
    """Let so much happen in laboratories of some hundred operations each."""
    random = Random(seed)
    while operations > 0:
        laboratory = Laboratory(random)
        for _ in range(min(operations, 200)):
            random.choice((laboratory.submit, laboratory.submit, laboratory.end, laboratory.end, laboratory.cancel))()
            laboratory.serve()
            operations -= 1


@pytest.mark.parametrize("seed", range(3))
def test_memory_is_granted_exactly_and_never_refused_avoidably(seed: int) -> None:
    live(200, seed)


@pytest.mark.long
def test_ten_thousand_operations_by_memory_are_exact() -> None:
    live(10_000, 99)


def test_an_entry_is_made_for_each_size() -> None:
    request = SessionRequest("s", 1, 1, 1, GIB, 1)
    entries = entries_of([by_gpu_memory(request, {1: [GpuChoice(500, "gpu_size:2"), GpuChoice(250, "gpu_size:4")]})])
    assert [(it.fgpu_milli, it.traits, it.is_alternative) for it in entries] == [
        (500, ("gpu_size:2",), False),
        (250, ("gpu_size:4",), True),
    ]
