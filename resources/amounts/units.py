"""Parsing and formatting of amounts: sizes such as "4g", fGPU such as "0.35", spans such as "90m". Pure."""

import re
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Final

MIB: Final = 2**20
GIB: Final = 2**30
CORE_MILLI: Final = 1000  # thousandths of a CPU core
PLAIN_WEIGHT: Final = 1000  # thousandths: the weight of GPU models of which nobody says another
FGPU_STEP: Final = 10  # milli-fGPU: the step is 0.01 fGPU

_FACTORS: Final = {"": 1, "k": 2**10, "m": MIB, "g": GIB, "t": 2**40}
_SIZE = re.compile(r"(?P<number>[0-9]{1,19}(?:\.[0-9]{1,9})?)\s*(?P<unit>[kmgt]?)(?:i?b)?", re.IGNORECASE)
_MINUTES: Final = {"m": 1, "h": 60, "d": 1440}
_SPAN = re.compile(r"(?P<number>[0-9]{1,6}(?:\.[0-9]{1,3})?)\s*(?:(?P<unit>[mhd])(?:in)?)", re.IGNORECASE)
_FGPU = re.compile(r"[+-]?(?:[0-9]{1,6}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})")  # bounded, so that Decimal stays exact


def bytes_from(text: str) -> int:
    """Return the bytes in "512m", "4g", "1.5 GiB" or "1048576"; units are powers of 1024. Raise ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text[:40]!r} is not a size; write for example 4g or 512m.")
    return int(Decimal(match["number"]) * _FACTORS[match["unit"].lower()])


def with_unit(text: str) -> str:
    """Return `text` as it is; raise ValueError for a number, which is a size without its unit."""
    if text.strip().replace(".", "", 1).isdecimal():
        raise ValueError(f"{text.strip()[:40]!r} has no unit; write for example 4g or 512m.")
    return text


def milli_fgpu_from(text: str) -> int:
    """Return milli-fGPU for a decimal such as "0.35". Raise ValueError, naming the nearest values in steps of 0.01."""
    if not _FGPU.fullmatch(text.strip()):
        raise ValueError(f"{text[:40]!r} is not a number of fGPU; write for example 0.5.")
    milli = Decimal(text.strip()) * 1000
    if milli < 0:
        raise ValueError("fGPU must be zero or more.")
    if milli % FGPU_STEP:
        lower = int(milli // FGPU_STEP) * FGPU_STEP
        raise ValueError(
            f"fGPU is granted in steps of 0.01; the nearest values are "
            f"{fgpu_text(lower)} and {fgpu_text(lower + FGPU_STEP)}."
        )
    return int(milli)


def span_from(text: str) -> timedelta:
    """Return the span in "90m", "4h", "1.5 h" or "2d". Raise ValueError."""
    match = _SPAN.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text[:40]!r} is not a length of time; write for example 90m, 4h or 2d.")
    return timedelta(minutes=int(Decimal(match["number"]) * _MINUTES[match["unit"].lower()]))


def span_text(span: timedelta) -> str:
    """Return the span in whole minutes, rounded up, in the largest units: "4 h", "1 d 30 min"."""
    minutes = -(-int(span.total_seconds()) // 60)
    parts = ((minutes // 1440, "d"), (minutes // 60 % 24, "h"), (minutes % 60, "min"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "0 min"


def fgpu_text(milli: int) -> str:
    """Return milli-fGPU as a decimal without trailing zeros: 350 -> "0.35", 2000 -> "2"."""
    return f"{Decimal(milli) / 1000:f}".rstrip("0").rstrip(".") if milli % 1000 else str(milli // 1000)


def size_text(size: int) -> str:
    """Return bytes in the largest fitting unit, rounded down: "1.5 GiB"."""
    for unit, factor in (("TiB", 2**40), ("GiB", GIB), ("MiB", MIB), ("KiB", 2**10)):
        if size >= factor:
            whole, hundredths = divmod(size * 100 // factor, 100)
            return f"{whole}.{hundredths:02}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{size} B"


def exact_size_text(size: int) -> str:
    """Return bytes exactly, with a unit."""
    text = size_text(size)
    if bytes_from(text) == size:
        return text
    return f"{size} B" if size % MIB else f"{size // MIB} MiB"


def guaranteed_milli(overcommit: Decimal) -> int:
    """Return how many thousandths of each core are guaranteed where CPU is overcommitted by a factor."""
    return int(CORE_MILLI // overcommit)


def amount_text(field: str, amount: int) -> str:
    """Return an amount of "cpu", "memory" or "fgpu" with its unit: "8 CPU cores", "2 GiB of memory"."""
    if field == "memory":
        return f"{size_text(amount)} of memory"
    if field == "fgpu":
        return f"{fgpu_text(amount)} fGPU"
    return "1 CPU core" if amount == 1 else f"{amount} CPU cores"


def listing(parts: Sequence[str]) -> str:
    """Return "a", "a and b" or "a, b and c"."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
