"""Superadmins announce to everybody or to the users of groups, on the pages and over the API."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from notifications.models import Announcement
from tests.api import client_of
from tests.factories import make_group, make_user

pytestmark = pytest.mark.django_db
URL = "/api/v1/announcements/"


def test_an_announcement_reaches_the_users_of_its_groups(client: Client) -> None:
    admin, member, other = make_user(is_superuser=True), make_user(), make_user()
    group = make_group(open_to_all=False)
    group.users.add(member)
    body = {
        "text": "GPU 3 goes down",
        "level": "warning",
        "resource_groups": [group.name, make_group(is_active=False).name],
    }
    made = client_of(admin).post(URL, body, content_type="application/json")
    assert (made.status_code, made.json()["level"]) == (201, "warning")
    assert Announcement.objects.get().created_by == admin
    for user, is_told in ((member, True), (other, False), (admin, True)):
        assert bool(client_of(user).get(URL).json()["results"]) == is_told
        client.force_login(user)
        assert ("GPU 3 goes down" in client.get("/notifications/announcements/").content.decode()) == is_told
    one = f"{URL}{made.json()['id']}/"
    assert client_of(admin).patch(one, {"resource_groups": []}, content_type="application/json").status_code == 200
    assert client_of(other).get(URL).json()["results"]
    assert client_of(admin).delete(one).status_code == 204
    assert not Announcement.objects.exists()


def test_only_superadmins_announce_and_nothing_ends_before_it_starts() -> None:
    row = Announcement.objects.create(text="Hello")
    for user in (make_user(), make_user(is_staff=True)):
        client = client_of(user)
        assert client.post(URL, {"text": "x"}, content_type="application/json").status_code == 403
        assert client.patch(f"{URL}{row.pk}/", {"text": "x"}, content_type="application/json").status_code == 403
        assert client.delete(f"{URL}{row.pk}/").status_code == 403
    past = (timezone.now() - timedelta(hours=1)).isoformat()
    admin = client_of(make_user(is_superuser=True))
    refused = admin.post(URL, {"text": "x", "ends_at": past}, content_type="application/json")
    assert (refused.status_code, "ends_at" in refused.json()["errors"]) == (400, True)
