"""Celery's tasks of webhooks, run on the scheduler's queue."""

from concurrent.futures import Future
from typing import Any

from celery import shared_task
from django.db import close_old_connections

from messaging.background import BackgroundThread
from webhooks.delivery import deliveries

_thread = BackgroundThread("webhooks")  # receivers may take their time, which must not delay scheduling
_running: list[Future[Any]] = []


@shared_task
def deliver() -> None:
    """Have the messages that are due sent, in a thread; no-op while it is at work, as it looks for new ones itself."""
    if not any(not each.done() for each in _running):
        _running[:] = [_thread.run(_deliver)]


def _deliver() -> None:
    close_old_connections()
    try:
        deliveries.deliver_due()
    finally:
        close_old_connections()
