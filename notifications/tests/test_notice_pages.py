"""The pages of notifications, and what the script of every page asks for."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import User
from notifications import services
from notifications.kinds import NoticeKind, Ways
from notifications.models import Announcement, Notification
from tests.factories import make_user

pytestmark = pytest.mark.django_db
FACTS = {"name": "mine", "reason": "HOST_LOST", "detail": ""}


@pytest.fixture
def user() -> User:
    return make_user()


@pytest.fixture
def client(user: User) -> Client:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def tell(user: User, number: int = 1) -> Notification:
    services.tell(user.pk, NoticeKind.FAILED, f"event:{number}", facts=FACTS)
    return Notification.objects.latest("id")


def test_what_is_pending_is_shown_once(client: Client, user: User) -> None:
    mine, others = tell(user), tell(make_user())
    (found,) = client.get("/notifications/pending/").json()["pending"]
    assert (found["id"], found["title"], found["level"]) == (mine.pk, "mine has failed", "danger")
    client.post("/notifications/shown/", {"ids": [mine.pk, others.pk, "x", "9" * 30]})
    assert client.get("/notifications/pending/").json() == {"pending": []}
    others.refresh_from_db()
    assert others.shown_at is None
    assert services.counts_of(user.pk) == {"unread": 1, "pending": 0}
    assert client.post("/notifications/read/", {"up_to": mine.pk, "quiet": "1"}).status_code == 204
    assert services.counts_of(user.pk) == {"unread": 0, "pending": 0}


@pytest.mark.parametrize("path", ["/notifications/", "/notifications/panel/"])
def test_lists_take_a_constant_number_of_queries(
    path: str, client: Client, user: User, django_assert_max_num_queries: Any
) -> None:
    for number in range(12):
        tell(user, number)
    tell(make_user())
    with django_assert_max_num_queries(8):
        page = client.get(path)
    assert page.content.count(b"mine has failed") == (12 if path == "/notifications/" else 8)


def test_ways_are_chosen(client: Client, user: User) -> None:
    assert b"FAILED.by_email" in client.get("/notifications/preferences/").content
    client.post("/notifications/preferences/", {"FAILED.by_email": "on", "NONE.on_page": "on"})
    ways = services.ways_of(user)
    assert ways[NoticeKind.FAILED] == Ways(on_page=False, in_browser=False, by_email=True)
    assert ways[NoticeKind.IMAGE_READY] == Ways(on_page=False, in_browser=False, by_email=False)


def test_announcements_are_shown_until_dismissed_or_over(client: Client, user: User) -> None:
    now = timezone.now()
    hour = timedelta(hours=1)
    shown = Announcement.objects.create(text="Down at <noon>")
    Announcement.objects.create(text="Over", starts_at=now - 2 * hour, ends_at=now - hour)
    Announcement.objects.create(text="Not yet", starts_at=now + hour)
    page = client.get("/notifications/").content.decode()
    assert "Down at &lt;noon&gt;" in page
    assert "Over" not in page
    assert "Not yet" not in page
    left = client.post(f"/notifications/announcements/{shown.pk}/dismiss/", headers={"HX-Request": "true"})
    assert "Down at" not in left.content.decode()
    assert "Down at" not in client.get("/notifications/announcements/").content.decode()
    other = Client()
    other.force_login(make_user(), backend="django.contrib.auth.backends.ModelBackend")
    assert "Down at" in other.get("/notifications/announcements/").content.decode()


def test_strangers_are_sent_to_sign_in() -> None:
    for path in ("", "panel/", "pending/", "preferences/", "announcements/"):
        assert Client().get(f"/notifications/{path}").status_code == 302


def test_an_administrator_announces() -> None:
    admin = make_user(is_superuser=True)
    client = Client()
    client.force_login(admin, backend="django.contrib.auth.backends.ModelBackend")
    body = {"text": "Maintenance", "level": 2, "starts_at_0": "2026-01-02", "starts_at_1": "10:00"}
    client.post("/admin/notifications/announcement/add/", {**body, "ends_at_0": "2026-01-01", "ends_at_1": "10:00"})
    assert not Announcement.objects.exists()
    client.post("/admin/notifications/announcement/add/", {**body, "ends_at_0": "", "ends_at_1": ""})
    assert Announcement.objects.get().created_by == admin
    assert b"Maintenance" in client.get("/admin/notifications/announcement/").content
