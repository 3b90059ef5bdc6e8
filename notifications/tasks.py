"""Celery's tasks of notifications, run on the scheduler's queue."""

from datetime import timedelta
from typing import Final

from celery import shared_task
from django.db import close_old_connections
from django.utils import timezone

from messaging.background import BackgroundThread
from notifications.delivery import ends, mail
from notifications.models import Notification

RETENTION: Final = timedelta(days=90)

_mailer = BackgroundThread("mail")  # a mail server may take its time, which must not delay scheduling


@shared_task
def announce_ends() -> None:
    """Tell owners of sessions that end soon."""
    ends.announce_ends()
    ends.announce_idle_ends()
    ends.announce_parked_ends()


@shared_task
def deliver_mail() -> None:
    """Have the messages that are due sent, in a thread."""
    _mailer.run(_deliver)


@shared_task
def forget_old() -> None:
    """Delete notifications that are older than RETENTION."""
    Notification.objects.filter(created_at__lt=timezone.now() - RETENTION).delete()


def _deliver() -> None:
    close_old_connections()
    try:
        mail.deliver_due()
    finally:
        close_old_connections()
