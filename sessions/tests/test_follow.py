"""A session is followed by server-sent events, which go on where they broke off."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import requests
from channels.db import database_sync_to_async
from django.db import connection

from accounts.models import ApiToken
from engine.engine import EngineConnectionError
from engine.output import LogEntry
from restapi import streams
from restapi.streams import ServerSentEvent
from sessions import notes
from sessions.following import stream as follow
from sessions.following.all_sessions import FeedPosition, events_of_all
from sessions.following.stream import LogFollower, Position, ResumedPosition
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Session, SessionEvent
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize, StoredResize
from tests.api import client_of
from tests.factories import make_host, make_session, make_user, run_cluster, run_session
from tests.live import serving
from tests.wait import SECONDS

OUTPUT = [LogEntry(f"170000000{second}.000000000", f"line {second}\n".encode()) for second in range(4)]


def parsed(response: requests.Response) -> Any:
    """Yield (id, name, data) of the events of a response."""
    event: dict[str, str] = {}
    for line in response.iter_lines(chunk_size=1, decode_unicode=True):
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif event.get("event"):
            yield event.get("id", ""), event["event"], json.loads(event["data"])
            event = {}


@pytest.mark.loopback
@pytest.mark.django_db(transaction=True)
def test_changes_of_a_session_are_streamed_until_its_end(tmp_path: Path) -> None:
    session = make_session()
    _, token = ApiToken.objects.issue(session.owner)
    _, strange = ApiToken.objects.issue(make_user())
    with serving(tmp_path / "web.log") as web:
        address = f"{web.url}/api/v1/sessions/{session.pk}/events/follow/"
        headers = {"Authorization": f"Token {token}"}
        events = parsed(requests.get(address, headers=headers, stream=True, timeout=SECONDS))
        of_all = f"{web.url}/api/v1/sessions/events/follow/"
        endless = requests.get(of_all, headers=headers, stream=True, timeout=SECONDS)
        everything = parsed(endless)
        ready = next(everything)
        assert ready[1] == "ready"
        make_session()  # a stranger's
        first = next(events)
        assert (first[1], first[2]["session"]["status"]) == ("wait", "PENDING")
        services.terminate(Session.objects.get(pk=session.pk), actor=session.owner)
        number, name, data = next(events)
        assert (name, data["event"]["new_status"], data["session"]["status"]) == ("status", "CANCELLED", "CANCELLED")
        assert [event[1] for event in events] == ["end"]
        assert next(everything)[1:] == (name, data)
        endless.close()
        again = requests.get(address, headers=headers | {"Last-Event-ID": number}, timeout=SECONDS)
        assert [event[1] for event in parsed(again)] == ["end"]
        refused = requests.get(address, headers={"Authorization": f"Token {strange}"}, timeout=SECONDS)
        assert (refused.status_code, refused.headers["Content-Type"]) == (404, "application/problem+json")


@pytest.mark.django_db
def test_a_session_is_sent_as_its_last_event_left_it() -> None:
    session = run_session(name="before")
    changed: list[bool] = []

    def change_once(execute: Any, *arguments: Any) -> Any:
        """Change the session between the first query of a reader and its next."""
        result = execute(*arguments)
        if not changed:
            changed.append(True)
            Session.objects.filter(pk=session.pk).update(name="after")
            notes.note(session, Reason.RENAMED, "Renamed.")
        return result

    def read(last_id: int) -> tuple[str, list[tuple[int, str]]]:
        _, name, events = follow._read_events(session.pk, last_id, lambda each: each.name, lambda each: each.detail)
        return name, events

    with connection.execute_wrapper(change_once):
        name, events = read(0)
    later, more = read(events[-1][0])
    assert (later if more else name) == "after"


@pytest.mark.asyncio
async def test_of_a_cluster_the_last_resize_is_told(transactional_db: None) -> None:
    def begin() -> list[Session]:
        members = run_cluster(2, name="train", hosts=[make_host(cpu=8)], cpu=1)
        resizing.resize(members[0], SessionSize(cpu=2, memory=members[0].memory, fgpu=0), actor=members[0].owner)
        return members

    def finish(member: Session) -> None:
        stored = StoredResize.of(Session.objects.get(pk=member.pk))
        assert stored
        assert resizing.finish(member.pk, stored.id)

    members = await database_sync_to_async(begin)()
    position = (
        await SessionEvent.objects.filter(session=members[0]).order_by("-pk").values_list("pk", flat=True).afirst()
    )
    events = follow.status_events(
        members[0], position or 0, lambda each: bool(each.whole_resize), lambda event: event.pk
    )
    told = [(await anext(events)).data]
    for member in members:
        await database_sync_to_async(finish)(member)
        async with asyncio.timeout(SECONDS):
            told.append((await anext(events)).data)
    await events.aclose()
    assert [each["session"] for each in told] == [True, True, False]


async def outputs_of(follower: LogFollower) -> list[tuple[str, str, Any]]:
    """Return (name, id, data) of all events but comments."""
    return [(event.name, event.id, event.data) async for event in follower.events() if event.name]


class Log:
    """Stands for the engine: the log of a container, whose connection may break."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries = list(OUTPUT)
        self.breaks_after: list[int] = []
        self.session = run_session()
        monkeypatch.setattr(follow, "follow", self.follow)
        monkeypatch.setattr(follow, "find_engine", self.find_engine)
        monkeypatch.setattr(follow, "RETRY_SECONDS", 0.01)

    async def find_engine(self, _: object) -> None:
        """Return no engine, since `follow` needs none."""

    async def follow(self, *_: object, tail: int, since: str) -> AsyncGenerator[LogEntry]:
        """Yield what there is since a time, as the engine does; then the session ends."""
        left = self.breaks_after.pop(0) if self.breaks_after else -1
        for entry in self.entries:
            if entry.stamp >= since:
                if left == 0:
                    raise EngineConnectionError("broken")
                left -= 1
                yield entry
        await database_sync_to_async(self.end)()

    def end(self) -> None:
        """End the session, unless it has ended."""
        session = Session.objects.get(pk=self.session.pk)
        if not session.is_final:
            session.move_to(Status.ERROR, Reason.CONTAINER_LOST)


