"""Celery's tasks of webhooks, run on the scheduler's queue."""

from celery import shared_task

from messaging.background import BackgroundThread
from webhooks.delivery import deliveries

_thread = BackgroundThread("webhooks")  # receivers may take their time, which must not delay scheduling


@shared_task
def deliver() -> None:
    """Have the messages that are due sent, in a thread; no-op while it is at work, as it looks for new ones itself."""
    _thread.run_unless_busy(deliveries.deliver_due)
