"""Stories: what a seed makes happen, as plain data, and how the shortest one that fails is found."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from tests.virtual.faults import Fault, FaultKind
from tests.virtual.world import MAX_HOSTS

MIN_LENGTH: Final = 6
MAX_LENGTH: Final = 16  # of operations; most faults need a handful
MAX_STEP: Final = 40  # at which a fault happens; a start has about thirty
MAX_ENGINE_STEP: Final = 6
FAULT_CHANCE: Final = 0.45
STEADY_CHANCE: Final = 0.5  # that the first session runs before anything is done with it
FAULTLESS: Final = frozenset(
    {"pass_time", "lose_host", "cut_off", "return_host", "lose_power", "kill_worker", "stop_engine"}
)
WEIGHTS: Final = {
    # how it goes on
    **{"submit": 10, "run_pass": 10, "deliver": 16, "go_on": 8, "pass_time": 9, "reconcile": 8, "sweep": 6, "pull": 2},
    # what people do
    **{"terminate": 5, "force_end": 2, "extend": 1, "resize": 4, "park": 4, "resume": 4, "requeue": 2},
    **{"cordon": 1, "drain": 1, "pull_gpu": 2, "weigh": 1},
    # deployments, arrays and imports
    **{"deploy": 3, "scale": 2, "roll_out": 3, "roll_back": 1, "restart": 1, "fall_asleep": 2, "wake": 2, "sicken": 2},
    **{"end_deployment": 1, "advance": 10, "submit_array": 3, "cancel_array": 1, "retry_array": 1, "hold_array": 1},
    **{"import_": 3, "end_import": 3, "cancel_import": 1},
    # what happens to messages, containers, hosts and clocks
    **{"lose_message": 2, "repeat_message": 3, "delay_message": 2, "flush_redis": 1},
    **{"end_container": 2, "lose_container": 1, "need_image": 2},
    **{
        "lose_host": 1,
        "cut_off": 2,
        "return_host": 4,
        "lose_power": 1,
        "kill_worker": 2,
        "stop_engine": 1,
        "start_engine": 2,
    },
    **{"restart_scheduler": 1, "set_clock": 2},
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that happens; two numbers say to what and how."""

    name: str
    which: int = 0
    amount: int = 0
    fault: Fault | None = None

    def __str__(self) -> str:
        fault = f", {self.fault.kind} at step {self.fault.at}" if self.fault else ""
        return f"{self.name}({self.which}, {self.amount}{fault})"


@dataclass(frozen=True, slots=True)
class Story:
    """What happens to a platform of so many hosts, before it is left alone."""

    hosts: int
    operations: tuple[Operation, ...]

    def __str__(self) -> str:
        return f"{self.hosts} hosts: " + "; ".join(map(str, self.operations))


def story_of(seed: int) -> Story:
    """Return the story of a seed, always the same."""
    chance = random.Random(seed)
    length = chance.randint(MIN_LENGTH, MAX_LENGTH)
    names = ["submit", "run_pass", "go_on" if chance.random() < STEADY_CHANCE else "deliver"]
    names += chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=length)
    hosts = chance.choices((1, 2, MAX_HOSTS), (4, 4, 1))[0]
    return Story(hosts, tuple(_operation(name, chance) for name in names))


def shortest(story: Story, fails: Callable[[Story], bool]) -> Story:
    """Return a story that fails as well, of which nothing can be left out any more."""
    is_shorter = True
    while is_shorter:
        is_shorter = False
        for simpler in _simpler(story):
            if fails(simpler):
                story, is_shorter = simpler, True
                break
    return story


def _simpler(story: Story) -> Iterator[Story]:
    """Yield stories that tell less, the much shorter ones first."""
    told = story.operations
    size = len(told) // 2
    while size:
        for begin in range(0, len(told), size):
            yield replace(story, operations=told[:begin] + told[begin + size :])
        size //= 2
    for fewer in range(1, story.hosts):
        yield replace(story, hosts=fewer)
    for position, operation in enumerate(told):
        for simpler in _simpler_operations(operation):
            yield replace(story, operations=(*told[:position], simpler, *told[position + 1 :]))


def _simpler_operations(operation: Operation) -> Iterator[Operation]:
    if operation.fault:
        yield replace(operation, fault=None)
    yield from (replace(operation, which=smaller) for smaller in _smaller(operation.which))
    yield from (replace(operation, amount=smaller) for smaller in _smaller(operation.amount))


def _smaller(value: int) -> list[int]:
    return [smaller for smaller in dict.fromkeys((0, 1, value % 12)) if smaller < value]


def _operation(name: str, chance: random.Random) -> Operation:
    fault = None
    if name not in FAULTLESS and chance.random() < FAULT_CHANCE:
        kind = chance.choice(list(FaultKind))
        most = MAX_ENGINE_STEP if "engine" in kind or kind in (FaultKind.IMAGE_GONE, FaultKind.MEANWHILE) else MAX_STEP
        fault = Fault(kind, min(chance.randrange(most), chance.randrange(most)))
    return Operation(name, chance.randrange(2520), chance.randrange(2520), fault)
