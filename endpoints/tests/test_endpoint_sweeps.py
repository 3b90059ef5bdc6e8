"""What ends by time, and what is forgotten."""

from datetime import timedelta

import pytest
from django.utils import timezone

from endpoints import tasks
from endpoints.handoff import tickets
from endpoints.routing import revocations
from sessions.models import Endpoint, Revocation, ShareLink, Ticket
from tests.factories import make_endpoint, make_policy

pytestmark = pytest.mark.django_db


def make_link(endpoint: Endpoint, **changes: object) -> ShareLink:
    later = timezone.now() + timedelta(hours=1)
    fields = {"digest": f"{ShareLink.objects.count():064}", "expires_at": later} | changes
    return ShareLink.objects.create(endpoint=endpoint, **fields)


def test_expired_public_apps_are_unpublished() -> None:
    now = timezone.now()
    over = make_endpoint(is_public=True, public_until=now)
    others = [make_endpoint(is_public=True, public_until=until) for until in (None, now + timedelta(hours=1))]
    tasks.enforce_deadlines()
    assert list(Endpoint.objects.filter(is_public=True)) == others
    over.refresh_from_db()
    assert (over.public_until, over.epoch) == (None, 2)
    assert [event.what for event in over.events.all()] == ["No longer public: its time is over"]


def test_expired_share_links_are_revoked() -> None:
    endpoint = make_endpoint()
    make_link(endpoint)
    over = make_link(endpoint, expires_at=timezone.now(), note="for Ada")
    for _ in range(2):
        tasks.enforce_deadlines()
    assert [link.note for link in ShareLink.objects.exclude(revoked_at=None)] == ["for Ada"]
    assert [row.login for row in Revocation.objects.all()] == [over.digest]
    assert [event.what for event in endpoint.events.all()] == ["Share link over: for Ada"]


def test_a_stricter_policy_ends_foreign_access() -> None:
    endpoint = make_endpoint(is_public=True)
    make_link(endpoint)
    owner = endpoint.session.owner
    owner.policy = make_policy(allow_public_apps=False)
    owner.save()
    tasks.enforce_deadlines()
    assert not Endpoint.objects.filter(is_public=True).exists()
    assert not ShareLink.objects.filter(revoked_at=None).exists()


def test_stale_tickets_and_revocations_are_deleted() -> None:
    tickets.issue(make_endpoint(), user=None, login="", state="", path="/")
    revocations.revoke_login("d")
    tasks.enforce_deadlines()
    assert (Ticket.objects.count(), Revocation.objects.count()) == (1, 1)
    Ticket.objects.update(expires_at=timezone.now() - timedelta(days=1))
    Revocation.objects.update(at=timezone.now() - timedelta(days=1))
    tasks.enforce_deadlines()
    assert (Ticket.objects.count(), Revocation.objects.count()) == (0, 0)
