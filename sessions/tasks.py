"""Celery's periodic tasks of sessions, run on the scheduler's queue."""

from celery import shared_task

from messaging.background import BackgroundThread
from resources import clock, heartbeats
from resources.heartbeats import HeartbeatName
from sessions import sweeps
from sessions.ending import services as ending
from sessions.idle import enforcement as idle
from sessions.usage import sums

_summer = BackgroundThread("usage")  # scheduling does not wait for it


@shared_task
def enforce_deadlines() -> None:
    """Move sessions whose state has outlived its deadline; see `sessions.sweeps`."""
    sweeps.enforce_deadlines()
    heartbeats.note(HeartbeatName.BEAT)


@shared_task
def end_requested() -> None:
    """End the sessions whose end was asked for and not undone; see `sessions.ending`."""
    ending.end_due()


@shared_task
def sum_usage() -> None:
    """Have days that are over summed, in a thread; see `sessions.usage.sums`."""
    _summer.run(lambda: sums.sum_days(clock.now()))


@shared_task
def enforce_idle_rules() -> None:
    """Warn the owners of idle sessions, and end those that stay idle; see `sessions.idle.enforcement`."""
    idle.enforce_idle_rules(clock.now())
