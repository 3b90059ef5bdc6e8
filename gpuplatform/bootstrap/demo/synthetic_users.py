"""Synthetic users of a demo: they launch, end and cancel sessions by the product's own services."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Final

from django.db.models import Sum
from django.utils import timezone

from accounts.models import User
from resources.amounts.units import GIB
from resources.models import Gpu, Image, ResourceGroup
from sessions.errors import RejectedError
from sessions.launching import services
from sessions.lifecycle import Status
from sessions.models import Session

logger = logging.getLogger(__name__)

MEAN_SECONDS: Final = 480.0  # of an interactive session
MAX_WAIT_SECONDS: Final = 900.0  # a tenth of those that wait longer are cancelled
CANCELLED: Final = 0.1
BATCH: Final = 0.35  # part of the sessions, which end by themselves
TIME_LIMITS: Final = (None, timedelta(minutes=15), timedelta(minutes=30), timedelta(hours=1))
COMMAND: Final = "python train.py"
SHAPES: Final = (  # milli-GPU, cores, memory; and how often
    ((0, 2, 8 * GIB), 2),
    ((250, 2, 8 * GIB), 4),
    ((500, 4, 16 * GIB), 4),
    ((1000, 4, 32 * GIB), 6),
    ((2000, 8, 64 * GIB), 2),
    ((4000, 16, 128 * GIB), 1),
)
MEAN_MILLI_GPU: Final = sum(shape[0] * weight for shape, weight in SHAPES) / sum(weight for _, weight in SHAPES)


@dataclass(slots=True, kw_only=True)
class Activity:
    """What the users did so far."""

    launched: int = 0
    refused: int = 0
    ended: int = 0


class SyntheticUsers:
    """Keeps the GPUs of the groups as busy as `pressure` says: 1 asks for just what there is, more makes queues."""

    def __init__(self, users: Sequence[User], pressure: float, random: Random) -> None:
        self.activity = Activity()
        self._users = users
        self._pressure = pressure
        self._random = random
        self._images = list(Image.objects.filter(is_enabled=True, owner=None))
        self._ends: dict[str, float] = {}  # by session: the moment at which its user ends it

    def act(self, now: float, seconds: float) -> None:
        """Do what the users do within these seconds; `now` is of any clock that goes on."""
        self._end_due(now)
        for group in ResourceGroup.objects.filter(is_active=True):
            gpus = Gpu.objects.filter(host__group=group, is_present=True).count()
            rate = self._pressure * gpus * 1000 / MEAN_MILLI_GPU / MEAN_SECONDS
            for _ in range(self._count(rate * seconds)):
                self._launch(group)

    def launch_until_full(self) -> None:
        """Launch as many sessions as fill the groups, as if they had been there for long."""
        for group in ResourceGroup.objects.filter(is_active=True):
            capacity = Gpu.objects.filter(host__group=group, is_present=True).count() * group.gpu_capacity
            live = Session.objects.filter(resource_group=group, ended_at=None)
            held = live.aggregate(held=Sum("fgpu", default=0))["held"]
            missing = self._pressure * capacity - held
            for _ in range(max(0, math.ceil(missing / (MEAN_MILLI_GPU / 1000 * group.gpu_capacity)))):
                self._launch(group)

    def _launch(self, group: ResourceGroup) -> None:
        user, random = self._random.choice(self._users), self._random
        ((milli, cores, memory),) = random.choices(*zip(*SHAPES, strict=True))
        is_batch = random.random() < BATCH
        request = services.LaunchRequest(
            image=random.choice(self._images),
            resource_group=group,
            cpu=cores,
            memory=memory,
            shared_memory=GIB,
            fgpu=milli * group.gpu_capacity // 1000,
            command=COMMAND if is_batch else "",
            time_limit=random.choice(TIME_LIMITS),
            project=user.projects.first() if self._random.random() < 0.7 else None,
        )
        try:
            services.submit(user, request)
            self.activity.launched += 1
        except RejectedError as error:
            self.activity.refused += 1
            logger.debug("%s is refused: %s", user, error.errors)

    def _end_due(self, now: float) -> None:
        """End the sessions whose users are done with them, and cancel some that have waited for long."""
        mine = Session.objects.filter(owner__in=self._users)
        running = dict(mine.filter(status=Status.RUNNING, command="").in_bulk())
        self._ends = {pk: self._ends.get(pk) or now + self._random.expovariate(1 / MEAN_SECONDS) for pk in running}
        impatient = timezone.now() - timedelta(seconds=MAX_WAIT_SECONDS)
        waiting = mine.filter(status=Status.PENDING, created_at__lt=impatient)
        tired = [each for each in waiting if self._random.random() < CANCELLED / MAX_WAIT_SECONDS]
        for session in (*(running[pk] for pk, end in self._ends.items() if end <= now), *tired):
            services.terminate(session, actor=session.owner)
            self.activity.ended += 1

    def _count(self, mean: float) -> int:
        """Return a number of arrivals: Poisson, by Knuth's method (The Art of Computer Programming, 3.4.1)."""
        limit, count, product = math.exp(-mean), 0, self._random.random()
        while product > limit:
            count += 1
            product *= self._random.random()
        return count
