"""Celery's entry point to the scheduler."""

from celery import shared_task

from scheduler import passes


@shared_task
def run_pass() -> None:
    """Run one scheduling pass; kicked on commit of whatever can change its outcome, and periodically."""
    passes.run_pass()