@pytest.fixture
def log(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(monkeypatch)


@pytest.mark.asyncio
async def test_a_broken_engine_loses_and_repeats_no_output(log: Log) -> None:
    log.entries[2] = LogEntry(OUTPUT[1].stamp, b"twin\n")  # of the same nanosecond
    log.breaks_after = [2, 1, 2]
    events = await outputs_of(LogFollower(log.session, None, tail=10))
    assert [data for name, _, data in events if name == "output"] == ["line 0\n", "line 1\n", "twin\n", "line 3\n"]
    assert events[-1][0] == "end"


@pytest.mark.asyncio
@pytest.mark.parametrize("seen", [1, 2, 3, 4])
async def test_a_client_goes_on_behind_what_it_has_seen(log: Log, seen: int) -> None:
    events = await outputs_of(LogFollower(log.session, None, tail=10))
    place = ResumedPosition.parsed(events[seen - 1][1])
    assert [data for name, _, data in await outputs_of(LogFollower(log.session, place, 10)) if name == "output"] == [
        entry.content.decode() for entry in OUTPUT[seen:]
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize("lost", [0, 3])
async def test_stored_output_goes_on_behind_what_was_seen(log: Log, lost: int) -> None:
    events = await outputs_of(LogFollower(log.session, None, tail=10))
    whole = "".join(entry.content.decode() for entry in OUTPUT)
    await Session.objects.filter(pk=log.session.pk).aupdate(log_tail=whole[lost:])
    place = ResumedPosition.parsed(events[1][1])
    again = await outputs_of(LogFollower(log.session, place, tail=10))
    rest = "line 2\nline 3\n" if not lost else whole[lost:]  # what was seen is not in it: rather repeated than lost
    assert (again[0][0], again[0][2]) == ("output", rest)
    assert [name for name, _, _ in again] == ["output", "end"]
    last = ResumedPosition.parsed(again[0][1])
    assert [name for name, _, _ in await outputs_of(LogFollower(log.session, last, tail=10))] == ["end"]


@pytest.mark.django_db
@pytest.mark.parametrize("place", ["x", "1:2:3", "1:x:0:0:0:0", "1::0:1:121:00000000", "1::0:1:-1:00000000", ""])
def test_a_place_that_is_none_is_refused(place: str) -> None:
    session = make_session()
    for part in ("events", "logs"):
        address = f"/api/v1/sessions/{session.pk}/{part}/follow/"
        answer = client_of(session.owner).get(address, headers={"Last-Event-ID": place})
        assert (answer.status_code, list(answer.json()["errors"])) == (400, ["Last-Event-ID"])


@pytest.mark.django_db
def test_a_user_has_a_bounded_number_of_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    monkeypatch.setitem(streams._open, session.owner_id, streams.MAX_STREAMS)
    answer = client_of(session.owner).get(f"/api/v1/sessions/{session.pk}/events/follow/")
    assert answer.status_code == 429


@pytest.mark.asyncio
async def test_a_stream_ends_once_it_is_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = [True, True, False]

    async def events() -> AsyncGenerator[streams.ServerSentEvent]:
        yield streams.ServerSentEvent(name="first", data=1, id="7")
        while True:
            await asyncio.sleep(SECONDS)

    async def is_allowed() -> bool:
        return allowed.pop(0)

    stream = streams.with_keepalive(events(), is_allowed)
    sent = [(await anext(stream)).encoded()]
    monkeypatch.setattr(streams, "KEEPALIVE_SECONDS", 0.01)  # not before: it may pass until the first event
    sent += [event.encoded() async for event in stream]
    assert sent == [b"id: 7\nevent: first\ndata: 1\n\n", b":\n\n", b":\n\n"]


def test_a_position_is_read_as_it_was_written() -> None:
    position = Position(attempt=2, stamp="1700000000.000000001", same=3)
    position.add("x" * 200)
    read = ResumedPosition.parsed(position.text)
    assert (read.attempt, read.stamp, read.same, read.characters) == (2, "1700000000.000000001", 3, 200)
    assert read.rest("x" * 200 + "yz") == "yz"


async def some(events: AsyncGenerator[ServerSentEvent], count: int) -> list[tuple[str, Any]]:
    """Return (name, id of the event's row) of the next events of the stream."""
    found = [await anext(events) for _ in range(count)]
    return [(event.name, (event.data or {}).get("event")) for event in found]


@pytest.mark.asyncio
async def test_an_event_that_commits_late_is_not_lost(transactional_db: None) -> None:
    session = await database_sync_to_async(make_session)()
    numbers = [(await SessionEvent.objects.acreate(session=session, new_status="PENDING")).pk for _ in range(3)]
    early = await SessionEvent.objects.aget(pk=numbers[1])
    await SessionEvent.objects.filter(pk=early.pk).adelete()  # as if its transaction were still open
    before = FeedPosition(numbers[0] - 1)

    def stream(position: FeedPosition) -> AsyncGenerator[ServerSentEvent]:
        return events_of_all(session.owner_id, position, lambda ids: dict.fromkeys(ids), lambda event: event.pk)

    events = stream(before)
    assert await some(events, 3) == [("ready", None), ("status", numbers[0]), ("status", numbers[2])]
    await events.aclose()
    await early.asave(force_insert=True)
    events = stream(FeedPosition.parsed(before.with_sent(numbers[0]).with_sent(numbers[2]).text))
    assert await some(events, 2) == [("ready", None), ("status", numbers[1])]
    await events.aclose()


def test_a_position_is_bounded_and_settles() -> None:
    position = FeedPosition(1000, frozenset(range(2000, 4000)))
    again = FeedPosition.parsed(position.text)
    assert again.low == 1000
    assert max(again.sent) == 3999
    assert again.sent < position.sent
    assert position.settled(3998) == FeedPosition(3998, frozenset({3999}))
    assert FeedPosition.parsed("7") == FeedPosition(7)


@pytest.mark.django_db
@pytest.mark.parametrize("place", ["x", "1:", "1:2:3", "-1", "1" * 19, "1:" + "1." * 2500 + "1"])
def test_a_place_in_no_stream_of_all_is_refused(place: str) -> None:
    answer = client_of(make_user()).get("/api/v1/sessions/events/follow/", headers={"Last-Event-ID": place})
    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["Last-Event-ID"])
