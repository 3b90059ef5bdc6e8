"""Celery's periodic tasks of apps, run on the scheduler's queue."""

from celery import shared_task

from endpoints import sweeps


@shared_task
def enforce_deadlines() -> None:
    """End access to apps that has expired; see `endpoints.sweeps`."""
    sweeps.enforce_deadlines()
