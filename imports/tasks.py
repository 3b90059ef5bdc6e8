"""Celery's task of imports, run on the scheduler's queue."""

import time
from typing import Final

from celery import shared_task

from imports.runs import progress
from messaging.background import BackgroundThread

_thread = BackgroundThread("imports")  # hosts may take their time, which must not delay scheduling
PAUSE_SECONDS: Final = 0.5
LOOKS: Final = 120  # of one task; the next goes on


@shared_task
def advance() -> None:
    """Have imports carried on, in a thread; no-op while it is at work, as it looks again while any is under way."""
    _thread.run_unless_busy(_advance)


def _advance() -> None:
    for _look in range(LOOKS):
        if not progress.advance_all():
            return
        time.sleep(PAUSE_SECONDS)
