"""The output of a cluster is one log, each line with its member; that of one member can be chosen."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from channels.db import database_sync_to_async

from engine.engine import Engine
from engine.output import LogEntry
from sessions.following import logs, merged_logs
from sessions.following import stream as follow
from sessions.following.cluster_logs import ClusterLogFollower, places_of
from sessions.lifecycle import Kind, Reason, Status
from sessions.models import Session
from tests.api import client_of
from tests.factories import run_cluster, run_session


def entries(rank: int) -> list[LogEntry]:
    """Return what a member has written; the members take turns."""
    return [
        LogEntry(f"170000000{second}.00000000{rank}", f"{second} of {rank}{end}".encode())
        for second, end in ((1, "\n"), (2, ""), (3, "\n"))
    ]


class Logs:
    """Stands for the engine, with the logs of the members."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.members = run_cluster(runs_on_all=True, kind=Kind.BATCH.value, command="train")
        monkeypatch.setattr(follow, "find_engine", self.find_engine)
        monkeypatch.setattr(logs, "engine_of", Engine)
        monkeypatch.setattr(follow, "follow", self.follow)
        monkeypatch.setattr(follow, "RETRY_SECONDS", 0.01)
        monkeypatch.setattr(logs, "last_entries", self.last_entries)

    async def find_engine(self, _: object) -> None:
        """Return no engine: the others need none."""

    def member(self, container: str) -> Session:
        return next(member for member in self.members if member.pk in container)

    async def last_entries(self, _engine: object, container: str, tail: int, *, limit: int) -> list[LogEntry]:
        return entries(self.member(container).rank)

    async def follow(self, _engine: object, container: str, *, tail: int, since: str) -> AsyncGenerator[LogEntry]:
        """Yield what there is since a time, as the engine does; then the member ends."""
        member = self.member(container)
        for entry in entries(member.rank):
            if entry.stamp >= since:
                yield entry
        await database_sync_to_async(self.end)(member)

    def end(self, member: Session) -> None:
        """End the member, unless it has ended; the last one with a failure."""
        found = Session.objects.get(pk=member.pk)
        if not found.is_final:
            target = Status.ERROR if member.rank == 2 else Status.TERMINATED
            found.move_to(target, Reason.CONTAINER_EXITED, fields={"exit_code": 3 if member.rank == 2 else 0})


@pytest.fixture
def engine(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Logs:
    return Logs(monkeypatch)


def test_lines_of_all_members_are_in_the_order_of_time(engine: Logs) -> None:
    head, sub, _ = engine.members
    Session.objects.filter(pk=sub.pk).update(log_tail="stored\n")
    sub.move_to(Status.ERROR, Reason.OUT_OF_MEMORY)
    lines = ["main1 | 1 of 0", "sub2 | 1 of 2", "main1 | 2 of 03 of 0", "sub2 | 2 of 23 of 2", "sub1 | stored"]
    assert logs.read(head, 100).splitlines() == lines
    assert logs.read(head, 2).splitlines() == lines[-2:]
    assert logs.read(head, 100, "sub1") == "stored"
    assert logs.read(Session.objects.get(pk=sub.pk), 100) == "stored"
    body = client_of(head.owner).get(f"/api/v1/sessions/{sub.pk}/logs/", {"member": "all"})
    assert body.content.decode().splitlines() == lines
    refused = client_of(head.owner).get(f"/api/v1/sessions/{head.pk}/logs/", {"member": "sub3"})
    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["member"])


@pytest.mark.django_db
def test_a_single_session_is_all_that_it_has() -> None:
    session = run_session()
    assert logs.chosen(session) == logs.chosen(session, "all") == logs.chosen(session, "main1") == [session]


async def followed(members: list[Session], place: str = "") -> list[tuple[str, str, Any]]:
    """Return (name, id, data) of the events but comments."""
    follower = ClusterLogFollower(members, places_of(place) if place else {}, 10)
    return [(event.name, event.id, event.data) async for event in follower.events() if event.name]


@pytest.mark.asyncio
async def test_a_log_is_followed_until_the_last_member_ends(engine: Logs) -> None:
    *outputs, (name, _, end) = await followed(engine.members)
    lines = [line for _, _, text in outputs for line in text.splitlines()]
    wanted = [
        f"{name} | {line}"
        for rank, name in enumerate(("main1", "sub1", "sub2"))
        for line in (f"1 of {rank}", f"2 of {rank}3 of {rank}")
    ]
    assert sorted(lines) == sorted(wanted)
    assert (name, end["result"], end["exit_code"], end["status"]) == ("end", "FAILURE", 3, "TERMINATED")
    assert end["members"]["sub1"]["result"] == "SUCCESS"
    for seen in range(len(outputs)):
        again = await followed(engine.members, outputs[seen][1])
        rest = [line for _, _, text in again[:-1] for line in text.splitlines()]
        assert sorted(rest) == sorted(lines[seen + 1 :]), f"after {seen + 1} lines"
    assert again == [("end", "", end)]


@pytest.mark.asyncio
async def test_a_stream_that_is_left_stops_following(engine: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged_logs, "QUEUED", 1)
    events = ClusterLogFollower(engine.members, {}, 10).events()
    await anext(events)
    await events.aclose()
    assert not [task for task in asyncio.all_tasks() if "MergedLog" in repr(task)]


@pytest.mark.parametrize("text", ["0", "0=", "0=1:2", "64=0::0:0:0:0", "-1=0::0:0:0:0", "x=0::0:0:0:0"])
@pytest.mark.django_db
def test_what_is_no_id_of_an_event_is_refused(text: str) -> None:
    head, *_ = run_cluster(2)
    url = f"/api/v1/sessions/{head.pk}/logs/follow/"
    refused = client_of(head.owner).get(url, headers={"Last-Event-ID": text, "Accept": "text/event-stream"})
    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["Last-Event-ID"])
