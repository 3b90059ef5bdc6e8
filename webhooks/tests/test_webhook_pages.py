"""Webhooks by pages and API: made, changed, tried, looked into; only by their owner."""

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import AuditEntry, User
from notifications.models import Notification
from sessions.errors import RejectedError
from tests.api import client_of
from tests.factories import make_user
from webhooks import services
from webhooks.delivery import deliveries
from webhooks.delivery.stored_secrets import secrets_of
from webhooks.models import DeliveryState, Webhook, WebhookDelivery
from webhooks.tests.receivers import FakeSender

pytestmark = pytest.mark.django_db

API = "/api/v1/webhooks/"
URL = "https://ci.example.org/hook"
FIELDS = {"url": URL, "event_types": ["session.running"]}


@pytest.fixture
def user() -> User:
    return make_user()


@pytest.fixture
def page(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_a_webhook_lives_by_the_api(user: User) -> None:
    client = client_of(user)
    made = client.post(API, FIELDS)
    assert (made.status_code, made.json()["enabled"]) == (201, True)
    one = f"{API}{made.json()['id']}/"
    assert [made.json()["secret"]] == secrets_of(Webhook.objects.get())
    assert "secret" not in client.get(one).json()
    rotated = client.post(f"{one}rotate-secret/").json()
    assert rotated["secret"] != made.json()["secret"]
    assert rotated["old_secret_until"] is not None
    changed = client.patch(one, {"name": "CI", "event_types": ["session.error", "session.running"]}).json()
    assert (changed["name"], changed["event_types"]) == ("CI", ["session.running", "session.error"])
    sent = client.post(f"{one}test/").json()
    message = f"{one}deliveries/{sent['id']}/"
    assert client.post(f"{message}resend/").status_code == 400, "it waits"
    deliveries.deliver_due(FakeSender())
    shown = client.get(message).json()
    assert (shown["state"], shown["log"][0]["status"], "webhook.test" in shown["body"]) == ("DELIVERED", 204, True)
    assert client.post(f"{message}resend/").json()["state"] == "PENDING"
    assert client.get(f"{one}deliveries/?state=PENDING").json()["count"] == 1
    assert client.get(f"{one}deliveries/?state=FAILED").json()["count"] == 0
    assert client.patch(one, {"enabled": False}).json()["enabled"] is False
    assert WebhookDelivery.objects.get().state == DeliveryState.FAILED
    assert client.post(f"{one}test/").status_code == 400
    assert client.delete(one).status_code == 204
    assert client.get(API).json()["count"] == 0
    assert not AuditEntry.objects.exists(), "one's own is no administrative act"


def test_changes_overwrite_nothing_that_happened_since_the_row_was_read(user: User) -> None:
    first, _ = services.create(user, url=URL, types=["session.running"])
    again = Webhook.objects.get()
    secret = services.rotate_secret(again)
    deliveries.disable(again, "An administrator disabled it.")
    services.change(first, {"name": "CI"})
    stored = Webhook.objects.get()
    assert (stored.name, stored.is_enabled, bool(stored.disabled_reason)) == ("CI", False, True)
    assert secrets_of(stored)[0] == secret
    assert services.rotate_secret(again) != secret
    assert secrets_of(Webhook.objects.get())[1] == secret, "the one before, for a day"
    stored.delete()
    with pytest.raises(RejectedError, match="deleted meanwhile"):
        services.change(again, {"name": "late"})


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"url": "http://ci.example.org/"}, "url"),
        ({"url": "https://169.254.169.254/"}, "url"),
        ({"event_types": []}, "event_types"),
        ({"event_types": ["session.dancing"]}, "event_types.0"),
        ({"event_types": ["notification.host_faulty"]}, "event_types"),
        ({"all_users": True}, "all_users"),
        ({"enabled": True}, "enabled"),
    ],
)
def test_bad_input_is_refused_at_its_field(user: User, fields: dict[str, object], name: str) -> None:
    answer = client_of(user).post(API, FIELDS | fields)
    assert (answer.status_code, list(answer.json()["errors"])) == (400, [name])
    assert not Webhook.objects.exists()


def test_a_user_has_a_bounded_number_of_webhooks(user: User) -> None:
    for _ in range(services.MAX_WEBHOOKS):
        services.create(user, url=URL, types=["session.running"])
    assert "delete one first" in client_of(user).post(API, FIELDS).json()["errors"]["url"][0]


