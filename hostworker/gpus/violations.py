"""Which sessions exceed their shares of GPUs, from what the host observes. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from resources.amounts.units import size_text
from sessions.lifecycle import Reason

TOLERANCE_PERCENT: Final = 5  # of the memory: what the driver rounds up, and what changes between two polls
TIME_TOLERANCE_POINTS: Final = 10  # of a device's time: the driver's samples are whole percent and irregular
TIME_WINDOWS: Final = 3  # in a row, until too much time is a violation
UNCHARGED_POLLS: Final = 5  # in a row: between two readings a program may give memory back

SessionDevice = tuple[str, str]  # session id, GPU UUID
Violation = tuple[Reason, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """What the processes of one session do on one device."""

    memory_bytes: int  # of those whose memory the driver tells
    is_partial: bool = False  # it does not tell that of all of them
    processes: int = 1
    unhooked: int = 0  # processes that run without the hook


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAllowance:
    """What a session may do on one device of its lease; None is as much as there is."""

    memory_bytes: int | None
    is_hooked: bool
    percent: float | None = None  # of the device's time
    can_burst: bool = False  # what others leave idle is its own to take


NOTHING: Final = GpuAllowance(memory_bytes=0, is_hooked=False, percent=0)  # on a device that it does not hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Sessions to stop, as {session id: (reason, explanation)}, and devices whose next excess is a violation."""

    violations: Mapping[str, Violation]
    warned: frozenset[SessionDevice]


def assess(
    uses: Mapping[SessionDevice, GpuUse],
    allowances: Mapping[SessionDevice, GpuAllowance],
    warned: Collection[SessionDevice],
    context_memory: int,
) -> Assessment:
    """Return the assessment of the current use; `warned` are the devices in excess at the previous poll.

    A process without the hook ends its session at once. An excess of memory does when it lasts for two polls. What the
    driver takes beside what is charged may be 5 % or `context_memory` bytes, whichever is more, for all processes of a
    session together: their number is the user's to choose.
    """
    violations: dict[str, Violation] = {}
    in_excess = set()
    for place, use in uses.items():
        allowed = allowances.get(place, NOTHING)
        if allowed.is_hooked and use.unhooked:
            violations[place[0]] = (
                Reason.HOOK_BYPASSED,
                "A process of it used the GPU without the limits of its share.",
            )
        elif allowed.memory_bytes is not None and use.memory_bytes > _most_memory(allowed.memory_bytes, context_memory):
            in_excess.add(place)
            if place in warned:
                used, share = size_text(use.memory_bytes), size_text(allowed.memory_bytes)
                words = f"It used {used} of GPU memory; its share is {share}."
                violations.setdefault(place[0], (Reason.GPU_LIMIT_EXCEEDED, words))
    return Assessment(violations=violations, warned=frozenset(in_excess))


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedAssessment:
    """Sessions in violation, and {device: how often in a row} a session was found in excess."""

    violations: Mapping[str, Violation]
    overruns: Mapping[SessionDevice, int]


def assess_time(
    percents: Mapping[SessionDevice, float | None],
    allowances: Mapping[SessionDevice, GpuAllowance],
    overruns: Mapping[SessionDevice, int],
) -> CountedAssessment:
    """Return the assessment of one window of time, in percent of each device; `overruns` are those of the last one.

    Where a window's time is not known, what was counted before stays.
    """
    violations: dict[str, Violation] = {}
    counts: dict[SessionDevice, int] = {}
    for place, percent in percents.items():
        share = allowances.get(place, NOTHING).percent
        if percent is None:
            counts[place] = overruns.get(place, 0)
        elif share is not None and percent > share + TIME_TOLERANCE_POINTS:
            counts[place] = overruns.get(place, 0) + 1
        if share is not None and percent is not None and counts.get(place, 0) >= TIME_WINDOWS:
            words = f"It took {percent:.0f} % of the GPU's time; its share is {share:.0f} %."
            violations[place[0]] = (Reason.GPU_TIME_EXCEEDED, words)
    return CountedAssessment(violations=violations, overruns={place: count for place, count in counts.items() if count})


def assess_charges(
    uses: Mapping[SessionDevice, GpuUse],
    allowances: Mapping[SessionDevice, GpuAllowance],
    charges: Mapping[SessionDevice, int],
    overruns: Mapping[SessionDevice, int],
    context_memory: int,
) -> CountedAssessment:
    """Return who holds memory that the hook has not charged: a process of theirs got around it.

    `charges` are the bytes in the sessions' own accounts, `overruns` those of the previous poll. What the driver takes
    for each context beside what is charged may be 5 % of the share or `context_memory` bytes a process.
    """
    violations: dict[str, Violation] = {}
    counts: dict[SessionDevice, int] = {}
    for place in uses.keys() & charges.keys():
        use, allowed = uses[place], allowances.get(place, NOTHING)
        if not allowed.is_hooked or allowed.memory_bytes is None:
            continue
        tolerance = max(allowed.memory_bytes * TOLERANCE_PERCENT // 100, context_memory * use.processes)
        if use.memory_bytes > charges[place] + tolerance:
            counts[place] = overruns.get(place, 0) + 1
        if counts.get(place, 0) >= UNCHARGED_POLLS:
            used, charged = size_text(use.memory_bytes), size_text(charges[place])
            words = f"It holds {used} of GPU memory, of which its limits count {charged}."
            violations[place[0]] = (Reason.HOOK_BYPASSED, words)
    return CountedAssessment(violations=violations, overruns=counts)


def assess_turns(strays: Mapping[SessionDevice, float], windows: Mapping[SessionDevice, int]) -> CountedAssessment:
    """Return the assessment of one window, by the percent of it in which a session was busy far from any turn.

    A session that lies to the arbiter is so, or one past the gate; it takes nothing from others by what it says.
    """
    counts = {place: windows.get(place, 0) + 1 for place, percent in strays.items() if percent > TIME_TOLERANCE_POINTS}
    violations = {
        place[0]: (
            Reason.GPU_TIME_EXCEEDED,
            f"For {strays[place]:.0f} % of the time it said that it used the GPU, without a turn from the arbiter.",
        )
        for place, count in counts.items()
        if count >= TIME_WINDOWS
    }
    return CountedAssessment(violations=violations, overruns=counts)


def _most_memory(share_bytes: int, context_bytes: int) -> int:
    return share_bytes + max(share_bytes * TOLERANCE_PERCENT // 100, context_bytes)
