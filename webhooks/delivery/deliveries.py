"""Sends messages that are due, each until its receiver has taken it or all attempts are used up.

A message is claimed by moving `due_at` on, in a transaction of its own, before it is sent: if the process dies, it is
due again soon. Receivers recognize a message that comes twice by its `webhook-id`.
"""

import logging
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from notifications.kinds import NoticeKind
from notifications.services import tell
from resources import clock
from webhooks.delivery.payloads import body_of
from webhooks.delivery.sender import MessageSender, SendOutcome, WebhookSender
from webhooks.delivery.stored_secrets import UnreadableSecretError, secrets_of
from webhooks.destinations import networks_of
from webhooks.models import PROBLEM_LENGTH, DeliveryState, Webhook, WebhookAttempt, WebhookDelivery
from webhooks.signatures import signed_headers

logger = logging.getLogger(__name__)

# Before the second attempt and those that follow, about as the Standard Webhooks specification proposes.
PAUSES: Final = (
    *(timedelta(seconds=5), timedelta(minutes=5), timedelta(minutes=30)),
    *(timedelta(hours=2), timedelta(hours=5), timedelta(hours=10)),
)
FAILING_FOR: Final = timedelta(hours=12)  # then giving up a message disables its webhook
MAX_PAUSE: Final = timedelta(days=1)  # whatever a receiver asks for
LEASE: Final = timedelta(seconds=60)  # longer than an attempt takes
MAX_AT_ONCE: Final = 32  # requests under way
MAX_PER_WEBHOOK: Final = 4  # of these; a slow receiver delays no other
LOOK_SECONDS: Final = 1.0  # while requests are under way, how often to look for more
RETENTION: Final = timedelta(days=30)
USER_AGENT: Final = "GPU-Platform-Webhooks/1"


def deliver_due(send_with: Callable[[], AbstractContextManager[MessageSender]] | None = None) -> int:
    """Send every message that is due, several at a time; return how many were taken by their receivers."""
    if not _due().exists():
        return 0
    delivered = 0
    under_way: dict[Future[SendOutcome], WebhookDelivery] = {}
    with (send_with or _sender)() as sender:
        while True:
            for delivery in claim(MAX_AT_ONCE - len(under_way), {each.webhook_id for each in under_way.values()}):
                if (begun := _begin(sender, delivery)) is not None:
                    under_way[begun] = delivery
            if not under_way:
                return delivered
            done, _ = wait(under_way, timeout=LOOK_SECONDS, return_when=FIRST_COMPLETED)
            delivered += sum(note(under_way.pop(future), future.result()) for future in done)


def claim(limit: int, busy: set[int]) -> list[WebhookDelivery]:
    """Return messages that are due, which nobody else gets for a while, at most MAX_PER_WEBHOOK of each webhook.

    Those of webhooks in `busy` are left for later. Owners take turns: many receivers of one that do not respond delay
    the messages of others by an attempt, and not by all that wait.
    """
    now = clock.now()
    place = Window(RowNumber(), partition_by=F("webhook"), order_by=("due_at", "id"))
    turn = Window(RowNumber(), partition_by=F("webhook__owner"), order_by=("due_at", "id"))
    waiting = _due().exclude(webhook__in=busy).annotate(place=place, turn=turn)
    chosen = waiting.filter(place__lte=MAX_PER_WEBHOOK).order_by("turn", "due_at", "id")
    with transaction.atomic():
        found = WebhookDelivery.objects.filter(pk__in=chosen.values("pk")[:limit])
        # The time is asked again, as another process may have claimed a row while this one waited for it.
        claimed = list(
            found.filter(due_at__lte=now)
            .select_related("webhook__owner")
            .select_for_update(of=("self",), skip_locked=True)
            .order_by("due_at", "id")
        )
        WebhookDelivery.objects.filter(pk__in=[each.pk for each in claimed]).update(
            due_at=now + LEASE, attempts=F("attempts") + 1
        )
    for each in claimed:
        each.attempts += 1
    return claimed


