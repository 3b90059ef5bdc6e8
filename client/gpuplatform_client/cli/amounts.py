"""Amounts and times as the command line shows them."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import typer

from gpuplatform_client.models.platform import ClusterMember, ComputeSession, LikelyStart

GIB = 2**30
MIB = 2**20
KIB = 2**10
SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
SPAN: Final = re.compile("([0-9]{1,9})([smhd])")


def size_text(size: int | None) -> str:
    """Return a size in bytes with its unit; "-" if it is not known."""
    if size is None:
        return "-"
    if 0 < size < MIB:
        return f"{size / KIB:.3g} KiB" if size >= KIB else f"{size} B"
    return f"{size / GIB:.4g} GiB" if size >= GIB else f"{size / MIB:.3g} MiB"


def fgpu_text(fgpu: Decimal) -> str:
    """Return fGPU without zeros at the end."""
    return f"{fgpu.normalize():f}"


def resources_text(session: ComputeSession) -> str:
    """Return what a session, or each member of it, has asked for, and what of its CPU is guaranteed if not all."""
    milli = session.cpu_guaranteed_milli
    guaranteed = "" if milli is None or milli == 1000 * session.cpu else f" ({milli / 1000:g} guaranteed)"
    cluster, own = session.cluster, _amounts_text(session, guaranteed)
    if cluster is None:
        return own
    others = cluster.members[1:]
    if others and _amounts_text(others[0]) != _amounts_text(session):
        most = f"-{cluster.max_size - 1}" if cluster.max_size else ""
        return f"{own} + {cluster.size - 1}{most} x {_amounts_text(others[0])}"
    most = f"-{cluster.max_size}" if cluster.max_size else ""
    return f"{cluster.size}{most} x {own}"


def _amounts_text(session: ComputeSession | ClusterMember, guaranteed: str = "") -> str:
    parts = [f"{session.cpu} CPU{guaranteed}", size_text(session.memory)]
    memory = session.gpu_memory
    granted = f"{fgpu_text(session.fgpu)} fGPU" + (f" for {size_text(memory)} of GPU memory" if memory else "")
    return ", ".join([*parts, granted] if session.fgpu else parts)


def span_text(span: timedelta) -> str:
    """Return a span of time by its largest unit."""
    seconds = int(span.total_seconds())
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{max(0, seconds)}s"


def age_text(moment: datetime) -> str:
    """Return how long ago a moment is."""
    return span_text(datetime.now(UTC) - moment)


def clock_text(moment: datetime) -> str:
    """Return a moment in the time zone of this machine, with its date unless that is today's."""
    local = moment.astimezone()
    return local.strftime("%H:%M" if local.date() == datetime.now().astimezone().date() else "%d %b %H:%M")


def range_text(estimate: LikelyStart) -> str:
    """Return between which times something is likely to start, with the certainty: "14:10 to 14:50, 8 of 10"."""
    moments = " to ".join(clock_text(each) for each in (estimate.starts_from, estimate.starts_until) if each)
    return f"{moments}, {round(10 * (estimate.certainty or 0))} of 10"


def seconds_of(text: str, option: str) -> int:
    """Return the length of a time such as "60s", "30m", "2h" or "1d". Raises BadParameter."""
    match = SPAN.fullmatch(text)
    if not match:
        raise typer.BadParameter(f"{text!r} is no time: write for example 60s, 30m or 2h.", param_hint=option)
    return int(match[1]) * SECONDS[match[2]]
