"""Whatever processes do in whatever order, the account is what a model of a dozen lines says it is."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from fgpu.tests.host import GIB, MIB, OUT_OF_MEMORY, Host, Probe, Session

CAP = 2 * GIB
PROCESSES = 5
STEPS = 250
WAYS = ["plain", "managed", "vmm", "array", "array3d", "graph"]


@dataclass
class Member:
    """A process, and what the model thinks it holds: slot -> bytes."""

    probe: Probe
    held: dict[int, int] = field(default_factory=dict)


def held(members: list[Member]) -> int:
    return sum(sum(member.held.values()) for member in members)


def step(rng: random.Random, session: Session, members: list[Member]) -> None:
    """Do one random thing and check that it went as the model says."""
    index = rng.randrange(len(members))
    member = members[index]
    free_slots = [slot for slot in range(8) if slot not in member.held]
    act = rng.choices(["alloc", "free", "kill", "ask"], weights=[10, 6, 1, 3])[0]
    if act == "alloc" and free_slots:
        size, slot = rng.randrange(1, 200) * 4 * MIB, rng.choice(free_slots)
        fits = held(members) + size <= CAP
        assert member.probe.alloc(size, rng.choice(WAYS), slot) == (0 if fits else OUT_OF_MEMORY)
        if fits:
            member.held[slot] = size
        else:
            member.probe.ask(f"forget {slot}")
    elif act == "free" and member.held:
        slot = rng.choice(sorted(member.held))
        assert member.probe.code(f"free {slot}") == 0
        del member.held[slot]
    elif act == "kill":
        member.probe.kill()
        members[index] = Member(session.probe())
    else:
        assert member.probe.free() == CAP - held(members)


@pytest.mark.parametrize("seed", range(4))
def test_any_history_ends_where_the_model_does(host: Host, seed: int) -> None:
    rng = random.Random(seed)  # the same history each time
    session = host.session()
    members = [Member(session.probe()) for _ in range(PROCESSES)]
    for _ in range(STEPS):
        step(rng, session, members)
    for member in members[1:]:
        member.probe.kill()
    assert members[0].probe.free() == CAP - held(members[:1])
