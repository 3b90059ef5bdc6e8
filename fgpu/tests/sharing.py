"""Sessions that use one simulated GPU at the same time, under the arbiter and the virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fgpu.limits import Sharing
from fgpu.tests.host import Host, Session, limit

CLOCK = {"FGPU_SIM_CLOCK": "virtual"}
LIAR_PERCENT = 5


@dataclass(frozen=True)
class Load:
    """What test/load runs: its pattern, the kernels' length, for how long."""

    pattern: str
    kernel_us: int
    for_ms: int = 4000
    pause_us: int = 0

    def arguments(self) -> list[str]:
        return [self.pattern, str(self.kernel_us), str(self.for_ms), str(self.pause_us)]


@dataclass(frozen=True)
class Lie:
    """What test/liar says to the arbiter, without a launch: its pattern, and the pattern's period."""

    pattern: str
    period_ms: int = 50
    for_ms: int = 5000

    def arguments(self) -> list[str]:
        return [self.pattern, str(self.period_ms), str(self.for_ms)]


def run_beside(
    loads: Sequence[tuple[Session, Load]],
    *,
    arbiter: bool = True,
    liar: tuple[Session, Lie] | None = None,
    **environment: str,
) -> list[list[float]]:
    """Run every load in its session, at once; return the figures that each prints.

    `environment` is the arbiter's; without one each session has its local budget alone.
    """
    host = loads[0][0].host
    clock = CLOCK | {"FGPU_SIM_PARTIES": str(len(loads) + arbiter + (liar is not None))}
    if arbiter:
        host.arbiter(**clock, **environment)
    if liar:
        liar[0].start("test/liar", *liar[1].arguments(), **clock)
    processes = [session.start("test/load", *load.arguments(), **clock) for session, load in loads]
    return [[float(word) for word in process.communicate(timeout=120)[0].split()] for process in processes]


def run_beside_liar(
    host: Host, shares: Sequence[float], load: Load, lie: Lie | None, sharing: Sharing = "cap"
) -> list[list[float]]:
    """Run the load in a session of each share beside one of LIAR_PERCENT that lies; return each one's figures."""
    loads = [(session, load) for session in sessions_of(host, shares, sharing)]
    [liar] = sessions_of(host, [LIAR_PERCENT], sharing, hooked=False)
    return run_beside(loads, liar=(liar, lie) if lie else None)


def sessions_of(host: Host, shares: Sequence[float], sharing: Sharing = "cap", *, hooked: bool = True) -> list[Session]:
    sessions = [host.session(limit(sm=f"{share:g}"), sharing=sharing) for share in shares]
    for session in sessions:
        session.hook = session.hook if hooked else ""
    return sessions


def contend(
    host: Host, shares: Sequence[float], load: Load, sharing: Sharing = "cap", *, gated: bool = True
) -> tuple[list[float], float]:
    """Return each session's part of the GPU's time in percent, and how busy the GPU was for all of them."""
    loads = [(session, load) for session in sessions_of(host, shares, sharing, hooked=gated)]
    figures = run_beside(loads, arbiter=gated)
    return [figure[1] for figure in figures], min(figure[0] for figure in figures)
