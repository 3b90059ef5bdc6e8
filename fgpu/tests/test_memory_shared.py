"""Memory that several processes or objects hold is charged as long as one does, and once where that can be known."""

from __future__ import annotations

import struct

import pytest

from fgpu.region import SHARE_BASE, used_bytes
from fgpu.tests.host import GIB, MIB, NOT_SUPPORTED, OUT_OF_MEMORY, UUIDS, Host, Probe, Session, limit

SHARE = limit(memory=GIB)
HOST, PINNED = 2, 1  # a kind of location, and of memory


def export(probe: Probe, slot: int = 0) -> int:
    """Return the descriptor of the slot's virtual memory."""
    code, descriptor = probe.ask(f"export vmm {slot}")
    assert code == "0"
    return int(descriptor)


def take(probe: Probe, maker: Probe, descriptor: int) -> int:
    """Have the probe receive the maker's descriptor, as over a socket."""
    own = probe.code(f"adopt {maker.pid} {descriptor}")
    assert own > 2
    return own


def name_of(probe: Probe, how: str, slot: int = 0) -> str:
    code, name = probe.ask(f"name {how} {slot} -")
    assert code == "0"
    return name


def held(session: Session) -> int:
    """What the host reads of the session's account."""
    return used_bytes(session.region, lambda pid, started: True)[0]


def test_exported_and_released_memory_stays_charged(host: Host) -> None:
    with host.session(SHARE).probe() as probe:
        assert probe.alloc(GIB, "vmm") == 0
        export(probe)
        assert probe.code("vmm release 0 0") == 0
        assert probe.free() == 0
        assert probe.alloc(GIB, "vmm", 1) == OUT_OF_MEMORY


def test_one_process_maps_no_more_than_its_share(host: Host) -> None:
    """Create, export, release, import and map, seven times: all of it was to be had by a share of one."""
    with host.session(SHARE).probe() as probe, host.bare().probe() as bare:
        mapped = 0
        for slot in range(7):
            if probe.alloc(GIB, "vmm", slot):
                continue
            descriptor = export(probe, slot)
            assert probe.code(f"vmm release {slot} 0") == 0
            assert probe.code(f"import vmm {slot} {descriptor}") == 0
            mapped += probe.code(f"vmm map {slot} {GIB}") == 0
        assert mapped <= 1
        assert bare.free() >= 7 * GIB


