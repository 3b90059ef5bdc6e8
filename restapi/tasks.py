"""Celery's tasks of the API, run on the scheduler's queue."""

from celery import shared_task

from restapi import idempotency


@shared_task
def forget_idempotency_keys() -> None:
    """Delete the responses that are kept no longer."""
    idempotency.forget_old()
