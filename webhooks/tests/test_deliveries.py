"""Messages are written with their event, sent until they are taken, and given up at last."""

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from accounts.models import User
from notifications import services as notices
from notifications.delivery.texts import text_of
from notifications.kinds import NoticeKind
from notifications.models import Notification
from operations import retention
from resources import clock
from sessions.errors import RejectedError
from sessions.lifecycle import Reason, Status
from sessions.models import SessionEvent
from tests.factories import make_session, make_user, run_session
from webhooks import services
from webhooks.delivery import deliveries
from webhooks.delivery.sender import SendOutcome, WebhookSender
from webhooks.delivery.stored_secrets import secrets_of
from webhooks.destinations import networks_of
from webhooks.event_types import EVENT_TYPES, types_for
from webhooks.models import DeliveryState, Webhook, WebhookAttempt, WebhookDelivery
from webhooks.signatures import signature
from webhooks.tests.receivers import FakeSender, receiving

pytestmark = pytest.mark.django_db

URL = "https://ci.example.org/hook"
FAILURE = SendOutcome(status=500)


@pytest.fixture
def sender() -> FakeSender:
    return FakeSender()


def make_webhook(owner: User | None = None, **overrides: Any) -> Webhook:
    owner = owner or make_user()
    fields: dict[str, Any] = {"url": URL, "types": types_for(owner.is_superuser)} | overrides
    return services.create(owner, **fields)[0]


def send_due(sender: FakeSender) -> int:
    """Send everything, whatever its time is."""
    WebhookDelivery.objects.exclude(due_at=None).update(due_at=timezone.now())
    return deliveries.deliver_due(sender)


def types(webhook: Webhook) -> list[str]:
    return list(webhook.deliveries.order_by("id").values_list("type", flat=True))


def test_each_change_of_status_is_a_message(sender: FakeSender) -> None:
    webhook = make_webhook()
    session = run_session(make_session(owner=webhook.owner))
    session.move_to(Status.ERROR, Reason.OUT_OF_MEMORY)
    assert types(webhook) == [f"session.{name}" for name in ("scheduled", "preparing", "running", "error")]
    assert deliveries.deliver_due(sender) == 4
    url, headers, body = sender.sent[-1]
    told = json.loads(body)
    assert (url, told["type"], told["data"]["event"]["reason"]) == (URL, "session.error", "OUT_OF_MEMORY")
    assert (told["data"]["session"]["id"], told["data"]["session"]["status"]) == (session.pk, "ERROR")
    assert json.loads(sender.sent[2][2])["data"]["session"]["status"] == "RUNNING", "as it was then"
    (secret,) = secrets_of(webhook)
    signed = signature(secret, headers["webhook-id"], int(headers["webhook-timestamp"]), body)
    assert (headers["webhook-signature"], headers["content-type"]) == (signed, "application/json")
    assert deliveries.deliver_due(sender) == 0


def test_messages_are_due_by_the_shared_clock(sender: FakeSender, monkeypatch: pytest.MonkeyPatch) -> None:
    webhook = make_webhook()
    run_session(make_session(owner=webhook.owner))
    read_at, right = time.monotonic(), timezone.now()
    monkeypatch.setattr(clock.shared_clock, "_read", (right, read_at))
    monkeypatch.setattr(timezone, "now", lambda: right - timedelta(hours=1))  # as on a machine that is behind
    assert deliveries.deliver_due(sender) == 3


def test_a_test_is_due_at_once_by_the_shared_clock(sender: FakeSender, monkeypatch: pytest.MonkeyPatch) -> None:
    webhook = make_webhook()
    right = timezone.now() - timedelta(hours=1)  # as on a web server whose clock is ahead
    monkeypatch.setattr(clock.shared_clock, "_read", (right, time.monotonic()))
    services.send_test(webhook)
    assert deliveries.deliver_due(sender) == 1


def test_many_events_written_at_once_are_all_reported() -> None:
    webhook = make_webhook()
    sessions = [make_session(owner=webhook.owner) for _ in range(3)]
    moved = {"old_status": "PENDING", "new_status": "SCHEDULED", "reason": "ASSIGNED"}
    SessionEvent.objects.bulk_create(SessionEvent(session=each, **moved) for each in sessions)
    assert types(webhook) == ["session.scheduled"] * 3


def test_a_change_that_is_undone_is_not_reported() -> None:
    webhook = make_webhook()
    session = run_session(make_session(owner=webhook.owner))
    WebhookDelivery.objects.all().delete()
    with transaction.atomic():
        session.move_to(Status.ERROR, Reason.HOST_LOST)
        transaction.set_rollback(True)
    assert not WebhookDelivery.objects.exists()


def test_only_chosen_events_of_ones_own_sessions_are_reported() -> None:
    webhook = make_webhook(types=["session.running"])
    run_session(make_session(owner=webhook.owner))
    run_session()
    assert types(webhook) == ["session.running"]


