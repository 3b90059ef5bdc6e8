"""Celery's tasks of notifications, run on the scheduler's queue."""

from celery import shared_task

from messaging.background import BackgroundThread
from notifications.delivery import deployments, ends, mail

_mailer = BackgroundThread("mail")  # a mail server may take its time, which must not delay scheduling


@shared_task
def announce_ends() -> None:
    """Tell owners of sessions that end soon, and of what became of deployments."""
    ends.announce_ends()
    ends.announce_idle_ends()
    ends.announce_parked_ends()
    deployments.announce()


@shared_task
def deliver_mail() -> None:
    """Have the messages that are due sent, in a thread."""
    _mailer.run(mail.deliver_due)
