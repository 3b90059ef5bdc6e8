"""Hosts that are taken out of service."""

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import User
from resources.models import Host
from sessions import sweeps
from sessions.drains import services as drains
from sessions.extensions import services as extensions
from sessions.lifecycle import Reason, Status
from sessions.models import Session, end_expression
from tests.api import client_of
from tests.factories import make_host, make_user, run_session

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


@pytest.fixture
def host() -> Host:
    return make_host()


@pytest.fixture
def admin() -> User:
    return make_user(is_superuser=True)


def test_sessions_end_when_the_host_is_to_be_free(host: Host, admin: User) -> None:
    session, elsewhere = run_session(host=host), run_session()
    end_at = timezone.now() + HOUR
    assert drains.drain(host, end_at=end_at, reason="new fans", actor=admin) == [session]
    session = Session.objects.select_related("host").get(pk=session.pk)
    assert session.ends_at == end_at
    assert Session.objects.filter(pk=session.pk).values_list(end_expression(), flat=True).get() == end_at
    event = session.events.latest("id")
    assert (event.reason, event.new_status, event.actor) == (Reason.HOST_DRAINED, Status.RUNNING, admin)
    assert "new fans" in event.detail
    sweeps.end_on_drained_hosts()
    session.refresh_from_db()
    assert session.status == Status.RUNNING
    Host.objects.update(drain_by=timezone.now(), is_cordoned=True)
    Host.objects.exclude(pk=host.pk).update(drain_by=None)
    sweeps.end_on_drained_hosts()
    session.refresh_from_db()
    elsewhere.refresh_from_db()
    assert (session.status, session.reason) == (Status.TERMINATING, Reason.HOST_DRAINED)
    assert elsewhere.status == Status.RUNNING


def test_sessions_may_finish_where_no_end_is_set(host: Host, admin: User) -> None:
    session = run_session(host=host)
    drains.drain(host, end_at=None, reason="", actor=admin)
    sweeps.end_on_drained_hosts()
    session.refresh_from_db()
    assert session.status == Status.RUNNING
    assert session.ends_at is None
    assert not session.events.filter(reason=Reason.HOST_DRAINED).exists()


def test_no_extension_outlasts_a_drain(host: Host, admin: User) -> None:
    session = run_session(host=host, time_limit=HOUR)
    drains.drain(host, end_at=timezone.now() + HOUR, reason="", actor=admin)
    session = Session.objects.select_related("host", "owner__policy").get()
    assert extensions.allowed(session, admin) == timedelta(0)
    assert extensions.refusal(session, admin) == "Its host is being taken out of service."


class TestApi:
    def test_a_superadmin_drains_and_takes_back(self, host: Host, admin: User) -> None:
        client, session = client_of(admin), run_session(host=host)
        end_at = timezone.now() + HOUR
        drained = client.post(f"/api/v1/hosts/{host.name}/drain/", {"end_at": end_at, "reason": "new fans"})
        assert drained.json() == {"sessions": [session.pk]}
        (listed,) = client.get("/api/v1/hosts/").json()["results"]
        assert (listed["is_cordoned"], listed["cordon_reason"]) == (True, "new fans")
        assert client.delete(f"/api/v1/hosts/{host.name}/drain/").status_code == 204
        host.refresh_from_db()
        assert (host.is_cordoned, host.cordon_reason, host.drain_by) == (False, "", None)

    def test_nobody_else_does(self, host: Host, admin: User) -> None:
        assert client_of(make_user()).post(f"/api/v1/hosts/{host.name}/drain/", {}).status_code == 403
        assert client_of(admin).post("/api/v1/hosts/nowhere/drain/", {}).status_code == 404
        for moment in (timezone.now() - HOUR, "9999-12-31T00:00:00Z"):
            refused = client_of(admin).post(f"/api/v1/hosts/{host.name}/drain/", {"end_at": moment})
            assert (refused.status_code, "end_at" in refused.json()["errors"]) == (400, True)
        host.refresh_from_db()
        assert not host.is_cordoned


def test_a_host_that_leaves_twice_says_so_once(host: Host) -> None:
    session, now = run_session(host=host), timezone.now()
    drains.leave(host, end_at=now + HOUR, reason="its job ends")
    drains.leave(host, end_at=now + 2 * HOUR, reason="its job ends")
    host.refresh_from_db()
    assert (host.is_cordoned, host.drain_by, host.cordon_reason) == (True, now + HOUR, "its job ends")
    (event,) = session.events.filter(reason=Reason.HOST_DRAINED)
    assert event.actor is None
    drains.leave(host, end_at=now, reason="its job ends now")
    host.refresh_from_db()
    assert host.drain_by == now