def test_superadmins_may_be_notified_of_all_sessions(sender: FakeSender) -> None:
    admin = make_user(is_superuser=True)
    webhook = make_webhook(admin, types=["session.running"], covers_all=True)
    run_session()
    assert types(webhook) == ["session.running"]
    User.objects.filter(pk=admin.pk).update(is_superuser=False)
    run_session()
    assert len(types(webhook)) == 1, "no longer one"
    assert send_due(sender) == 0
    with pytest.raises(RejectedError):
        make_webhook(covers_all=True)


def test_a_disabled_user_is_sent_nothing(sender: FakeSender) -> None:
    webhook = make_webhook()
    services.send_test(webhook)
    User.objects.filter(pk=webhook.owner.pk).update(is_active=False)
    run_session(make_session(owner=webhook.owner))
    assert types(webhook) == ["webhook.test"]
    assert send_due(sender) == 0


def test_notifications_are_in_the_language_of_their_reader(sender: FakeSender) -> None:
    webhook = make_webhook(make_user(language="ko"))
    session = make_session(owner=webhook.owner, name="train")
    facts = {"name": "train", "minutes": 10, "ends_at": "2026-11-22T12:00:00+00:00"}
    notices.tell(webhook.owner.pk, NoticeKind.ENDING, "ending:1", session=session, facts=facts)
    assert types(webhook) == ["notification.ending"]
    deliveries.deliver_due(sender)
    told = json.loads(sender.sent[0][2])["data"]
    assert (told["session"]["id"], told["notification"]["path"]) == (session.pk, f"/sessions/{session.pk}/")
    assert "10분" in told["notification"]["title"]


def test_what_was_deleted_is_not_reported(sender: FakeSender) -> None:
    webhook = make_webhook()
    notices.tell(webhook.owner.pk, NoticeKind.IMAGE_FAILED, "x", facts={"image": "a", "detail": ""})
    Notification.objects.all().delete()
    assert deliveries.deliver_due(sender) == 0
    assert (webhook.deliveries.get().state, sender.sent) == (DeliveryState.FAILED, [])


def test_failures_are_tried_again_with_growing_pauses(sender: FakeSender) -> None:
    webhook = make_webhook()
    sent = services.send_test(webhook)
    sender.outcomes[URL] = FAILURE
    for pause in deliveries.PAUSES:
        before = timezone.now()
        assert send_due(sender) == 0
        sent.refresh_from_db()
        assert sent.due_at is not None
        assert before + pause <= sent.due_at <= timezone.now() + pause
    send_due(sender)
    sent.refresh_from_db()
    assert (sent.state, sent.due_at, sent.log.count()) == (DeliveryState.FAILED, None, len(deliveries.PAUSES) + 1)
    ids, bodies = {headers["webhook-id"] for _, headers, _ in sender.sent}, {body for _, _, body in sender.sent}
    assert (ids, len(bodies)) == ({sent.message_id}, 1), "the same message each time"
    webhook.refresh_from_db()
    assert webhook.is_enabled, "it has not failed for hours"


def test_receivers_may_ask_for_time_but_not_for_ever(sender: FakeSender) -> None:
    sent = services.send_test(make_webhook())
    for asked, expected in ((3600, timedelta(hours=1)), (9_000_000, deliveries.MAX_PAUSE)):
        sender.outcomes[URL] = SendOutcome(status=503, retry_after_seconds=asked)
        send_due(sender)
        sent.refresh_from_db()
        assert sent.due_at is not None
        assert abs(sent.due_at - timezone.now() - expected) < timedelta(minutes=1)


@pytest.mark.parametrize("succeeds_between", [False, True])
def test_a_webhook_that_takes_nothing_for_hours_is_disabled(sender: FakeSender, succeeds_between: bool) -> None:
    webhook = make_webhook()
    sent, other = services.send_test(webhook), services.send_test(webhook)
    sender.outcomes[URL] = FAILURE
    send_due(sender)
    Webhook.objects.update(failing_since=timezone.now() - deliveries.FAILING_FOR)
    if succeeds_between:
        deliveries.note(services.send_test(webhook), SendOutcome(status=200))
    WebhookDelivery.objects.filter(pk=sent.pk).update(attempts=len(deliveries.PAUSES))
    send_due(sender)
    webhook.refresh_from_db()
    other.refresh_from_db()
    assert webhook.is_enabled == succeeds_between
    assert Notification.objects.filter(user=webhook.owner, kind="WEBHOOK_DISABLED").exists() != succeeds_between
    if not succeeds_between:
        assert (other.state, webhook.disabled_reason) == (DeliveryState.FAILED, "Its receiver responded 500.")
        notice = Notification.objects.get(user=webhook.owner, kind="WEBHOOK_DISABLED")
        assert text_of(notice).url == f"/webhooks/{webhook.pk}/"
        run_session(make_session(owner=webhook.owner))
        assert webhook.deliveries.count() == 2, "nothing more is written"
        services.change(webhook, {"is_enabled": True})
        assert (webhook.disabled_reason, webhook.failing_since) == ("", None)