def test_webhooks_of_others_do_not_exist(user: User) -> None:
    webhook, _ = services.create(make_user(), url=URL, types=["session.running"])
    sent = services.send_test(webhook)
    for asker in (user, make_user(is_superuser=True)):
        one = f"{API}{webhook.pk}/"
        answers: list[Any] = [
            client_of(asker).get(path) for path in (one, f"{one}deliveries/", f"{one}deliveries/{sent.pk}/")
        ]
        answers += [client_of(asker).post(f"{one}{verb}/") for verb in ("test", "rotate-secret")]
        answers += [client_of(asker).delete(one), client_of(asker).patch(one, {"name": "x"})]
        client = Client()
        client.force_login(asker)
        mine = f"/webhooks/{webhook.pk}/"
        answers += [client.get(path) for path in (mine, f"{mine}deliveries/{sent.pk}/")]
        posts = ("", "rotate/", "test/", "delete/", f"deliveries/{sent.pk}/resend/")
        answers += [client.post(f"{mine}{path}") for path in posts]
        assert {answer.status_code for answer in answers} == {404}


def test_what_is_done_to_webhooks_of_all_sessions_is_audited() -> None:
    admin = make_user(is_superuser=True)
    client = client_of(admin)
    made = client.post(API, FIELDS | {"all_users": True}).json()
    client.patch(f"{API}{made['id']}/", {"all_users": False})
    client.delete(f"{API}{made['id']}/")
    assert list(AuditEntry.objects.order_by("id").values_list("action", "actor")) == [
        ("added", admin.pk),
        ("changed", admin.pk),
    ]
    assert made["secret"] not in str(AuditEntry.objects.values())


def test_a_webhook_lives_on_its_pages(user: User, page: Client) -> None:
    refused = page.post("/webhooks/", FIELDS | {"url": "http://127.0.0.1/"})
    assert (refused.status_code, b"begins with https://" in refused.content) == (422, True)
    made = page.post("/webhooks/", FIELDS)
    webhook = Webhook.objects.get()
    (secret,) = secrets_of(webhook)
    assert secret in made.content.decode()
    one = f"/webhooks/{webhook.pk}/"
    assert secret not in page.get("/webhooks/").content.decode() + page.get(one).content.decode()
    saved = page.post(one, FIELDS | {"name": "CI", "is_enabled": "on"})
    assert (saved.status_code, Webhook.objects.get().name) == (302, "CI")
    assert page.post(f"{one}rotate/").status_code == 200
    shown = page.post(f"{one}test/", follow=True).content.decode()
    assert "composed when it is first sent" in shown
    deliveries.deliver_due(FakeSender())
    message = f"{one}deliveries/{WebhookDelivery.objects.get().pk}/"
    assert "HTTP 204" in page.get(message).content.decode()
    page.post(f"{message}resend/")
    assert WebhookDelivery.objects.get().state == DeliveryState.PENDING
    page.post(one, FIELDS)
    assert not Webhook.objects.get().is_enabled
    assert "disabled" in page.post(f"{one}test/", follow=True).content.decode()
    page.post(f"{one}delete/")
    assert not Webhook.objects.exists()


def test_lists_of_messages_take_as_many_queries_for_many(user: User, page: Client) -> None:
    webhook, _ = services.create(user, url=URL, types=["session.running"])
    counts = []
    for _ in range(2):
        services.send_test(webhook)
        services.send_test(webhook)
        with CaptureQueriesContext(connection) as queries:
            page.get(f"/webhooks/{webhook.pk}/")
            client_of(user).get(f"{API}{webhook.pk}/deliveries/")
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_administrators_disable_webhooks_of_others(user: User) -> None:
    webhook, _ = services.create(user, url=URL, types=["session.running"])
    client = Client()
    client.force_login(make_user(is_superuser=True))
    listed = client.get("/admin/webhooks/webhook/").content.decode()
    assert URL in listed
    client.post("/admin/webhooks/webhook/", {"action": "disable", "_selected_action": [webhook.pk]})
    webhook.refresh_from_db()
    assert (webhook.is_enabled, Notification.objects.get().user) == (False, user)
    assert AuditEntry.objects.get().action == "disable"
    assert client.get(f"/admin/webhooks/webhook/{webhook.pk}/change/").status_code == 200
