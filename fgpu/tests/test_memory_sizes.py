"""What is not asked for in bytes is charged for what it takes: textures of all formats, limits of contexts."""

from __future__ import annotations

import pytest

from fgpu.tests.host import GIB, INVALID_VALUE, MIB, NOT_SUPPORTED, OUT_OF_MEMORY, Host, limit

SIDE, FACES = 1024, 6
CUBEMAP, LAYERED = 4, 1
STACK, PRINTF, HEAP, PER_BLOCK = 0, 1, 2, 10
THREADS = 64 * 2048  # of the simulated GPU
BLOCKS = 64 * 32
BC1, BC2, BC3, BC4, BC5, BC6, BC7 = 0x91, 0x93, 0x95, 0x97, 0x99, 0x9B, 0x9D
FORMATS = {  # format, channels: bits of a texel, from NVIDIA's header and the formats' definitions
    (0x01, 1): 8,
    (0x02, 2): 32,
    (0x20, 4): 128,
    (0xC0, 1): 8,
    (0xC1, 2): 16,
    (0xC2, 4): 32,
    (0xC3, 1): 16,
    (0xC4, 2): 32,
    (0xC5, 4): 64,
    (0xC6, 1): 8,
    (0xC8, 4): 32,
    (0xCB, 4): 64,
    (0xB0, 3): 12,
    (0x9F, 3): 24,
    (0xA5, 4): 16,
    (0xB1, 4): 64,
    (0x50, 4): 32,
    (0x5E, 3): 48,
} | {
    (first + srgb, channels): bits
    for first, channels, bits in [
        (BC1, 4, 4),
        (BC2, 4, 8),
        (BC3, 4, 8),
        (BC4, 1, 4),
        (BC5, 2, 8),
        (BC6, 3, 8),
        (BC7, 4, 8),
    ]
    for srgb in (0, 1)
}


def charged(host: Host, levels: int, size: tuple[int, int, int], form: tuple[int, int], flags: int = 0) -> int:
    with host.session().probe() as probe:
        words = " ".join(str(number) for number in (*size, *form, flags))
        assert probe.code(f"texture 0 {levels} {words}") == 0
        return 2 * GIB - probe.free()


def test_every_level_of_a_mipmapped_cubemap_has_six_faces(host: Host) -> None:
    expected = sum(FACES * 4 * max(SIDE >> level, 1) ** 2 for level in range(11))
    assert charged(host, 11, (SIDE, SIDE, FACES), (0x01, 4), CUBEMAP) == expected


def test_levels_of_volumes_shrink_in_all_directions(host: Host) -> None:
    expected = sum(4 * max(256 >> level, 1) ** 3 for level in range(9))
    assert charged(host, 9, (256, 256, 256), (0x01, 4)) == expected


@pytest.mark.parametrize("form", FORMATS)
def test_a_texture_is_charged_by_its_format(host: Host, form: tuple[int, int]) -> None:
    assert charged(host, 1, (SIDE, SIDE, 0), form) == SIDE * SIDE * FORMATS[form] // 8


def test_compressed_levels_are_charged_in_whole_blocks(host: Host) -> None:
    expected = sum(8 * max((256 >> level) // 4, 1) ** 2 for level in range(9))
    assert charged(host, 9, (256, 256, 0), (BC1, 4)) == expected


@pytest.mark.parametrize(
    ("which", "value", "cost"),
    [
        (STACK, 1024 + 4096, 4096 * THREADS),
        (HEAP, 8 * MIB + GIB, GIB),
        (PRINTF, 513 * MIB, 512 * MIB),
        (PER_BLOCK, 64 << 10, (64 << 10) * BLOCKS),
    ],
)
def test_limits_of_a_context_are_charged(host: Host, which: int, value: int, cost: int) -> None:
    with host.session().probe() as probe:
        assert probe.code(f"limit {which} {value}") == 0
        assert probe.free() == 2 * GIB - cost
        assert probe.code(f"limit {which} {4 * GIB}") == OUT_OF_MEMORY
        assert probe.free() == 2 * GIB - cost
        assert probe.code(f"limit {which} 1024") == 0
        assert probe.free() == 2 * GIB - (1024 * BLOCKS if which == PER_BLOCK else 0)


def test_a_limit_that_the_driver_refuses_costs_nothing(host: Host) -> None:
    with host.session().probe() as probe:
        assert probe.code(f"limit {HEAP} 0") == INVALID_VALUE
        assert probe.code(f"limit 11 {GIB}") == INVALID_VALUE
        assert probe.free() == 2 * GIB


def test_the_limits_of_a_context_end_with_it(host: Host) -> None:
    with host.session().probe() as probe:
        assert probe.code("context 2") == 0
        assert probe.code(f"limit {HEAP} {GIB}") == 0
        assert probe.code("destroy") == 0
        assert probe.code("enter 0") == 0
        assert probe.free() == 2 * GIB


def test_multicast_and_endpoints_are_neither_offered_nor_shown(host: Host) -> None:
    with host.session().probe() as probe, host.bare().probe() as bare:
        assert bare.ask("attribute 132") == ["0", "1"]
        assert probe.ask("attribute 132") == ["0", "0"]
        assert probe.code("bare cuMulticastCreate") == NOT_SUPPORTED
        assert bare.code("bare cuMulticastCreate") == 0


def test_recording_for_graphics_is_refused_where_gated(host: Host) -> None:
    with host.session().probe() as gated, host.session(limit(sm="100")).probe() as free:
        assert gated.code("cig") == NOT_SUPPORTED
        assert free.code("cig") == 0
