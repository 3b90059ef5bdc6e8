"""Every move of a session, legal or not, and the page that draws them."""

import re
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from resources.models import ResourceGroup
from sessions import notify
from sessions.lifecycle import FINAL, HOSTED, LIVE, NEXT, TABS, Kind, Reason, Status, result_of, sources
from sessions.models import Lease, Session, SessionEvent, StaleSessionError
from tests.factories import lease_session, make_host, make_user, session_in

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "lifecycle.md"
MOVES = list(product(Status, Status))
LEGAL = [(old, new) for old, new in MOVES if new in NEXT[old]]
ILLEGAL = [move for move in MOVES if move not in LEGAL]


def facts(session: Session) -> tuple[Any, ...]:
    """Return all that is stored about the session."""
    return (
        Session.objects.values().get(pk=session.pk),
        list(SessionEvent.objects.filter(session=session).values()),
        list(Lease.objects.filter(session=session).values()),
    )


@pytest.mark.django_db
@pytest.mark.parametrize(("old", "new"), LEGAL, ids=map("-".join, LEGAL))
def test_a_legal_move_is_stored_with_its_event(old: Status, new: Status) -> None:
    session = session_in(old)
    events_before = session.events.count()
    with transaction.atomic():
        if new == Status.SCHEDULED:
            lease_session(session)
        else:
            fields: dict[str, Any] | None = {"host_id": None} if new == Status.PENDING else None
            if new == Status.PARKED:
                fields = {"parked_on_id": session.host_id or make_host().pk, "parked_attempt": 1}
            session.move_to(new, Reason.USER_REQUEST, "In words.", actor=session.owner, fields=fields)
    stored = Session.objects.get(pk=session.pk)
    assert (stored.status, session.status) == (new, new)
    assert (stored.ended_at is not None) == (new in FINAL)
    assert (stored.started_at is not None) == (Status.RUNNING in (old, new))
    assert Lease.objects.filter(session=session).exists() == (new in HOSTED)
    *_, event = session.events.all()
    assert session.events.count() == events_before + 1
    assert (event.old_status, event.new_status, event.reason) == (old, new, stored.reason)
    assert (event.detail, event.at) == (stored.detail, stored.status_at)


@pytest.mark.django_db
@pytest.mark.parametrize(("old", "new"), ILLEGAL, ids=map("-".join, ILLEGAL))
def test_any_other_move_is_refused_and_changes_nothing(old: Status, new: Status) -> None:
    session = session_in(old)
    before, in_memory = facts(session), dict(session.__dict__)
    with pytest.raises(StaleSessionError):
        session.move_to(new, Reason.USER_REQUEST, "In words.")
    assert facts(session) == before
    assert session.__dict__ == in_memory


@pytest.mark.django_db
def test_a_stale_transition_is_refused() -> None:
    session = session_in(Status.RUNNING)
    mine, theirs = Session.objects.get(pk=session.pk), Session.objects.get(pk=session.pk)
    theirs.move_to(Status.TERMINATING, Reason.USER_REQUEST, "Theirs.")
    before = facts(session)
    with pytest.raises(StaleSessionError):
        mine.move_to(Status.ERROR, Reason.CONTAINER_LOST, "Mine.")
    assert facts(session) == before
    assert (mine.status, mine.reason) == (Status.RUNNING, Reason.STARTED)


@pytest.mark.django_db
def test_a_transition_of_an_earlier_attempt_is_refused() -> None:
    session = session_in(Status.SCHEDULED)
    earlier = Session.objects.get(pk=session.pk)
    session.move_to(Status.PENDING, Reason.CLAIM_TIMEOUT, fields={"host_id": None})
    with transaction.atomic():
        lease_session(session)
    with pytest.raises(StaleSessionError):
        earlier.move_to(Status.PREPARING, Reason.CLAIMED)


@pytest.mark.django_db
def test_a_failed_transition_is_rolled_back() -> None:
    session = session_in(Status.RUNNING)
    before = facts(session)
    stranger = make_user()
    stranger.delete()
    with pytest.raises(ValueError, match="unsaved"):
        session.move_to(Status.ERROR, Reason.CONTAINER_LOST, actor=stranger)
    assert facts(session) == before
    assert session.status == Status.RUNNING


@pytest.mark.django_db
def test_the_object_forgets_a_host_it_left() -> None:
    session = session_in(Status.SCHEDULED)
    assert session.host is not None
    session.move_to(Status.PENDING, Reason.CLAIM_TIMEOUT, fields={"host_id": None})
    assert session.host is None


@pytest.mark.django_db
def test_the_events_of_a_session_are_a_chain() -> None:
    events = list(session_in(Status.TERMINATED).events.all())
    assert len(events) == 4
    assert all(earlier.new_status == later.old_status for earlier, later in pairwise(events))


def test_every_state_is_reachable_and_has_an_exit() -> None:
    assert {status for status in Status if not sources(status)} == {Status.PENDING} - set().union(*NEXT.values())
    assert all(NEXT[status] for status in LIVE)
    assert not any(NEXT[status] for status in FINAL)
    assert sources(Status.TERMINATED) == {Status.RUNNING, Status.TERMINATING, Status.PARKED}


