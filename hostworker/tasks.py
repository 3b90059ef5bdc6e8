"""Celery's entry points of a host's worker. Delivered at least once; whatever they call is safe to repeat."""

import logging
import os
import signal
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from celery import shared_task
from django.conf import settings

from hostworker.agent import due_work
from hostworker.agent.acts import ACTS
from hostworker.images import image_maker
from hostworker.runtime.factory import get_runtime
from resources import clock
from resources.models import Host

RESTART_SECONDS: Final = 60  # for which a request to restart is worth something

logger = logging.getLogger(__name__)
_began_at = time.monotonic()


def _register(name: str, act: Callable[..., None]) -> None:
    @shared_task(name=f"{__name__}.{name}")
    @wraps(act)
    def run(*arguments: Any) -> None:
        with due_work.follows(settings.COMPUTE_HOST_NAME):
            act(get_runtime(), *arguments)


for name, act in ACTS.items():
    _register(name, act)


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
