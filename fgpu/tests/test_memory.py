"""The memory share holds for every way to allocate, exactly, and what is freed can be had again."""

from __future__ import annotations

import pytest

from fgpu.tests.host import (
    CAPTURE_INVALIDATED,
    GIB,
    INVALID_VALUE,
    LOSSY_QUERY,
    MIB,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    UUIDS,
    Host,
    limit,
)

# How each way to allocate is asked for, and whether its memory comes back with the free (or only when synchronised).
LINEAR = ["plain", "managed", "pitch"]
ARRAYS = ["array", "array3d", "array_mipmap"]
ORDERED = ["async", "async_ptsz", "pool", "pool_ptsz"]
GRAPHS = ["graph", "graph_node", "graph_node2", "graph_node3", "captured", "captured_edge", "captured_to"]
EVERY_WAY = [*LINEAR, *ARRAYS, *ORDERED, *GRAPHS, "vmm", "vmm_domain"]
HOST, HOST_NUMA, HOST_NUMA_CURRENT = 2, 3, 4  # kinds of locations
PINNED, MANAGED = 1, 2  # kinds of memory


def test_a_program_can_take_exactly_its_share(host: Host) -> None:
    with host.session().probe() as probe:
        assert probe.alloc(2 * GIB) == 0
        assert probe.free() == 0
        assert probe.alloc(1, slot=1) == OUT_OF_MEMORY


def test_freed_memory_can_be_taken_again_many_times(host: Host) -> None:
    with host.session().probe() as probe:
        for _ in range(50):
            assert probe.alloc(2 * GIB) == 0
            assert probe.code("free 0") == 0
        assert probe.free() == 2 * GIB


@pytest.mark.parametrize("how", EVERY_WAY)
def test_every_allocator_is_held_to_the_share(host: Host, how: str) -> None:
    with host.session().probe() as probe:
        assert probe.alloc(3 * GIB, how) == OUT_OF_MEMORY
        assert probe.alloc(GIB, how) == 0
        assert probe.free() == GIB
        assert probe.alloc(2 * GIB, how, 1) == OUT_OF_MEMORY
        assert probe.alloc(GIB, slot=2) == 0
        assert probe.alloc(MIB, slot=3) == OUT_OF_MEMORY


@pytest.mark.parametrize("how", EVERY_WAY)
def test_every_allocator_gives_back_what_is_freed(host: Host, how: str) -> None:
    with host.session().probe() as probe:
        assert probe.alloc(GIB, how) == 0
        assert probe.code("free 0") == 0
        assert probe.code("sync") == 0
        if how.startswith("pool"):
            assert probe.code("unpool") == 0  # the stub's own pools keep their memory until destroyed or trimmed
        assert probe.free() == 2 * GIB
        assert probe.alloc(2 * GIB) == 0


@pytest.mark.parametrize(("how", "size"), [("plain", 0), ("managed_bad", MIB), ("vmm", MIB), ("graph", 0)])
def test_a_refusal_by_the_driver_takes_the_charge_back(host: Host, how: str, size: int) -> None:
    with host.session().probe() as probe:
        assert probe.alloc(size, how) == 1  # the driver's "invalid value"
        assert probe.free() == 2 * GIB


def test_a_full_card_takes_the_charge_back_too(host: Host) -> None:
    with host.bare().probe() as neighbour, host.session().probe() as probe:
        assert neighbour.alloc(7 * GIB) == 0
        assert probe.free() == GIB  # no more than the card really has
        assert probe.alloc(2 * GIB) == OUT_OF_MEMORY
        assert probe.alloc(GIB) == 0


@pytest.mark.parametrize(
    "name",
    ["cuMemAlloc", "cuMemAllocPitch", "cuArrayCreate", "cuArray3DCreate", "cuMemGetInfo", "cuDeviceTotalMem"],
)
def test_the_32_bit_cuda_interface_is_not_offered(host: Host, name: str) -> None:
    with host.session().probe() as probe, host.bare().probe() as bare:
        assert bare.code(f"bare {name}") == 0
        assert probe.code(f"bare {name}") == NOT_SUPPORTED