def test_a_receiver_that_is_gone_disables_its_webhook(sender: FakeSender) -> None:
    webhook = make_webhook()
    services.send_test(webhook)
    sender.outcomes[URL] = SendOutcome(status=410)
    send_due(sender)
    webhook.refresh_from_db()
    assert (webhook.is_enabled, webhook.deliveries.get().state) == (False, DeliveryState.FAILED)


def test_a_death_while_sending_is_made_good(sender: FakeSender) -> None:
    services.send_test(make_webhook())
    (claimed,) = deliveries.claim(10, set())  # and the process dies
    assert deliveries.deliver_due(sender) == 0, "somebody may still be sending it"
    assert send_due(sender) == 1
    assert [headers["webhook-id"] for _, headers, _ in sender.sent] == [claimed.message_id]


def test_a_busy_webhook_delays_no_other() -> None:
    slow, quick = make_webhook(), make_webhook()
    for webhook in (slow,) * 10 + (quick,):
        services.send_test(webhook)
    claimed = [each.webhook_id for each in deliveries.claim(10, set())]
    assert (claimed.count(slow.pk), claimed.count(quick.pk)) == (deliveries.MAX_PER_WEBHOOK, 1)
    assert deliveries.claim(10, {slow.pk}) == []


def test_many_messages_of_one_owner_delay_no_other() -> None:
    owner = make_user()
    for _ in range(3):
        webhook = make_webhook(owner)
        for _ in range(deliveries.MAX_PER_WEBHOOK):
            services.send_test(webhook)
    last = services.send_test(make_webhook())
    claimed = deliveries.claim(4, set())
    assert (len(claimed), last in claimed) == (4, True)


def test_a_message_is_sent_again_with_its_id(sender: FakeSender) -> None:
    webhook = make_webhook()
    sent = services.send_test(webhook)
    with pytest.raises(RejectedError):
        services.send_again(sent)
    send_due(sender)
    services.send_again(sent)
    send_due(sender)
    assert [headers["webhook-id"] for _, headers, _ in sender.sent] == [sent.message_id] * 2
    assert WebhookAttempt.objects.filter(delivery=sent).count() == 2


def test_both_secrets_sign_for_a_day_after_a_rotation(sender: FakeSender) -> None:
    webhook = make_webhook()
    (old,) = secrets_of(webhook)
    new = services.rotate_secret(webhook)
    assert secrets_of(webhook) == [new, old]
    services.send_test(webhook)
    send_due(sender)
    _, headers, body = sender.sent[0]
    signed = [signature(each, headers["webhook-id"], int(headers["webhook-timestamp"]), body) for each in (new, old)]
    assert headers["webhook-signature"] == " ".join(signed)
    webhook.old_secret_until = timezone.now()
    assert secrets_of(webhook) == [new]


def test_secrets_are_not_stored_in_plain_text() -> None:
    webhook, secret = services.create(make_user(), url=URL, types=EVENT_TYPES[:1])
    with connection.cursor() as cursor:
        cursor.execute("SELECT row_to_json(w)::text FROM webhooks_webhook w WHERE id = %s", [webhook.pk])
        (stored,) = cursor.fetchone() or ("",)
    assert secret.removeprefix("whsec_") not in stored


def test_an_unreadable_secret_is_a_failure_that_rotating_ends(sender: FakeSender, settings: Any) -> None:
    webhook = make_webhook()
    services.send_test(webhook)
    settings.SECRET_KEY = "x" * 50
    send_due(sender)
    assert "SECRET_KEY" in WebhookAttempt.objects.get().problem
    services.rotate_secret(webhook)
    Webhook.objects.update(old_secret_until=None)
    assert send_due(sender) == 1


def test_old_messages_are_deleted() -> None:
    webhook = make_webhook()
    services.send_test(webhook)
    old = services.send_test(webhook)
    WebhookDelivery.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(days=31))
    retention.remove_old(timezone.now())
    assert webhook.deliveries.count() == 1


@pytest.fixture
def receiver() -> Iterator[Any]:
    with receiving() as found:
        yield found


@pytest.mark.loopback
def test_messages_reach_a_real_receiver(receiver: Any, settings: Any) -> None:
    settings.COMPUTE_WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    webhook = make_webhook(url=receiver.url)
    for _ in range(9):
        services.send_test(webhook)
    assert deliveries.deliver_due(lambda: WebhookSender(networks_of(["127.0.0.0/8"]))) == 9
    assert len({headers["webhook-id"] for headers, _ in receiver.received}) == 9
