"""The API of apps: opening, publishing and sharing by a program, and nothing of it for a stranger."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings
from rest_framework.test import APIClient

from proxy.authorization.signing import digest
from sessions.lifecycle import Reason, Status
from sessions.models import Endpoint, Session, ShareLink
from tests.api import client_of
from tests.factories import make_app, make_endpoint, make_policy, make_user, run_reachable_session
from tests.ports import free_port

pytestmark = pytest.mark.django_db


@pytest.fixture
def session() -> Session:
    session = run_reachable_session()
    make_app(session.image, start_path="/lab")
    return session


@pytest.fixture
def client(session: Session) -> APIClient:
    return client_of(session.owner)


def path(session: Session, part: str = "") -> str:
    return f"/api/v1/sessions/{session.pk}/apps/{part}"


def in_an_hour() -> str:
    return (timezone.now() + timedelta(hours=1)).isoformat()


def test_opening_an_app_returns_its_address(client: APIClient, session: Session) -> None:
    answer = client.post(path(session, "jupyter/"))
    expected = {
        "name": "jupyter",
        "title": "Jupyter",
        "url": f"http://jupyter--{session.pk}.apps.localhost:8000/lab",
        "state": "STARTING",
        "detail": "",
        "public": False,
        "public_until": None,
        "port": None,
        "port_url": "",
    }
    assert (answer.status_code, answer.json()) == (200, expected | {"note": ""})
    assert client.get(path(session, "jupyter/")).json() == expected
    assert client.get(f"/api/v1/sessions/{session.pk}/").json()["apps"] == [expected]


def test_the_list_shows_offered_and_opened_apps(client: APIClient, session: Session) -> None:
    make_endpoint(session)
    make_endpoint(session, app="p9090", port=9090, state="CLOSED")
    shown = client.get(path(session)).json()
    assert shown["count"] == 2
    assert [(app["name"], app["state"]) for app in shown["results"]] == [("jupyter", "CLOSED"), ("p8080", "READY")]


def test_publishing_ends_as_requested(client: APIClient, session: Session) -> None:
    until = in_an_hour()
    opened = client.post(path(session, "p8080/"), {"public": True, "public_until": until}).json()
    assert opened["public"]
    assert datetime.fromisoformat(opened["public_until"]) == datetime.fromisoformat(until)
    assert client.post(path(session, "p8080/"), {}).json()["public"], "what is left out stays"
    assert not client.post(path(session, "p8080/"), {"public": False}).json()["public"]


@pytest.mark.loopback
def test_a_taken_preferred_port_is_replaced_with_a_note(
    client: APIClient, session: Session, settings: Settings
) -> None:
    taken, free = free_port(), free_port()
    settings.COMPUTE_APP_PORTS = f"{taken}, {free}"
    make_endpoint(listen_port=taken)
    opened = client.post(path(session, "p8080/"), {"preferred_port": taken}).json()
    assert (opened["port"], opened["port_url"]) == (free, f"http://p8080--{session.pk}.apps.localhost:{free}/")
    assert f"{taken} is taken" in opened["note"]


def test_a_closed_app_can_be_opened_again(client: APIClient, session: Session) -> None:
    make_endpoint(session)
    assert client.delete(path(session, "p8080/")).status_code == 204
    assert client.delete(path(session, "p8080/")).status_code == 404
    assert client.get(f"/api/v1/sessions/{session.pk}/").json()["apps"] == []
    assert client.post(path(session, "p8080/")).json()["state"] == "STARTING"


def test_a_share_link_is_shown_once_and_revoked(client: APIClient, session: Session) -> None:
    make_endpoint(session)
    answer = client.post(path(session, "p8080/share/"), {"expires": in_an_hour(), "note": "for Ada"})
    assert answer.status_code == 201
    made = answer.json()
    start = "http://127.0.0.1:8000/apps/shared/"
    assert made["url"].startswith(start)
    assert ShareLink.objects.get().digest == digest(made["url"].removeprefix(start))
    (listed,) = client.get(path(session, "p8080/share/")).json()["results"]
    assert listed == {name: value for name, value in made.items() if name != "url"}
    assert (listed["note"], listed["created_by"]) == ("for Ada", session.owner.email)
    assert client.delete(path(session, f"p8080/share/{made['id']}/")).status_code == 204
    assert client.get(path(session, "p8080/share/")).json()["results"][0]["revoked_at"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"public": "perhaps"}, "public"),
        ({"public_until": "2999-01-01T00:00:00Z"}, "public_until"),
        ({"public": True, "public_until": "2001-01-01T00:00:00Z"}, "public_until"),
        ({"public": True, "public_until": "later"}, "public_until"),
        ({"preferred_port": 0}, "preferred_port"),
        ({"preferred_port": 65536}, "preferred_port"),
        ({"preferred_port": "x"}, "preferred_port"),
        ({"publik": True}, "publik"),
    ],
)
def test_errors_are_reported_by_field(client: APIClient, session: Session, body: Any, field: str) -> None:
    answer = client.post(path(session, "p8080/"), body)
    assert (answer.status_code, list(answer.json()["errors"])) == (400, [field])
    assert not Endpoint.objects.exists()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "expires"),
        ({"expires": "2001-01-01T00:00:00Z"}, "expires"),
        ({"expires": None}, "expires"),
        ({"expires": "2999-01-01T00:00:00Z"}, "expires"),
        ({"expires": "2999-01-01T00:00:00Z", "note": "x" * 65}, "note"),
        ({"expires": "2999-01-01T00:00:00Z", "note": "\0"}, "note"),
        ({"expires": "2999-01-01T00:00:00Z", "who": "x"}, "who"),
    ],
)
def test_an_invalid_share_link_is_refused(client: APIClient, session: Session, body: Any, field: str) -> None:
    make_endpoint(session)
    answer = client.post(path(session, "p8080/share/"), body)
    assert (answer.status_code, list(answer.json()["errors"])) == (400, [field])
    assert not ShareLink.objects.exists()


@pytest.mark.parametrize("app", ["tensorboard", "p80", "p99999"])
def test_an_unknown_app_is_refused_with_alternatives(client: APIClient, session: Session, app: str) -> None:
    answer = client.post(path(session, f"{app}/"))
    assert answer.status_code == 400
    assert "jupyter" in str(answer.json()["detail"])


def test_an_ending_session_opens_no_app(client: APIClient, session: Session) -> None:
    session.move_to(Status.TERMINATING, Reason.USER_REQUEST)
    answer = client.post(path(session, "jupyter/"))
    assert (answer.status_code, answer.json()["errors"]) == (400, {})


def test_a_policy_without_public_apps_refuses(session: Session) -> None:
    owner = session.owner
    owner.policy = make_policy(allow_public_apps=False)
    owner.save()
    answer = client_of(owner).post(path(session, "p8080/"), {"public": True})
    assert answer.status_code == 400
    assert "policy" in str(answer.json()["errors"]["public"])
    assert not Endpoint.objects.exists()


STRANGERS = [
    ("get", ""),
    ("get", "p8080/"),
    ("post", "p8080/"),
    ("delete", "p8080/"),
    ("get", "p8080/share/"),
    ("post", "p8080/share/"),
    ("delete", "p8080/share/{link}/"),
]


@pytest.mark.parametrize(("method", "part"), STRANGERS)
def test_apps_of_others_do_not_exist(session: Session, method: str, part: str) -> None:
    endpoint = make_endpoint(session)
    link = ShareLink.objects.create(endpoint=endpoint, digest="d", expires_at=timezone.now() + timedelta(hours=1))
    address = path(session, part.format(link=link.pk))
    body = {"expires": in_an_hour()} if "share" in part and method == "post" else {}
    assert getattr(client_of(make_user()), method)(address, body).status_code == 404
    assert getattr(client_of(), method)(address, body).status_code == 401
    endpoint.refresh_from_db()
    link.refresh_from_db()
    assert (endpoint.state, link.revoked_at, ShareLink.objects.count()) == ("READY", None, 1)


def test_a_link_is_revoked_through_its_endpoint_only(client: APIClient, session: Session) -> None:
    make_endpoint(session)
    theirs = make_endpoint()
    link = ShareLink.objects.create(endpoint=theirs, digest="d", expires_at=timezone.now() + timedelta(hours=1))
    assert client.delete(path(session, f"p8080/share/{link.pk}/")).status_code == 404
    assert client.delete(path(session, f"p8080/share/{10**17}/")).status_code == 404


@pytest.mark.parametrize("count", [1, 20])
def test_queries_do_not_grow_with_apps(
    client: APIClient, session: Session, count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(count):
        make_endpoint(session, app=f"p{9000 + number}", port=9000 + number)
    with django_assert_num_queries(3):
        assert client.get(path(session)).json()["count"] == count + 1
    with django_assert_num_queries(6):
        assert len(client.get(f"/api/v1/sessions/{session.pk}/").json()["apps"]) == count