def test_sizes_that_overflow_are_refused(host: Host) -> None:
    with host.session().probe() as probe:
        assert probe.alloc(2**64 - 1) == OUT_OF_MEMORY
        assert probe.alloc(2**64 - 4096, "pitch") == OUT_OF_MEMORY
        assert probe.alloc(2**64 - 1, "async") == OUT_OF_MEMORY
        assert probe.free() == 2 * GIB


def test_memory_stays_charged_until_its_last_handle_is_released(host: Host) -> None:
    with host.session().probe() as probe:
        assert probe.alloc(GIB, "vmm") == 0
        assert probe.code(f"vmm map 0 {GIB}") == 0
        assert probe.code("vmm retain 0 0") == 0  # a second handle of the same memory
        assert probe.code("vmm release 0 0") == 0
        assert probe.code(f"vmm unmap 0 {GIB}") == 0
        assert probe.free() == GIB
        assert probe.code("vmm release 0 0") == 0
        assert probe.free() == 2 * GIB


def test_mapped_memory_stays_charged_after_its_handle_is_released(host: Host) -> None:
    with host.session().probe() as probe:
        assert probe.alloc(GIB, "vmm", 5) == 0
        assert probe.code(f"vmm map 5 {GIB}") == 0
        assert probe.code("vmm release 5 0") == 0
        assert probe.free() == GIB
        assert probe.code(f"vmm unmap 5 {GIB}") == 0
        assert probe.free() == 2 * GIB


def test_host_memory_is_not_charged_to_the_gpu(host: Host) -> None:
    with host.session().probe() as probe:
        assert probe.alloc(4 * GIB, "vmm_host") == 0
        assert probe.alloc(4 * GIB, "array_deferred", 1) in (0, OUT_OF_MEMORY)
        assert probe.free() == 2 * GIB


@pytest.mark.parametrize("how", ["vmm_host", "vmm_numa", "vmm_current"])
def test_virtual_memory_of_the_host_is_held_to_its_ram(host: Host, how: str) -> None:
    with host.session(pinned_bytes=GIB).probe() as probe:
        assert probe.alloc(4 * GIB, how) == OUT_OF_MEMORY
        assert probe.alloc(GIB, how) == 0
        assert probe.alloc(2 * MIB, "pinned", 1) == OUT_OF_MEMORY
        assert probe.code("free 0") == 0
        assert probe.alloc(GIB, "pinned", 1) == 0
        assert probe.free() == 2 * GIB


@pytest.mark.parametrize("made", ["new", "own"])
@pytest.mark.parametrize("place", [HOST, HOST_NUMA, HOST_NUMA_CURRENT])
def test_pools_of_the_host_are_held_to_its_ram(host: Host, made: str, place: int) -> None:
    with host.session(pinned_bytes=GIB).probe() as probe:
        assert probe.code(f"makepool {made} {PINNED} {place}") == 0
        assert probe.alloc(4 * GIB, "pool") == OUT_OF_MEMORY
        assert probe.alloc(GIB, "pool") == 0
        assert probe.alloc(2 * MIB, "pinned", 1) == OUT_OF_MEMORY
        assert probe.free() == 2 * GIB


@pytest.mark.parametrize("made", ["new", "own"])
@pytest.mark.parametrize("place", [0, HOST, HOST_NUMA])
def test_managed_pools_are_charged_to_the_gpu(host: Host, made: str, place: int) -> None:
    with host.session().probe() as probe:
        assert probe.code(f"makepool {made} {MANAGED} {place}") == 0
        assert probe.alloc(3 * GIB, "pool") == OUT_OF_MEMORY
        assert probe.alloc(GIB, "pool") == 0
        assert probe.free() == GIB


