"""Follow an image pull: its progress and its failures in words for the session's owner. Knows no SDK."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hostworker.runtime.base import ImageUnavailableError

PullLine = Mapping[str, Any]  # one JSON object of the engine's pull stream
Inbox = queue.SimpleQueue[PullLine | Exception | None]  # a line, what went wrong, or the end

SECONDS_BETWEEN_SENTENCES: Final = 1.0

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


def explain_failure(reference: str, message: str) -> str:
    """Return the sentence that tells the owner why the pull failed; an unknown cause is quoted."""
    lowered = message.lower()
    for fragments, cause in CAUSES:
        if any(fragment in lowered for fragment in fragments):
            return f"Image {reference} could not be pulled: {cause}."
    return f"Image {reference} could not be pulled: {message.strip() or 'the engine gave no reason'}"


@dataclass(slots=True)
class PullProgress:
    """Adds up the layers of one pull."""

    reference: str
    _layers: set[str] = field(default_factory=set)
    _finished: set[str] = field(default_factory=set)
    _bytes: dict[str, tuple[int, int]] = field(default_factory=dict)  # by layer: loaded, total

    def read(self, line: PullLine) -> None:
        """Take in one line of the stream."""
        layer, status = str(line.get("id", "")), str(line.get("status", ""))
        if not layer or status.startswith("Pulling from"):
            return
        self._layers.add(layer)
        detail = line.get("progressDetail") or {}
        if status == "Downloading" and detail.get("total"):
            self._bytes[layer] = (int(detail.get("current", 0)), int(detail["total"]))
        elif status in ("Download complete", "Pull complete") and layer in self._bytes:
            self._bytes[layer] = (self._bytes[layer][1],) * 2
        if status in ("Pull complete", "Already exists"):
            self._finished.add(layer)

    def sentence(self) -> str:
        """Return how far the pull has come, as the session's page shows it."""
        if not self._layers:
            return f"Pulling {self.reference}"
        loaded, total = (
            (sum(sizes) / 1e6 for sizes in zip(*self._bytes.values(), strict=True)) if self._bytes else (0, 0)
        )
        megabytes = f", {loaded:.0f} of {total:.0f} MB" if total else ""
        return f"Pulling {self.reference}: {len(self._finished)} of {len(self._layers)} layers{megabytes}"


def follow(
    reference: str, lines: Callable[[], Iterator[PullLine]], on_progress: Callable[[str], None], limit_seconds: float
) -> None:
    """Read the pull that `lines` opens to its end, telling its progress at most once a second.

    A stalled registry leaves the engine silent for ever, so a thread reads, and this one keeps the time. Past the limit
    the thread is left to the engine: what it has loaded serves the next attempt.

    Raises ImageUnavailableError, and whatever `lines` raises.
    """
    inbox: Inbox = queue.SimpleQueue()
    threading.Thread(target=_read_into, args=(inbox, lines), name=f"pull {reference}", daemon=True).start()
    deadline = time.monotonic() + limit_seconds
    progress, told, told_at = PullProgress(reference), "", -SECONDS_BETWEEN_SENTENCES
    while (line := _next(inbox, reference, deadline, limit_seconds)) is not None:
        if "error" in line:
            raise ImageUnavailableError(explain_failure(reference, str(line["error"])))
        progress.read(line)
        sentence, now = progress.sentence(), time.monotonic()
        if sentence != told and now - told_at >= SECONDS_BETWEEN_SENTENCES:
            told, told_at = sentence, now
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
