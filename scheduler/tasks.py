"""Celery task of the scheduler."""

from celery import shared_task

from scheduler import passes


@shared_task
def run_pass() -> None:
    """Run one scheduling pass; kicked on commit of changes that may affect its outcome, and run periodically."""
    passes.run_pass()
