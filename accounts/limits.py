"""Limits of the policy of a user or project and what is left of them, for form, API, scheduler and resource bars.

Pure: no database, no clock. CPU is in cores, memory in bytes, fGPU in milli-fGPU. `None` means unlimited.
"""

from dataclasses import dataclass
from typing import Final

FIELDS: Final = ("cpu", "memory", "fgpu", "sessions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """Amounts of resources that sessions hold or request together."""

    cpu: int = 0
    memory: int = 0
    fgpu: int = 0
    sessions: int = 0

    def __add__(self, other: "Amounts") -> "Amounts":
        return Amounts(**{name: getattr(self, name) + getattr(other, name) for name in FIELDS})


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLimits:
    """Limits for the sessions of a user or a project together; `pending` limits those that wait."""

    cpu: int | None = None
    memory: int | None = None
    fgpu: int | None = None
    sessions: int | None = None
    pending: int | None = None


def remaining(limits: PolicyLimits, used: Amounts, pending: int = 0) -> PolicyLimits:
    """Return what is left of `limits` after `used`, and of those that may wait after `pending`; at least zero."""
    left = {
        name: None if (limit := getattr(limits, name)) is None else max(0, limit - getattr(used, name))
        for name in FIELDS
    }
    return PolicyLimits(**left, pending=None if limits.pending is None else max(0, limits.pending - pending))


def least(first: PolicyLimits, second: PolicyLimits) -> PolicyLimits:
    """Return the lesser of each limit."""
    names = (*FIELDS, "pending")
    return PolicyLimits(**{name: lesser(getattr(first, name), getattr(second, name)) for name in names})


def exceeded(limits: PolicyLimits, asked: Amounts) -> tuple[str, ...]:
    """Return the names of the amounts in which `asked` exceeds `limits`, in the order of FIELDS."""
    return tuple(
        name for name in FIELDS if (limit := getattr(limits, name)) is not None and getattr(asked, name) > limit
    )


def lesser(first: int | None, second: int | None) -> int | None:
    """Return the lesser of two limits."""
    known = [value for value in (first, second) if value is not None]
    return min(known, default=None)
