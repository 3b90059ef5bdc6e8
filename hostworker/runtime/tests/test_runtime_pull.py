"""A pull's progress and failures in words."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from hostworker.runtime import pull
from hostworker.runtime.pull import PullLine, PullProgress, explain_failure, follow, span_words
from hostworker.runtime_protocol import ImageUnavailableError
from resources.amounts.units import MIB
from tests.wait import SECONDS

LINES: tuple[PullLine, ...] = (
    {"status": "Pulling from library/python", "id": "3.11"},
    {"status": "Already exists", "id": "a", "progressDetail": {}},
    {"status": "Pulling fs layer", "id": "b", "progressDetail": {}},
    {"status": "Downloading", "id": "b", "progressDetail": {"current": 20 * MIB, "total": 80 * MIB}},
)


def sentences(*lines: PullLine, seconds: float = 1.0) -> list[str]:
    """Return what is told after each line, one line each `seconds`."""
    progress, told = PullProgress("python:3.11"), []
    for number, line in enumerate(lines):
        progress.read(line)
        told.append(progress.text(number * seconds).removeprefix("Pulling python:3.11").removeprefix(": "))
    return told


def loading(layer: str, current: int, total: int) -> PullLine:
    detail = {"current": current * MIB, "total": total * MIB}
    return {"status": "Downloading", "id": layer, "progressDetail": detail}


def test_progress_tells_size_rate_and_remaining_time() -> None:
    assert sentences(*LINES, loading("b", 30, 80), loading("b", 50, 80))[-2:] == [
        "30 MiB of 80 MiB, 10 MiB/s, about 5 s left, 1 of 2 layers unpacked",
        "50 MiB of 80 MiB, 15 MiB/s, about 2 s left, 1 of 2 layers unpacked",
    ]


def test_what_is_reported_has_its_bytes() -> None:
    progress = PullProgress("python:3.11")
    assert (progress.text(0).pulled_bytes, progress.text(0).total_bytes) == (0, None)
    for line in LINES:
        progress.read(line)
    assert (progress.text(1).pulled_bytes, progress.text(1).total_bytes) == (20 * MIB, 80 * MIB)


def test_a_total_is_exact_once_every_layer_has_begun() -> None:
    waiting: PullLine = {"status": "Waiting", "id": "c", "progressDetail": {}}
    told = sentences(*LINES, waiting, loading("c", 0, 1200))
    assert told[-2] == "20 MiB of at least 80 MiB, 1 of 3 layers unpacked"
    assert told[-1] == "20 MiB of 1.25 GiB, 1 of 3 layers unpacked"


def test_unpacking_follows_the_download() -> None:
    complete: PullLine = {"status": "Download complete", "id": "b", "progressDetail": {}}
    told = sentences(*LINES, complete, {"status": "Pull complete", "id": "b", "progressDetail": {}})
    assert told[-2:] == ["80 MiB loaded, 1 of 2 layers unpacked", "80 MiB loaded, 2 of 2 layers unpacked"]


def test_an_old_rate_is_forgotten() -> None:
    assert sentences(*LINES, loading("b", 60, 80), loading("b", 60, 80), seconds=11)[-1] == (
        "60 MiB of 80 MiB, 1 of 2 layers unpacked"
    )


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "about 1 s"), (89, "about 89 s"), (200, "about 3 min"), (9000, "about 2 h")]
)
def test_remaining_time_is_rounded(seconds: float, words: str) -> None:
    assert span_words(seconds) == words


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("manifest for python:9 not found: manifest unknown", "no such image or tag"),
        ("pull access denied for x, repository does not exist or may require 'docker login'", "needs a login"),
        ("unauthorized: authentication required", "may need a login"),
        ("Get https://r/v2/: dial tcp: lookup r on 1.1.1.1:53: no such host", "cannot be reached"),
        ("Get https://r/v2/: x509: certificate signed by unknown authority", "not trusted"),
        ("failed to register layer: write /x: no space left on device", "disk is full"),
        ("toomanyrequests: You have reached your pull rate limit", "refuses more pulls"),
        ("invalid reference format", "not a valid image name"),
        ("something new", "something new"),
        ("", "gave no reason"),
    ],
)
def test_a_failure_is_explained_in_words_for_the_owner(message: str, cause: str) -> None:
    sentence = explain_failure("python:9", message)
    assert sentence.startswith("Image python:9 could not be pulled: ")
    assert cause in sentence


def test_many_lines_within_a_second_make_no_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    told: list[str] = []
    follow("python:3.11", lambda: iter(LINES * 100), told.append, limit_seconds=SECONDS)
    assert told == []


def test_an_error_in_the_stream_ends_the_pull() -> None:
    with pytest.raises(ImageUnavailableError, match="disk is full"):
        follow("x", lambda: iter([*LINES, {"error": "no space left on device"}]), print, limit_seconds=SECONDS)


def test_an_error_of_the_engine_reaches_the_caller() -> None:
    def broken() -> Iterator[PullLine]:
        yield LINES[0]
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        follow("x", broken, print, limit_seconds=SECONDS)


def test_a_silent_registry_meets_the_deadline() -> None:
    released = threading.Event()

    def silent() -> Iterator[PullLine]:
        yield LINES[0]
        released.wait(SECONDS)

    with pytest.raises(ImageUnavailableError, match=r"within 0\.05 seconds"):
        follow("x", silent, print, limit_seconds=0.05)
    released.set()
