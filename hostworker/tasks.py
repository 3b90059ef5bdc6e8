"""Celery's entry points: an id in, one call. Delivered at least once; whatever they call is safe to repeat."""

import logging
import os
import signal
import time
from typing import Final

from celery import shared_task
from django.conf import settings

from hostworker.agent import starts
from hostworker.app_processes import starter as app_starter
from hostworker.containers import resizer, runner
from hostworker.images import converter, image_maker
from hostworker.runtime.factory import get_runtime
from hostworker.terminals import message as terminal_message
from resources import clock
from resources.models import Host

RESTART_SECONDS: Final = 60  # for which a request to restart is worth something

logger = logging.getLogger(__name__)
_began_at = time.monotonic()


@shared_task
def start_session(session_id: str, attempt: int) -> None:
    """Start this attempt on this host, and then what its image wants started with it."""
    starts.begin(get_runtime(), session_id, attempt)


@shared_task
def stop_session(session_id: str, attempt: int) -> None:
    """Stop this attempt on this host."""
    runner.stop(get_runtime(), session_id, attempt)


@shared_task
def resize_session(session_id: str, resize_id: str) -> None:
    """Apply a resize to a session of this host."""
    resizer.apply(get_runtime(), session_id, resize_id)


@shared_task
def show_message(session_id: str, attempt: int, text: str, until: float) -> None:
    """Show a line of text in the terminals of a session of this host, unless the Unix time `until` has passed."""
    terminal_message.show(get_runtime(), session_id, attempt, text, until)


@shared_task
def open_app(endpoint_id: int) -> None:
    """Find or start the app of this endpoint on this host."""
    app_starter.begin(get_runtime(), endpoint_id)


@shared_task
def look_at_app(endpoint_id: int) -> None:
    """Record why the app of this endpoint refuses connections."""
    app_starter.look(get_runtime(), endpoint_id)


@shared_task
def convert_session(conversion_id: str) -> None:
    """Save a session of this host as an image."""
    converter.begin(get_runtime(), conversion_id)


@shared_task
def report_changes(session_id: str) -> None:
    """Report what a session of this host has changed in its container."""
    converter.begin_report(get_runtime(), session_id)


@shared_task
def remove_deleted_images() -> None:
    """Remove images that were deleted from this host."""
    image_maker.remove_deleted(get_runtime(), Host.objects.get(name=settings.COMPUTE_HOST_NAME))


@shared_task
def restart_worker(asked_at: float) -> None:
    """End this process, which its supervisor starts again, unless it began after `asked_at`.

    `asked_at` is the Unix time by the shared clock. What comes twice, late or from the future does nothing.
    """
    age = clock.now().timestamp() - asked_at
    if abs(age) > RESTART_SECONDS or age >= time.monotonic() - _began_at:
        logger.info("an old request to restart this worker is ignored")
        return
    logger.warning("this worker ends, to be started again, as a superadmin has asked")
    os.kill(os.getpid(), signal.SIGTERM)
