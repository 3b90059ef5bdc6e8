"""Celery's periodic tasks of sessions, run on the scheduler's queue."""

from celery import shared_task

from sessions import sweeps


@shared_task
def enforce_deadlines() -> None:
    """Move sessions whose state has outlived its deadline; see `sessions.sweeps`."""
    sweeps.enforce_deadlines()
