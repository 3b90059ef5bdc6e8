"""The output of all replicas is one log: of those that run, have ended lately, and are still to come."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from channels.db import database_sync_to_async

from deployments import logs
from deployments.models import Deployment, Replica
from deployments.tests.making import make_deployment
from deployments.tests.serving import make_replica
from engine.engine import Engine
from engine.output import LogEntry
from resources import clock
from sessions.errors import RejectedError
from sessions.following import logs as session_logs
from sessions.following import stream
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.api import client_of
from tests.factories import make_user
from tests.wait import SECONDS


class Output:
    """Stands for the engine: each replica writes two lines, one of them in two pieces."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.deployment = make_deployment()
        self.holds = asyncio.Event()  # replicas go on once it is set
        monkeypatch.setattr(stream, "find_engine", self.find_engine)
        monkeypatch.setattr(stream, "follow", self.follow)
        monkeypatch.setattr(stream, "RETRY_SECONDS", 0.01)
        monkeypatch.setattr(session_logs, "engine_of", Engine)
        monkeypatch.setattr(session_logs, "last_entries", self.last_entries)
        monkeypatch.setattr(logs, "LOOK_SECONDS", 0.01)

    def replica(self, name: str) -> Replica:
        """Return a replica that runs, with this name."""
        made = make_replica(self.deployment)
        Session.objects.filter(pk=made.pk).update(name=name)
        return made

    def end(self, replica: Replica, words: str) -> None:
        """End a replica, which has written these last words."""
        Session.objects.filter(pk=replica.pk).update(log_tail=words)
        Session.objects.get(pk=replica.pk).move_to(Status.ERROR, Reason.OUT_OF_MEMORY, fields={"ended_at": clock.now()})

    async def find_engine(self, _: object) -> None:
        """Return no engine: the others need none."""

    def entries(self, container: str) -> list[LogEntry]:
        """Return what a replica has written; replicas take turns."""
        number = sorted(Session.objects.values_list("pk", flat=True)).index(
            next(pk for pk in Session.objects.values_list("pk", flat=True) if pk in container)
        )
        pieces = ((1, b"one\n"), (2, b"tw"), (3, b"o\n"))
        return [LogEntry(f"170000000{second}.00000000{number}", content) for second, content in pieces]

    async def last_entries(self, _engine: object, container: str, tail: int, *, limit: int) -> list[LogEntry]:
        """Return what there is."""
        found: list[LogEntry] = await database_sync_to_async(self.entries)(container)
        return found

    async def follow(self, _engine: object, container: str, *, tail: int, since: str) -> AsyncGenerator[LogEntry]:
        """Yield what there is since a time, and never end."""
        for entry in await database_sync_to_async(self.entries)(container):
            if entry.stamp >= since:
                yield entry
        await asyncio.Event().wait()