def test_kinds_of_locations_to_come_are_refused(host: Host) -> None:
    with host.session().probe() as probe:
        assert probe.alloc(2 * MIB, "vmm_future") == NOT_SUPPORTED
        assert probe.alloc(2 * MIB, "vmm_invisible") == NOT_SUPPORTED
        assert probe.code(f"makepool new {PINNED} 7") == NOT_SUPPORTED
        assert probe.code(f"makepool new {MANAGED} 7") == NOT_SUPPORTED
        assert probe.code(f"makepool new {PINNED} 0") == NOT_SUPPORTED


def test_memory_that_an_unknown_capture_records_is_refused(host: Host) -> None:
    with host.session().probe() as probe:
        assert probe.alloc(MIB, "captured_unknown") == LOSSY_QUERY
        assert probe.free() == 2 * GIB


@pytest.mark.parametrize(("how", "code"), [("captured_spoilt", CAPTURE_INVALIDATED), ("captured_left", 0)])
def test_a_capture_that_fails_gives_its_memory_back(host: Host, how: str, code: int) -> None:
    """There is no graph then, and nobody who could destroy it."""
    with host.session().probe() as probe:
        for _ in range(3):
            assert probe.alloc(GIB, how) == code
        assert probe.free() == 2 * GIB


def test_a_pool_with_freed_memory_stays_charged(host: Host) -> None:
    with host.session().probe() as probe:
        assert probe.alloc(GIB, "pool") == 0
        assert probe.code("free 0") == 0
        assert probe.free() == GIB
        assert probe.alloc(GIB, "pool", 1) == 0  # out of what the pool holds: nothing new to charge
        assert probe.free() == GIB


@pytest.mark.parametrize(("keeper", "taker"), [("async", "plain"), ("pool", "async"), ("async", "vmm")])
def test_pools_are_trimmed_before_a_request_is_refused(host: Host, keeper: str, taker: str) -> None:
    with host.session().probe() as probe:
        assert probe.alloc(GIB, keeper) == 0
        assert probe.code("free 0") == 0
        assert probe.alloc(2 * GIB, taker, 1) == 0
        assert probe.free() == 0


def test_a_pool_that_grows_by_more_than_fits_is_refused(host: Host) -> None:
    with host.session(limit(memory=2 * GIB - MIB)).probe() as probe:
        assert probe.alloc(2 * GIB - 2 * MIB, "async") == OUT_OF_MEMORY  # the pool reserves 32 MiB at a time
        assert probe.free() == 2 * GIB - MIB
        assert probe.alloc(GIB, "async") == 0


@pytest.mark.parametrize("how", ["v1", "v2", "flags", "params"])
def test_graph_memory_stays_charged_while_an_executable_lives(host: Host, how: str) -> None:
    with host.session().probe() as probe:
        assert probe.alloc(GIB, "graph") == 0
        assert probe.code(f"instantiate {how} 0") == 0
        assert probe.code("launch 0") == 0
        assert probe.code("ungraph 0") == 0
        assert probe.free() == GIB
        probe.ask("free 0")
        assert probe.free() == 2 * GIB


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_a_context_is_charged_once_per_process(host: Host, version: int) -> None:
    session = host.session(limit(context_bytes=300 * MIB))
    with session.probe(enter=False) as probe:
        assert probe.code("init") == 0
        assert probe.code(f"context {version}") == 0
        assert probe.code(f"context {version}") == 0
        assert probe.code("enter 0") == 0
        assert probe.free() == 2 * GIB - 300 * MIB


def test_a_context_that_does_not_fit_is_refused(host: Host) -> None:
    session = host.session(limit(context_bytes=1500 * MIB))
    with session.probe(), session.probe(enter=False) as second:
        assert second.code("init") == 0
        assert second.code("enter 0") == OUT_OF_MEMORY


def test_a_child_of_fork_pays_for_its_own_context(host: Host) -> None:
    session = host.session(limit(context_bytes=300 * MIB))
    with session.probe() as parent:
        assert parent.ask(f"fork {2 * GIB - 600 * MIB}") == ["3", "0"]
        assert parent.ask(f"fork {2 * GIB - 500 * MIB}") == ["3", str(OUT_OF_MEMORY)]


