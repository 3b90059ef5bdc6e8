"""Follow an image pull: its progress and its failures in words for the session's owner. Knows no SDK."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hostworker.runtime_protocol import ImageUnavailableError
from resources.amounts.units import size_text

PullLine = Mapping[str, Any]  # one JSON object of the engine's pull stream
Inbox = queue.SimpleQueue[PullLine | Exception | None]  # a line, what went wrong, or the end

SECONDS_BETWEEN_SENTENCES: Final = 1.0
RATE_SECONDS: Final = 10.0  # over which the rate is measured

# Fragments of what engines and registries say, and what that means to the owner; the first that matches counts.
CAUSES: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("no space left on device", "disk quota exceeded"), "the host's disk is full"),
    (("toomanyrequests", "too many requests", "rate limit"), "the registry refuses more pulls for now"),
    (("pull access denied", "repository does not exist"), "there is no such image, or it needs a login"),
    (("unauthorized", "no basic auth", "denied", "forbidden"), "the registry refuses access; it may need a login"),
    (("manifest unknown", "not found", "manifest invalid"), "the registry has no such image or tag"),
    (("no matching manifest", "does not match the specified platform"), "the image is not made for this host's CPU"),
    (("invalid reference", "invalid tag", "must be lowercase"), "this is not a valid image name"),
    (
        ("no such host", "dial tcp", "connection refused", "timeout", "deadline exceeded", "network is unreachable"),
        "the registry cannot be reached from the host",
    ),
    (("x509", "tls", "certificate"), "the registry's certificate is not trusted by the host"),
)


def is_disk_full(message: str) -> bool:
    """Return whether the pull failed for want of space on the host, so that another host may do."""
    return any(fragment in message.lower() for fragment in CAUSES[0][0])


def explain_failure(reference: str, message: str) -> str:
    """Return the sentence that tells the owner why the pull failed; an unknown cause is quoted."""
    lowered = message.lower()
    for fragments, cause in CAUSES:
        if any(fragment in lowered for fragment in fragments):
            return f"Image {reference} could not be pulled: {cause}."
    return f"Image {reference} could not be pulled: {message.strip() or 'the engine gave no reason'}"


class PullText(str):
    """A sentence on a pull, with the bytes that it tells: as the registry sends them, compressed."""

    __slots__ = ("pulled_bytes", "total_bytes")
    pulled_bytes: int
    total_bytes: int | None

    def __new__(cls, text: str, pulled_bytes: int = 0, total_bytes: int | None = None) -> "PullText":
        """Return the sentence; `total_bytes` is None while it is not known."""
        made = super().__new__(cls, text)
        made.pulled_bytes, made.total_bytes = pulled_bytes, total_bytes
        return made


@dataclass(slots=True)
class LayerProgress:
    """How far one layer is: bytes as the registry sends them, compressed."""

    loaded_bytes: int = 0
    total_bytes: int | None = None  # None until its download begins
    is_loaded: bool = False
    is_unpacked: bool = False


@dataclass(slots=True)
class PullProgress:
    """Adds up the layers of one pull. Moments are seconds of any clock that never goes back."""

    reference: str
    _layers: dict[str, LayerProgress] = field(default_factory=dict)
    _loaded_at: deque[tuple[float, int]] = field(default_factory=deque)  # within RATE_SECONDS

    def read(self, line: PullLine) -> None:
        """Take in one line of the stream."""
        name, status = str(line.get("id", "")), str(line.get("status", ""))
        if not name or status.startswith("Pulling from"):
            return
        layer = self._layers.setdefault(name, LayerProgress())
        detail = line.get("progressDetail") or {}
        if status == "Downloading" and detail.get("total"):
            layer.loaded_bytes, layer.total_bytes = int(detail.get("current", 0)), int(detail["total"])
        elif status in ("Verifying Checksum", "Download complete", "Extracting", "Pull complete", "Already exists"):
            layer.is_loaded = True
            layer.total_bytes = layer.loaded_bytes = layer.total_bytes or 0
        if status in ("Pull complete", "Already exists"):
            layer.is_unpacked = True

    def text(self, now: float) -> PullText:
        """Return how far the pull has come, as the session's page shows it."""
        layers = self._layers.values()
        totals = [layer.total_bytes for layer in layers]
        known = [total for total in totals if total is not None]
        loaded = sum(layer.loaded_bytes for layer in layers)
        return PullText(self._sentence(now), loaded, sum(known) if known else None)

    def _sentence(self, now: float) -> str:
        layers = self._layers.values()
        if not layers:
            return f"Pulling {self.reference}"
        loaded = sum(layer.loaded_bytes for layer in layers)
        total = sum(layer.total_bytes or 0 for layer in layers)
        unpacked = f"{sum(layer.is_unpacked for layer in layers)} of {len(layers)} layers unpacked"
        if all(layer.is_loaded for layer in layers):
            return (
                f"Pulling {self.reference}: {size_text(total)} loaded, {unpacked}"
                if total
                else (f"Pulling {self.reference}: {unpacked}")
            )
        if not total:
            return f"Pulling {self.reference}: {unpacked}"
        is_exact = all(layer.total_bytes is not None for layer in layers)
        known = f"{size_text(loaded)} of {'' if is_exact else 'at least '}{size_text(total)}"
        return f"Pulling {self.reference}: {known}{self._pace(now, loaded, total if is_exact else None)}, {unpacked}"

    def _pace(self, now: float, loaded: int, total: int | None) -> str:
        """Return rate and remaining time by the bytes of the last seconds; "" while they are not known."""
        times = self._loaded_at
        times.append((now, loaded))
        while now - times[0][0] > RATE_SECONDS:
            times.popleft()
        span, gained = now - times[0][0], loaded - times[0][1]
        if span < 1 or gained <= 0:
            return ""
        rate = gained / span
        left = f", {span_words((total - loaded) / rate)} left" if total is not None else ""
        return f", {size_text(int(rate))}/s{left}"