@pytest.fixture
def output(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Output:
    """Have replicas write."""
    return Output(monkeypatch)


def test_lines_of_all_replicas_are_in_the_order_of_time(output: Output) -> None:
    for name in ("chat-1-a", "chat-1-b"):
        output.replica(name)
    output.end(output.replica("chat-1-c"), "CUDA out of memory\n")
    lines = logs.read(output.deployment, 100).splitlines()
    assert sorted(lines[:2]) == ["chat-1-a | one", "chat-1-b | one"]
    assert sorted(lines[2:4]) == ["chat-1-a | two", "chat-1-b | two"]
    assert lines[4:] == ["chat-1-c | CUDA out of memory"]
    assert logs.read(output.deployment, 1).splitlines() == lines[4:]
    assert logs.read(output.deployment, 10, "chat-1-a").splitlines() == ["chat-1-a | one", "chat-1-a | two"]
    with pytest.raises(RejectedError):
        logs.read(output.deployment, 10, "chat-2-a")


def test_replicas_that_have_ended_are_bounded(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_ENDED", 2)
    old, *ended = [output.replica(f"chat-1-{letter}") for letter in "abcd"]
    for each in (old, *ended):
        output.end(each, "done")
    assert [session.name for session in logs.chosen(output.deployment)] == ["chat-1-c", "chat-1-d"]
    Session.objects.filter(pk=ended[-1].pk).update(ended_at=clock.now() - logs.ENDED_WITHIN)
    assert [session.name for session in logs.chosen(output.deployment)] == ["chat-1-b", "chat-1-c"]


async def collected(follower: logs.ReplicaLogFollower, lines: int) -> tuple[list[str], str]:
    """Return so many lines, and the id of the last event."""
    found: list[str] = []
    async with asyncio.timeout(SECONDS):
        events = follower.events()
        async for event in events:
            if event.name == "output":
                found += str(event.data).splitlines()
            if len(found) >= lines:
                await events.aclose()
                return found, event.id
    raise AssertionError(found)


async def test_replicas_that_come_are_followed_too(output: Output) -> None:
    make = database_sync_to_async(output.replica)
    await make("chat-1-a")
    follower = await database_sync_to_async(logs.ReplicaLogFollower)(output.deployment, "", {}, 10)
    events = follower.events()
    seen: list[str] = []
    async with asyncio.timeout(SECONDS):
        async for event in events:
            if event.name == "output":
                seen += str(event.data).splitlines()
            if len(seen) == 2 and "chat-1-b" not in str(seen):
                await make("chat-1-b")
            if len(seen) == 4:
                await events.aclose()
                break
    assert sorted(seen) == ["chat-1-a | one", "chat-1-a | two", "chat-1-b | one", "chat-1-b | two"]


async def test_a_stream_goes_on_where_it_broke(output: Output) -> None:
    for name in ("chat-1-a", "chat-1-b"):
        await database_sync_to_async(output.replica)(name)
    make = database_sync_to_async(logs.ReplicaLogFollower)
    seen, last = await collected(await make(output.deployment, "", {}, 10), 3)
    rest, _ = await collected(await make(output.deployment, "", logs.places_of(last), 10), 1)
    assert len(seen) == 3
    assert sorted({*seen, *rest}) == ["chat-1-a | one", "chat-1-a | two", "chat-1-b | one", "chat-1-b | two"]


async def test_a_log_ends_with_its_deployment(output: Output) -> None:
    replica = await database_sync_to_async(output.replica)("chat-1-a")
    await database_sync_to_async(output.end)(replica, "bye\n")
    await Deployment.objects.aupdate(state="ENDED", ended_at=clock.now(), replicas=0)
    follower = await database_sync_to_async(logs.ReplicaLogFollower)(output.deployment, "", {}, 10)
    async with asyncio.timeout(SECONDS):
        events: list[tuple[str, Any]] = [(each.name, each.data) async for each in follower.events() if each.name]
    assert events == [("output", "chat-1-a | bye\n"), ("end", {"state": "ENDED"})]


def test_only_the_owner_reads_them(output: Output) -> None:
    output.replica("chat-1-a")
    url = f"/api/v1/deployments/{output.deployment.pk}/logs/"
    body = client_of(output.deployment.owner).get(f"{url}?replica=chat-1-a&tail=1")
    assert body.content.decode() == "chat-1-a | two\n"
    assert client_of(make_user()).get(url).status_code == 404
    assert client_of(make_user()).get(f"{url}follow/").status_code == 404
    refused = client_of(output.deployment.owner).get(url, {"replica": "other"})
    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["replica"])


@pytest.mark.parametrize(
    "text", ["x", "x=", "../=0::0:0:0:0", "0=0::0:0:0:0", ",".join(["aaaaaaaaaaaaaaaa=0::0:0:0:0"] * 99)]
)
def test_what_is_no_id_of_an_event_is_refused(output: Output, text: str) -> None:
    url = f"/api/v1/deployments/{output.deployment.pk}/logs/follow/"
    api = client_of(output.deployment.owner)
    refused = api.get(url, headers={"Last-Event-ID": text, "Accept": "text/event-stream"})
    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["Last-Event-ID"])
