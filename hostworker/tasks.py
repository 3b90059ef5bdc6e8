"""Celery's entry points: an id in, one call. Delivered at least once; whatever they call is safe to repeat."""

from celery import shared_task

from hostworker import app_starter, runner
from hostworker.runtime.factory import get_runtime


@shared_task
def start_session(session_id: str, attempt: int) -> None:
    """Start this attempt on this host."""
    runner.start(get_runtime(), session_id, attempt)


@shared_task
def stop_session(session_id: str, attempt: int) -> None:
    """Stop this attempt on this host."""
    runner.stop(get_runtime(), session_id, attempt)


@shared_task
def open_app(endpoint_id: int) -> None:
    """Find or start the app of this endpoint on this host."""
    app_starter.begin(get_runtime(), endpoint_id)
