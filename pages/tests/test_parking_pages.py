"""Parking by hand, in page and API alike."""

import json

import pytest

from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.api import client_of
from tests.factories import make_user, run_session, session_in
from tests.web import HTMX, browser_of, text_of

pytestmark = pytest.mark.django_db


def test_page_offers_to_park_and_to_resume() -> None:
    session = run_session()
    browser, path = browser_of(session.owner), f"/sessions/{session.pk}/"
    assert f"{path}park/" in text_of(browser, path)
    assert "go to others" in text_of(browser, f"{path}park/", **HTMX)
    answer = browser.post(f"{path}park/", headers=HTMX)
    assert json.loads(answer["HX-Trigger"]) == {"sessions:parked": {"message": f"Parking {session.name}."}}
    Session.objects.get(pk=session.pk).move_to(Status.PARKED, Reason.PARKED)  # as its host does
    parked = text_of(browser, path)
    assert f"{path}resume/" in parked
    assert "Its files are kept until" in parked
    assert f"{path}resume/" in text_of(browser, "/sessions/")
    assert browser.post(f"{path}resume/")["Location"] == path
    session.refresh_from_db()
    assert (session.status, session.is_parking) == (Status.PENDING, False)
    assert "Only a parked session" in text_of(browser, f"{path}resume/", **HTMX)
    assert browser.post(f"{path}resume/", headers=HTMX).status_code == 204  # again: nothing


def test_a_batch_session_is_requeued_from_its_page() -> None:
    session = session_in(Status.RUNNING, kind="batch", command="train")
    browser, path = browser_of(session.owner), f"/sessions/{session.pk}/"
    assert f"{path}requeue/" in text_of(browser, path)
    assert "runs from the beginning" in text_of(browser, f"{path}requeue/", **HTMX)
    assert browser.post(f"{path}requeue/")["Location"] == path
    session.refresh_from_db()
    assert (session.status, session.reason) == (Status.TERMINATING, Reason.REQUEUED)
    assert f"{path}requeue/" not in text_of(browser, path)


def test_refused_parking_says_why_in_page_and_api() -> None:
    session = session_in(Status.PENDING)
    answer = browser_of(session.owner).post(f"/sessions/{session.pk}/park/", headers=HTMX)
    assert answer.status_code == 422
    assert "Only a running session can be parked." in answer.content.decode()
    problem = client_of(session.owner).post(f"/api/v1/sessions/{session.pk}/park/")
    assert (problem.status_code, problem.json()["detail"]) == (400, "Only a running session can be parked.")


def test_api_parks_and_resumes_for_owners_alone() -> None:
    session = run_session()
    stranger, client = client_of(make_user()), client_of(session.owner)
    for verb in ("park", "resume"):
        assert stranger.post(f"/api/v1/sessions/{session.pk}/{verb}/").status_code == 404
        assert browser_of(make_user()).post(f"/sessions/{session.pk}/{verb}/").status_code == 404
    assert client.post(f"/api/v1/sessions/{session.pk}/resume/").status_code == 400
    assert client.post(f"/api/v1/sessions/{session.pk}/park/").json()["status"] == "TERMINATING"
    Session.objects.get(pk=session.pk).move_to(Status.PARKED, Reason.PARKED)  # as its host does
    resumed = client.post(f"/api/v1/sessions/{session.pk}/resume/").json()
    assert (resumed["status"], resumed["reason"]) == ("PENDING", "RESUMED")
