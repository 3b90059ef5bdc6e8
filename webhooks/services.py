"""Makes, changes and deletes webhooks, and sends messages again. What superadmins do for all sessions is audited."""

import uuid
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from django.conf import settings
from django.db import models, transaction
from django.utils.translation import gettext as _

from accounts import audit
from accounts.models import User
from resources import clock
from sessions.errors import GENERAL, RejectedError
from translation.english import from_english
from webhooks import event_types
from webhooks.delivery import deliveries
from webhooks.delivery.stored_secrets import set_new_secret
from webhooks.destinations import InvalidUrlError, check_url, networks_of
from webhooks.models import DeliveryState, Webhook, WebhookDelivery

MAX_WEBHOOKS: Final = 10  # of one user


@transaction.atomic
def create(
    owner: User, *, url: str, types: Iterable[str], name: str = "", covers_all: bool = False
) -> tuple[Webhook, str]:
    """Store a webhook and return it with its secret, which is shown this once. Raises RejectedError."""
    User.objects.select_for_update(no_key=True).get(pk=owner.pk)  # so that two requests at once are counted
    if owner.webhooks.count() >= MAX_WEBHOOKS:
        text = _("You have %(count)d webhooks already; delete one first.")
        raise RejectedError({"url": text % {"count": MAX_WEBHOOKS}})
    webhook = Webhook(owner=owner)
    _set(webhook, {"url": url, "event_types": types, "name": name, "covers_all": covers_all})
    secret = set_new_secret(webhook)
    with _audited(webhook, "added") as made:
        webhook.save()
        made.append(webhook)
    return webhook, secret


@transaction.atomic
def change(webhook: Webhook, fields: Mapping[str, Any]) -> None:
    """Change name, url, event_types, covers_all and is_enabled. Raises RejectedError.

    Disabling gives up what waits; enabling forgets why it was disabled.
    """
    _lock(webhook)
    was_enabled, covered_all = webhook.is_enabled, webhook.covers_all
    _set(webhook, fields)
    if webhook.is_enabled and not was_enabled:
        webhook.disabled_reason, webhook.failing_since = "", None
    with _audited(webhook, "changed", webhook, or_when=covered_all):
        webhook.save()
    if was_enabled and not webhook.is_enabled:
        deliveries.give_up(webhook)


@transaction.atomic
def rotate_secret(webhook: Webhook) -> str:
    """Give the webhook a new secret and return it; for a day messages carry the signatures of both.

    Raises RejectedError.
    """
    _lock(webhook)
    secret = set_new_secret(webhook)
    with _audited(webhook, "replaced secret", webhook):
        webhook.save(update_fields=("encrypted_secret", "encrypted_old_secret", "old_secret_until"))
    return secret


def delete(webhook: Webhook) -> None:
    """Delete the webhook with its messages."""
    with _audited(webhook, "deleted", webhook):
        webhook.delete()


def send_test(webhook: Webhook) -> WebhookDelivery:
    """Write a message of the type webhook.test and return it. Raises RejectedError."""
    _require_enabled(webhook)
    now = clock.now()
    message_id = f"msg_{uuid.uuid4().hex}"
    return WebhookDelivery.objects.create(
        webhook=webhook, message_id=message_id, type=event_types.TEST, created_at=now, due_at=now
    )


def send_again(delivery: WebhookDelivery) -> None:
    """Send a message that was delivered or given up again, with the same id. Raises RejectedError."""
    _require_enabled(delivery.webhook)
    ended = WebhookDelivery.objects.filter(pk=delivery.pk).exclude(state=DeliveryState.PENDING)
    again = {"state": DeliveryState.PENDING, "due_at": clock.now(), "attempts": 0, "delivered_at": None}
    if not ended.update(**again):
        raise RejectedError({GENERAL: _("This message is being sent already.")})
    delivery.refresh_from_db()


def _lock(webhook: Webhook) -> None:
    """Read the webhook anew and lock it, so that nothing is overwritten that others have written since it was read."""
    rows = Webhook.objects.select_related("owner").select_for_update(no_key=True, of=("self",))
    try:
        webhook.refresh_from_db(from_queryset=rows)
    except Webhook.DoesNotExist:
        raise RejectedError({GENERAL: _("This webhook was deleted meanwhile.")}) from None


def _set(webhook: Webhook, fields: Mapping[str, Any]) -> None:
    """Set the fields that are given, checked. Raises RejectedError."""
    if (url := fields.get("url")) is not None:
        try:
            check_url(url, networks_of(settings.COMPUTE_WEBHOOK_NETWORKS))
        except InvalidUrlError as error:
            raise RejectedError({"url": from_english(str(error))}) from error
        webhook.url = url
    if (types := fields.get("event_types")) is not None:
        webhook.event_types = sorted(set(types), key=event_types.EVENT_TYPES.index)
        if not webhook.event_types:
            raise RejectedError({"event_types": _("Choose at least one kind of event.")})
        if not set(webhook.event_types) <= set(event_types.types_for(webhook.owner.is_superuser)):
            raise RejectedError({"event_types": _("Some of these events are for superadmins alone.")})
    if fields.get("covers_all") and not webhook.owner.is_superuser:
        raise RejectedError({"covers_all": _("Only superadmins receive events of everybody's sessions.")})
    for name in ("name", "covers_all", "is_enabled"):
        setattr(webhook, name, fields.get(name, getattr(webhook, name)))


def _require_enabled(webhook: Webhook) -> None:
    if not webhook.is_enabled:
        raise RejectedError({GENERAL: _("This webhook is disabled; enable it first.")})


def _audited(
    webhook: Webhook, action: str, *targets: Webhook, or_when: bool = False
) -> AbstractContextManager[list[models.Model]]:
    """Return a block whose changes are audited for a webhook of all sessions; one's own is no administrative act."""
    if webhook.covers_all or or_when:
        return audit.act(webhook.owner, action, *targets)
    return nullcontext([])
