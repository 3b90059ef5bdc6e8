"""Celery's periodic tasks of sessions, run on the scheduler's queue."""

import time
from contextlib import suppress
from typing import Final

from celery import shared_task
from django.core.cache import cache
from redis.exceptions import RedisError

from resources import clock
from sessions import sweeps
from sessions.idle import enforcement as idle

SWEPT_AT: Final = "sessions.swept_at"  # in the cache: Unix seconds, by which `doctor` knows that beat and scheduler run


@shared_task
def enforce_deadlines() -> None:
    """Move sessions whose state has outlived its deadline; see `sessions.sweeps`."""
    sweeps.enforce_deadlines()
    with suppress(RedisError):
        cache.set(SWEPT_AT, time.time(), timeout=None)


@shared_task
def enforce_idle_rules() -> None:
    """Warn the owners of idle sessions, and end those that stay idle; see `sessions.idle.enforcement`."""
    idle.enforce_idle_rules(clock.now())
