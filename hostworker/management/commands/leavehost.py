"""`manage.py leavehost`: has this host leave the platform, when the job of Slurm ends that it is part of."""

import logging
import time
from argparse import ArgumentParser
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.core.management.base import BaseCommand

from resources import clock
from resources.models import Host
from sessions.drains import services as drains
from sessions.lifecycle import HOSTED
from sessions.models import Session

logger = logging.getLogger(__name__)

STOP_SECONDS: Final = 60  # for ending sessions, of those that there are; where there are fewer, they end at once
POLL_SECONDS: Final = 1.0
REASON: Final = "The time that the cluster gives for it is over"


class Command(BaseCommand):
    """Drains the host that this machine is, and ends once it has no sessions any more."""

    help = "Take no more sessions on this host, end those that are left within a time, and wait until they are gone."
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--seconds", type=int, required=True, help="after which the host is gone")

    def handle(self, *args: Any, seconds: int, **options: Any) -> None:
        """Drain, and wait; the caller bounds the wait."""
        host = Host.objects.filter(name=settings.COMPUTE_HOST_NAME).first()
        if host is None:  # it has not registered yet
            return
        end_at = clock.now() + timedelta(seconds=max(0, seconds - STOP_SECONDS))
        drains.leave(host, end_at=end_at, reason=REASON)
        while Session.objects.filter(host=host, status__in=HOSTED).exists():
            time.sleep(POLL_SECONDS)