@pytest.mark.parametrize("how", ["destroy", "detach"])
def test_destroying_a_context_frees_what_was_allocated_in_it(host: Host, how: str) -> None:
    with host.session(limit(context_bytes=100 * MIB)).probe(enter=False) as probe, host.session().probe():
        assert probe.code("init") == 0
        assert probe.code("context 2") == 0
        assert probe.alloc(GIB) == 0
        assert probe.alloc(GIB // 2, "array", 1) == 0
        assert probe.code("attach") == NOT_SUPPORTED  # nobody else uses it, so `detach` ends it
        assert probe.code(how) == 0
        assert probe.code("enter 0") == 0
        assert probe.free() == 2 * GIB - 100 * MIB


@pytest.mark.parametrize("how", ["leave 0", "reset 0"])
def test_the_end_of_the_primary_context_frees_its_memory(host: Host, how: str) -> None:
    with host.session().probe() as probe:
        assert probe.alloc(GIB) == 0
        assert probe.code(how) == 0
        assert probe.code("enter 0") == 0
        assert probe.free() == 2 * GIB


def test_each_gpu_has_its_share_in_any_visible_order(host: Host) -> None:
    host.configure(gpus=3)
    session = host.session(
        limit(UUIDS[2], memory=3 * GIB), limit(UUIDS[0], memory=GIB), limit(UUIDS[1], memory=2 * GIB)
    )
    with session.probe(CUDA_VISIBLE_DEVICES=f"1,{UUIDS[2]},0") as probe:
        assert [probe.ask(f"total {i}")[1] for i in range(3)] == [str(2 * GIB), str(3 * GIB), str(GIB)]
        assert probe.code("enter 2") == 0
        assert probe.alloc(GIB) == 0
        assert probe.alloc(1, slot=1) == OUT_OF_MEMORY
        assert probe.code("enter 1") == 0
        assert probe.alloc(3 * GIB, slot=2) == 0


@pytest.mark.parametrize("how", ["async_stream", "pool_of_0"])
def test_stream_ordered_memory_is_charged_where_it_lies(host: Host, how: str) -> None:
    host.configure(gpus=2)
    with host.session(limit(UUIDS[0], memory=GIB), limit(UUIDS[1], memory=3 * GIB)).probe() as probe:
        assert probe.code("stream") == 0
        assert probe.code("enter 1") == 0
        assert probe.alloc(2 * GIB, how) == OUT_OF_MEMORY
        assert probe.alloc(GIB, how) == 0
        assert probe.free() == 3 * GIB
        assert probe.code("enter 0") == 0
        assert probe.free() == 0


def test_a_launch_on_several_gated_gpus_is_refused(host: Host) -> None:
    with host.session(limit(sm="100")).probe() as free, host.session().probe() as gated:
        assert gated.code("multi 2") == NOT_SUPPORTED
        assert free.code("multi 2") == 0


@pytest.mark.parametrize("how", ["pinned", "pinned_alloc", "pinned_registered", "pinned_old"])
def test_page_locked_host_memory_is_charged_to_the_sessions_ram(host: Host, how: str) -> None:
    session = host.session(pinned_bytes=64 * MIB)
    with session.probe() as probe, session.probe() as other:
        assert probe.alloc(48 * MIB, how) == 0
        assert other.alloc(17 * MIB, how) == OUT_OF_MEMORY
        assert other.alloc(16 * MIB, how, 1) == 0
        assert probe.code("free 0") == 0
        assert other.alloc(48 * MIB, how, 2) == 0
        assert probe.free() == 2 * GIB  # none of it is the GPU's
    with host.session().probe() as probe:
        assert probe.alloc(GIB, how) == 0  # not bounded


def test_page_locking_that_the_driver_refuses_is_not_charged(host: Host) -> None:
    with host.session(pinned_bytes=64 * MIB).probe() as probe:
        assert probe.alloc(64 * MIB, "pinned_bad") == INVALID_VALUE
        assert probe.alloc(64 * MIB, "pinned", 1) == 0