@pytest.mark.parametrize("maker_lives", [True, False])
def test_memory_of_other_processes_is_charged_when_mapped(host: Host, maker_lives: bool) -> None:
    session = host.session(SHARE)
    mapped = 0
    with session.probe() as probe:
        for slot in range(7):
            maker = session.probe()
            if maker.alloc(GIB // 2, "vmm") == 0:
                descriptor = take(probe, maker, export(maker))
                if not maker_lives:
                    maker.kill()
                assert probe.code(f"import vmm {slot} {descriptor}") == 0
                mapped += probe.code(f"vmm map {slot} {GIB // 2}") == 0
        assert mapped == (1 if maker_lives else 2)
        assert probe.free() == 0
        assert probe.code(f"vmm unmap 0 {GIB // 2}") == 0
        assert probe.code("vmm release 0 0") == 0
        assert probe.free() == GIB // 2


def test_memory_of_another_session_is_charged_to_both(host: Host) -> None:
    with host.session().probe() as maker, host.session(SHARE).probe() as probe:
        assert maker.alloc(2 * GIB, "vmm") == 0
        descriptor = take(probe, maker, export(maker))
        assert probe.code(f"import vmm 0 {descriptor}") == 0
        assert probe.code(f"vmm map 0 {2 * GIB}") == OUT_OF_MEMORY
        assert probe.free() == GIB
        assert probe.code(f"vmm map 0 {GIB}") == 0
        assert probe.free() == 0


def test_a_mapping_that_the_driver_refuses_is_not_charged(host: Host) -> None:
    with host.session().probe() as maker, host.session(SHARE).probe() as probe:
        assert maker.alloc(GIB, "vmm") == 0
        assert probe.code(f"import vmm 0 {take(probe, maker, export(maker))}") == 0
        assert probe.code("vmm release 0 0") == 0
        assert probe.code(f"vmm map 0 {GIB}") != 0
        assert probe.free() == GIB


def test_fabric_handles_are_charged_as_descriptors_are(host: Host) -> None:
    with host.session().probe() as maker, host.session(SHARE).probe() as probe:
        assert maker.alloc(2 * GIB, "vmm") == 0
        assert probe.code(f"name fabric_open 0 {name_of(maker, 'fabric_get')}") == 0
        assert probe.code(f"vmm map 0 {2 * GIB}") == OUT_OF_MEMORY


def test_memory_opened_by_ipc_is_charged_once(host: Host) -> None:
    session = host.session(SHARE)
    with session.probe() as maker, session.probe() as first, session.probe() as second:
        assert maker.alloc(GIB) == 0
        name = name_of(maker, "ipc_get")
        assert first.code(f"name ipc_open 0 {name}") == 0
        assert second.code(f"name ipc_open 0 {name}") == 0
        assert maker.free() == 0
        assert held(session) == GIB
        assert first.code("name ipc_close 0 -") == 0
        assert maker.code("free 0") == 0
        assert maker.free() == 0  # the second one still has it
        assert held(session) == GIB
        assert maker.alloc(MIB, slot=1) == OUT_OF_MEMORY
        assert second.code("name ipc_close 0 -") == 0
        assert maker.free() == GIB


def test_memory_opened_by_ipc_leaves_the_rest_free(host: Host) -> None:
    session = host.session(limit(memory=2 * GIB))
    with session.probe() as maker, session.probe() as other:
        assert maker.alloc(GIB) == 0
        assert other.code(f"name ipc_open 0 {name_of(maker, 'ipc_get')}") == 0
        assert maker.free() == GIB
        assert other.alloc(GIB, slot=1) == 0


def test_memory_opened_by_ipc_outlives_its_maker_charged(host: Host) -> None:
    session = host.session(SHARE)
    with session.probe() as keeper:
        for slot in range(7):
            maker = session.probe()
            if maker.alloc(GIB // 2) == 0:
                assert keeper.code(f"name ipc_open {slot} {name_of(maker, 'ipc_get')}") == 0
            maker.kill()
        assert held(session) == GIB
        assert keeper.free() == 0
        assert host.bare().probe().free() == 7 * GIB


@pytest.mark.parametrize(("gpu", "size"), [(0, 0), (1, GIB // 2)])
def test_a_forged_entry_makes_no_import_free(host: Host, gpu: int, size: int) -> None:
    """It says of memory that others hold it, but no bytes of it, or on a GPU of which the session has more."""
    host.configure(gpus=2)
    session = host.session(SHARE, limit(UUIDS[1], memory=8 * GIB))
    with session.probe() as keeper:
        for slot in range(7):
            maker = session.probe()
            if maker.alloc(GIB // 2) == 0:
                name = name_of(maker, "ipc_get")
                for at, value in ((8, struct.pack("=Q", size)), (48, struct.pack("=i", gpu))):
                    with session.region.open("r+b") as file:
                        file.seek(SHARE_BASE + at)
                        file.write(value)
                keeper.code(f"name ipc_open {slot} {name}")
            maker.kill()
        assert host.bare().probe().free() >= 7 * GIB


def test_ipc_memory_of_another_session_is_charged(host: Host) -> None:
    with host.session().probe() as maker, host.session(SHARE).probe() as probe:
        assert maker.alloc(GIB + MIB) == 0
        assert probe.code(f"name ipc_open 0 {name_of(maker, 'ipc_get')}") == OUT_OF_MEMORY
        assert probe.free() == GIB
        assert maker.alloc(GIB // 2, slot=1) == 0
        assert probe.code(f"name ipc_open 1 {name_of(maker, 'ipc_get', 1)}") == 0
        assert probe.free() == GIB // 2
        assert probe.code("name ipc_close 1 -") == 0
        assert probe.free() == GIB


def test_pointers_into_an_imported_pool_are_charged(host: Host) -> None:
    with host.session().probe() as maker, host.session(SHARE).probe() as probe:
        assert maker.alloc(GIB + 512 * MIB, "pool") == 0
        code, descriptor = maker.ask("export pool")
        assert code == "0"
        assert probe.code(f"import pool 0 {take(probe, maker, int(descriptor))}") == 0
        assert probe.free() == GIB
        assert probe.code(f"name pool_open 0 {name_of(maker, 'pool_get')}") == OUT_OF_MEMORY
        assert probe.free() == GIB


def test_imported_page_locked_pointers_are_charged_to_the_ram(host: Host) -> None:
    session = host.session(SHARE, pinned_bytes=GIB)
    with session.probe() as maker, session.probe() as friend, host.session(SHARE, pinned_bytes=GIB).probe() as stranger:
        assert maker.code(f"makepool new {PINNED} {HOST}") == 0
        assert maker.alloc(GIB, "pool") == 0
        descriptor, name = int(maker.ask("export pool")[1]), name_of(maker, "pool_get")
        for probe in (friend, stranger):
            assert probe.code(f"import pool 0 {take(probe, maker, descriptor)}") == 0
            assert probe.code(f"name pool_open 0 {name}") == 0
        assert stranger.alloc(2 * MIB, "pinned", 1) == OUT_OF_MEMORY
        maker.kill()
        assert friend.alloc(2 * MIB, "pinned", 1) == OUT_OF_MEMORY  # its page-locked memory lives on
        assert friend.code("free 0") == 0
        assert friend.alloc(GIB, "pinned", 1) == 0
        assert friend.free() == GIB


def test_pointers_of_a_pool_are_charged_once_per_session(host: Host) -> None:
    session = host.session(SHARE)
    with session.probe() as maker, session.probe() as probe:
        assert maker.alloc(GIB, "pool") == 0
        descriptor = int(maker.ask("export pool")[1])
        assert probe.code(f"import pool 0 {take(probe, maker, descriptor)}") == 0
        assert probe.code(f"name pool_open 0 {name_of(maker, 'pool_get')}") == 0
        assert held(session) == GIB
        maker.kill()
        assert held(session) == GIB
        assert probe.code("free 0") == 0
        assert held(session) == 0


def test_external_memory_is_charged_until_all_is_given_up(host: Host) -> None:
    with host.session().probe() as maker, host.session(SHARE).probe() as probe:
        assert maker.alloc(GIB, "vmm") == 0
        descriptor = take(probe, maker, export(maker))
        assert probe.code(f"import external 0 {descriptor} {2 * GIB}") == OUT_OF_MEMORY
        assert probe.code(f"import external 0 {descriptor} {GIB}") == 0
        assert probe.code(f"import destroy 0 {descriptor}") == 0
        assert probe.free() == 0
        assert probe.code("free 0") == 0
        assert probe.free() == GIB


@pytest.mark.parametrize("how", ["child", "copied", "moved", "cloned"])
def test_the_memory_of_inner_graphs_stays_charged(host: Host, how: str) -> None:
    with host.session().probe() as probe:
        assert probe.alloc(GIB, "graph") == 0
        assert probe.code(f"graphs {how} 1 0") == 0
        assert probe.free() == GIB
        if how != "moved":
            assert probe.code("ungraph 0") == 0
        assert probe.free() == GIB
        assert probe.code("ungraph 1") == 0
        assert probe.free() == 2 * GIB


def test_memory_mapped_into_a_sparse_array_stays_charged(host: Host) -> None:
    with host.session().probe() as probe:
        assert probe.alloc(GIB, "array_deferred") == 0
        assert probe.alloc(GIB, "vmm", 1) == 0
        assert probe.code("sparse 0 1") == 0
        assert probe.code("sparse 0 1") == 0
        assert probe.code("free 1") == 0
        assert probe.free() == GIB
        assert probe.code("free 0") == 0
        assert probe.free() == 2 * GIB


def test_imported_memory_is_not_mapped_into_arrays(host: Host) -> None:
    with host.session().probe() as maker, host.session(SHARE).probe() as probe:
        assert maker.alloc(GIB, "vmm") == 0
        assert probe.code(f"import vmm 1 {take(probe, maker, export(maker))}") == 0
        assert probe.alloc(GIB, "array_deferred") == 0
        assert probe.code("sparse 0 1") == NOT_SUPPORTED