def note(delivery: WebhookDelivery, outcome: SendOutcome) -> bool:
    """Store what came of an attempt, and disable a webhook that takes nothing; return whether it was delivered."""
    now = clock.now()
    with transaction.atomic():
        webhook = Webhook.objects.select_for_update(no_key=True).filter(pk=delivery.webhook_id).first()
        if webhook is None:  # deleted meanwhile
            return False
        WebhookAttempt.objects.create(
            delivery=delivery,
            status=outcome.status,
            duration_ms=outcome.duration_ms,
            problem=outcome.problem[:PROBLEM_LENGTH],
            response=outcome.response,
        )
        if outcome.is_success:
            _change(delivery, state=DeliveryState.DELIVERED, due_at=None, delivered_at=now)
            webhook.failing_since = None
        else:
            webhook.failing_since = webhook.failing_since or now
            _note_failure(webhook, delivery, outcome, now)
        webhook.save(update_fields=("failing_since",))
    return outcome.is_success


def _note_failure(webhook: Webhook, delivery: WebhookDelivery, outcome: SendOutcome, now: datetime) -> None:
    is_gone = outcome.status == HTTPStatus.GONE
    if not is_gone and delivery.attempts <= len(PAUSES):
        asked = timedelta(seconds=outcome.retry_after_seconds)
        _change(delivery, due_at=now + min(max(PAUSES[delivery.attempts - 1], asked), MAX_PAUSE))
        return
    _change(delivery, state=DeliveryState.FAILED, due_at=None)
    if is_gone or (webhook.failing_since or now) <= now - FAILING_FOR:
        disable(
            webhook,
            "Its receiver responded 410 Gone."
            if is_gone
            else outcome.problem or f"Its receiver responded {outcome.status}.",
        )


def disable(webhook: Webhook, reason: str) -> None:
    """Send nothing more to the webhook, give up what waits, and tell its owner; in the caller's transaction."""
    if not Webhook.objects.filter(pk=webhook.pk, is_enabled=True).update(is_enabled=False, disabled_reason=reason):
        return
    give_up(webhook)
    logger.info("webhook %s: disabled: %s", webhook.pk, reason)
    key = f"webhook:{webhook.pk}:{int(clock.now().timestamp())}"
    facts = {"webhook": webhook.pk, "name": str(webhook)[:80], "detail": reason}
    tell(webhook.owner_id, NoticeKind.WEBHOOK_DISABLED, key, facts=facts)


def give_up(webhook: Webhook) -> None:
    """Send none of the messages that wait."""
    waiting = webhook.deliveries.filter(state=DeliveryState.PENDING)
    waiting.update(state=DeliveryState.FAILED, due_at=None)


def _begin(sender: MessageSender, delivery: WebhookDelivery) -> Future[SendOutcome] | None:
    """Compose and sign the message and begin to send it; None where what it tells of was deleted."""
    try:
        if not delivery.body:
            delivery.body = body_of(delivery)
            WebhookDelivery.objects.filter(pk=delivery.pk).update(body=delivery.body)
        all_secrets = secrets_of(delivery.webhook)
    except LookupError:
        _change(delivery, state=DeliveryState.FAILED, due_at=None)
        return None
    except UnreadableSecretError as error:
        failed: Future[SendOutcome] = Future()
        failed.set_result(SendOutcome(problem=str(error)))
        return failed
    signed = signed_headers(all_secrets, delivery.message_id, int(clock.now().timestamp()), delivery.body)
    headers = {"content-type": "application/json", "user-agent": USER_AGENT, **signed}
    return sender.post(delivery.webhook.url, headers, delivery.body)


def _due() -> QuerySet[WebhookDelivery]:
    """Return the messages to be sent now; those of disabled users wait, and are deleted with age."""
    sent = Q(webhook__covers_all=False) | Q(webhook__owner__is_superuser=True)
    owners = {"webhook__is_enabled": True, "webhook__owner__is_active": True}
    return WebhookDelivery.objects.filter(sent, due_at__lte=clock.now(), **owners)


def _change(delivery: WebhookDelivery, **fields: object) -> None:
    """Change the message, unless it has been given up or sent again by hand meanwhile."""
    claimed = {"state": DeliveryState.PENDING, "attempts": delivery.attempts}
    WebhookDelivery.objects.filter(pk=delivery.pk, **claimed).update(**fields)


def _sender() -> WebhookSender:
    return WebhookSender(networks_of(settings.COMPUTE_WEBHOOK_NETWORKS))