def test_every_state_is_on_exactly_one_tab() -> None:
    assert sorted(status for statuses in TABS.values() for status in statuses) == sorted(Status)


def test_the_diagram_draws_exactly_the_legal_moves() -> None:
    diagram = PAGE.read_text().partition("```mermaid\nstateDiagram-v2\n")[2].partition("```")[0]
    arrows = re.findall(r"^ *(\S+) --> (\S+)$", diagram, re.MULTILINE)
    assert len(arrows) == len(diagram.strip().splitlines())
    legal = {(old.value, new.value) for old, new in LEGAL}
    ends = {(status.value, "[*]") for status in FINAL}
    assert set(arrows) == legal | ends | {("[*]", Status.PENDING.value)}


def test_the_docs_list_exactly_all_states_and_reasons() -> None:
    def words(page: str) -> list[str]:
        return re.findall(r"^\| ([A-Z_]+) \| \S", page, re.MULTILINE)

    states, _, reasons = (DOCS / "help/reasons.md").read_text().partition("\n## While")
    deadlines = PAGE.read_text().partition("\n## States\n")[2].partition("\n## ")[0]
    assert words(states) == words(deadlines) == [status.value for status in Status]
    assert words(reasons) == [reason.value for reason in Reason]


@pytest.mark.parametrize(
    ("kind", "target", "reason", "result"),
    [
        (Kind.INTERACTIVE, Status.TERMINATED, Reason.CONTAINER_EXITED, ""),
        (Kind.INTERACTIVE, Status.ERROR, Reason.OUT_OF_MEMORY, ""),
        (Kind.BATCH, Status.TERMINATED, Reason.CONTAINER_EXITED, "SUCCESS"),
        (Kind.BATCH, Status.TERMINATED, Reason.USER_REQUEST, "FAILURE"),
        (Kind.BATCH, Status.ERROR, Reason.CONTAINER_EXITED, "FAILURE"),
        (Kind.BATCH, Status.CANCELLED, Reason.USER_REQUEST, "FAILURE"),
    ],
)
def test_only_a_batch_session_that_ends_by_itself_succeeds(
    kind: Kind, target: Status, reason: Reason, result: str
) -> None:
    assert result_of(kind, target, reason) == result


def test_sets_of_states_are_as_they_are_named() -> None:
    assert {Status.TERMINATED, Status.CANCELLED, Status.ERROR} == FINAL
    assert set(Status) - FINAL == LIVE
    assert {Status.SCHEDULED, Status.PREPARING, Status.RUNNING, Status.TERMINATING} == HOSTED


@pytest.mark.parametrize(
    ("status", "core_milli", "guaranteed", "is_shared"),
    [
        (Status.RUNNING, 1000, 2000, False),
        (Status.RUNNING, 999, 1998, True),
        (Status.PENDING, 1000, 500, True),  # by its group, as that is today
        (Status.PARKED, 1000, 500, True),
        (Status.TERMINATED, 1000, 2000, False),
    ],
)
def test_guaranteed_cpu_is_that_of_the_place(status: Status, core_milli: int, guaranteed: int, is_shared: bool) -> None:
    session = Session(cpu=2, core_milli=core_milli, status=status, resource_group=ResourceGroup(cpu_overcommit=4))
    assert (session.cpu_guaranteed_milli, session.is_cpu_shared) == (guaranteed, is_shared)


@pytest.mark.django_db
def test_only_what_leaves_the_queue_loses_its_estimate() -> None:
    session = session_in(Status.PENDING, eta_reason="Others wait.", eta=timezone.now(), claim={"at": "now"})
    session.move_to(Status.CANCELLED, Reason.USER_REQUEST)
    stored = Session.objects.get(pk=session.pk)
    assert (stored.eta, stored.eta_reason, stored.claim) == (None, "", None)
    running = session_in(Status.RUNNING)
    Session.objects.filter(pk=running.pk).update(eta_reason="Of before.")
    running.move_to(Status.TERMINATING, Reason.USER_REQUEST)
    assert Session.objects.get(pk=running.pk).eta_reason == "Of before."


@pytest.mark.django_db
def test_a_session_is_parked_on_the_host_that_saved_it() -> None:
    session = session_in(Status.PENDING)
    host = make_host()
    Session.objects.filter(pk=session.pk).update(parked_on=host, parked_attempt=1)
    session.refresh_from_db()
    session.move_to(Status.PARKED, Reason.RESUME_FAILED)
    assert Session.objects.get(pk=session.pk).host == host
    stopping = session_in(Status.TERMINATING)
    stopping.move_to(Status.PARKED, Reason.PARKED, fields={"parked_on_id": stopping.host_id, "parked_attempt": 1})
    assert Session.objects.get(pk=stopping.pk).host_id == stopping.parked_on_id


@pytest.mark.django_db
def test_proxies_are_told_of_what_ran_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(notify, "routes_changed", told.append)
    waiting, running = session_in(Status.PENDING), session_in(Status.RUNNING)
    waiting.move_to(Status.CANCELLED, Reason.USER_REQUEST)
    assert told == []
    running.move_to(Status.TERMINATING, Reason.USER_REQUEST)
    assert told == [running.pk]
