"""Sends notifications by e-mail: each once, although any process may die at any time.

A row is claimed by moving `email_due_at` on, in a transaction of its own, before the message is sent: if the process
dies, it is due again later. If it dies between the mail server's yes and the note of it, the message is sent again with
the same Message-ID, by which mail servers and readers recognize it.
"""

import logging
from datetime import datetime, timedelta
from smtplib import SMTPException
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.template.loader import render_to_string
from django.utils.dateparse import parse_datetime

from accounts.signing_in.language import language_of
from notifications.delivery.texts import text_of
from notifications.kinds import NoticeKind
from notifications.models import Notification
from resources import clock

logger = logging.getLogger(__name__)

FIRST_PAUSE: Final = timedelta(minutes=2)  # longer than a message takes, see EMAIL_TIMEOUT
MAX_PAUSE: Final = timedelta(hours=2)
MAX_ATTEMPTS: Final = 10  # over about half a day


def deliver_due() -> int:
    """Send every message that is due; return how many were sent."""
    sent = 0
    while (notification := _claim()) is not None:
        sent += _deliver(notification)
    return sent


def _claim() -> Notification | None:
    """Return a notification whose message is due, which nobody else gets for a while; None without one."""
    now = clock.now()
    with transaction.atomic():
        due = Notification.objects.filter(email_due_at__lte=now).select_related("user", "session")
        found = due.select_for_update(of=("self",), skip_locked=True).order_by("email_due_at").first()
        if found is not None:
            pause = min(FIRST_PAUSE * 2**found.email_attempts, MAX_PAUSE)
            found.email_attempts += 1
            found.email_due_at = now + pause
            found.save(update_fields=("email_attempts", "email_due_at"))
    return found


def _deliver(notification: Notification) -> bool:
    if not notification.user.is_active or _is_too_late(notification, clock.now()):
        _note(notification, email_due_at=None)
        return False
    try:
        message_of(notification).send()
    except (SMTPException, OSError, ValueError) as error:
        logger.warning("notification %s: no e-mail to %s: %s", notification.pk, notification.user, error)
        is_last = notification.email_attempts >= MAX_ATTEMPTS
        _note(notification, email_problem=str(error)[:200], **({"email_due_at": None} if is_last else {}))
        return False
    _note(notification, email_due_at=None, emailed_at=clock.now(), email_problem="")
    return True


def message_of(notification: Notification) -> EmailMessage:
    """Return the message, in its reader's language, the same however often it is made."""
    base = settings.COMPUTE_PUBLIC_URL.rstrip("/")
    with language_of(notification.user):
        text = text_of(notification)
        body = render_to_string("notifications/mail.txt", {"text": text, "base": base, "notification": notification})
    identity = f"<notification-{notification.pk}.{int(notification.created_at.timestamp())}@{urlsplit(base).hostname}>"
    headers = {"Message-ID": identity, "Auto-Submitted": "auto-generated"}
    return EmailMessage(text.title, body, None, [notification.user.email], headers=headers)


def _is_too_late(notification: Notification, now: datetime) -> bool:
    """Return whether the message warns of what has happened since."""
    end = parse_datetime(notification.facts["ends_at"]) if notification.kind == NoticeKind.ENDING else None
    return end is not None and end <= now


def _note(notification: Notification, **changes: object) -> None:
    Notification.objects.filter(pk=notification.pk).update(**changes)
