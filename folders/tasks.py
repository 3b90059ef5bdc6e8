"""Celery's periodic task of data folders, run on the scheduler's queue."""

from celery import shared_task

from folders import sweeps


@shared_task
def delete_expired() -> None:
    """Have the folders deleted whose time in the trash is over."""
    sweeps.delete_expired()
