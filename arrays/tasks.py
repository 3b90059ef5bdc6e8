"""Celery's task of arrays, run on the scheduler's queue."""

from celery import shared_task

from arrays import reconciliation
from resources.kick import ARRAYS, clear_kick


@shared_task
def advance() -> None:
    """Launch and end sessions as arrays want; see `arrays.reconciliation`."""
    clear_kick(ARRAYS)
    reconciliation.advance_all()
