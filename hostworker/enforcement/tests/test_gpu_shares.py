"""Milli-fGPU become exact bytes, percent and turns; no sum of shares exceeds its device."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostworker.enforcement.shares import free_turn, limits, needs_hook, share_memory, share_percent
from hostworker.runtime_protocol import GpuGrant
from resources.amounts.units import GIB, MIB
from resources.gpus.tiers import Tier

UUID = "GPU-00000000-0000-4000-8000-000000000001"


def grant(milli: int, *, per_gpu: int = 2, memory: int = 8 * GIB, tier: Tier = Tier.HOOK, **more: bool) -> GpuGrant:
    simulated = more.get("is_simulated", True)
    return GpuGrant(
        uuid=UUID, share_milli=milli, gpu_milli=per_gpu * 1000, memory_bytes=memory, is_simulated=simulated, tier=tier
    )


@pytest.mark.parametrize(
    ("milli", "per_gpu", "memory", "percent"),
    [
        (500, 2, 2 * GIB, "25.00"),
        (350, 2, 8 * GIB * 350 // 2000, "17.50"),
        (1000, 5, 8 * GIB // 5, "20.00"),
        (1000, 3, 8 * GIB // 3, "33.33"),
        (2000, 2, 8 * GIB, "100.00"),
        (10, 100, 8 * GIB // 10_000, "0.01"),
    ],
)
def test_a_share_is_exact_and_rounded_down(milli: int, per_gpu: int, memory: int, percent: str) -> None:
    share = grant(milli, per_gpu=per_gpu)
    assert (share_memory(share), share_percent(share)) == (memory, Decimal(percent))


@given(st.integers(1, 100), st.integers(1, 2**40), st.lists(st.integers(1, 20_000), max_size=20))
def test_the_shares_of_a_device_never_exceed_it(per_gpu: int, memory: int, wishes: list[int]) -> None:
    left, shares = per_gpu * 1000, []
    for milli in (wish // 10 * 10 for wish in wishes):
        if 0 < milli <= left:
            shares.append(grant(milli, per_gpu=per_gpu, memory=memory))
            left -= milli
    assert sum(map(share_memory, shares)) <= memory
    assert sum(map(share_percent, shares)) <= 100


@pytest.mark.parametrize("tier", Tier)
def test_partial_device_needs_the_hook_in_every_tier(tier: Tier) -> None:
    whole = grant(2000, tier=tier)
    assert not needs_hook([])
    assert not needs_hook([whole, whole])
    assert needs_hook([whole, grant(1990, tier=tier)])


def test_mps_disables_the_gate_but_limits_memory() -> None:
    (limit,) = limits([grant(500, tier=Tier.HOOK_MPS)], {}, 0)
    assert (limit.sm_percent, limit.memory_bytes) == (Decimal(100), 2 * GIB)


def test_context_charge_is_at_most_half_a_share() -> None:
    real = [grant(milli, is_simulated=False) for milli in (500, 10)]
    assert [limit.context_bytes for limit in limits(real, {}, 512 * MIB)] == [512 * MIB, 8 * GIB // 200 // 2]
    assert limits([grant(500)], {}, 512 * MIB)[0].context_bytes == 0


@pytest.mark.parametrize(
    ("taken", "percent", "start"),
    [
        ([], "25", 0),
        ([(0, 25)], "25", 25),
        ([(0, 25), (50, 25)], "25", 25),
        ([(25, 50)], "50", 75),  # around the end of the frame
        ([(0, 100)], "50", 0),
    ],
)
def test_turns_are_laid_beside_each_other(taken: list[tuple[int, int]], percent: str, start: int) -> None:
    assert free_turn(taken, Decimal(percent)) == start