def span_words(seconds: float) -> str:
    """Return a span such as "about 40 s" or "about 3 min"."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    return f"about {round(seconds / 60)} min" if seconds < 90 * 60 else f"about {round(seconds / 3600)} h"


def follow(
    reference: str, lines: Callable[[], Iterator[PullLine]], on_progress: Callable[[str], None], limit_seconds: float
) -> None:
    """Read the pull that `lines` opens to its end, and report its progress at most once a second.

    The caller has reported that the pull begins.
    A stalled registry leaves the engine silent for ever, so a thread reads, and this one keeps the time. Past the limit
    the thread is left to the engine: what it has loaded serves the next attempt.

    Raises ImageUnavailableError, and whatever `lines` raises.
    """
    inbox: Inbox = queue.SimpleQueue()
    threading.Thread(target=_read_into, args=(inbox, lines), name=f"pull {reference}", daemon=True).start()
    deadline = time.monotonic() + limit_seconds
    progress, shown, shown_at = PullProgress(reference), PullText(f"Pulling {reference}"), time.monotonic()
    while (line := _next(inbox, reference, deadline, limit_seconds)) is not None:
        if "error" in line:
            message = str(line["error"])
            raise ImageUnavailableError(explain_failure(reference, message), is_host_fault=is_disk_full(message))
        progress.read(line)
        now = time.monotonic()
        if now - shown_at >= SECONDS_BETWEEN_SENTENCES and (sentence := progress.text(now)) != shown:
            shown, shown_at = sentence, now
            on_progress(sentence)


def _next(inbox: Inbox, reference: str, deadline: float, limit_seconds: float) -> PullLine | None:
    try:
        item = inbox.get(timeout=max(0.0, deadline - time.monotonic()))
    except queue.Empty:
        minutes = f"{limit_seconds / 60:.0f} minutes" if limit_seconds >= 120 else f"{limit_seconds:g} seconds"
        raise ImageUnavailableError(f"Image {reference} could not be pulled within {minutes}.") from None
    if isinstance(item, Exception):
        raise item
    return item


def _read_into(inbox: Inbox, lines: Callable[[], Iterator[PullLine]]) -> None:
    try:
        for line in lines():
            inbox.put(line)
        inbox.put(None)
    except Exception as error:  # whatever it is, it belongs to the thread that waits
        inbox.put(error)
