"""What the demo of a cluster begins with: groups, projects, users, environments, and a fortnight of past sessions."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Final

from django.db import transaction
from django.utils import timezone

from accounts.models import Membership, Project, ProjectRole, ResourcePolicy, User
from gpuplatform.bootstrap.demo import demo
from resources.amounts.units import GIB
from resources.gpus.shares import Sharing
from resources.models import Image, ResourceGroup
from sessions.lifecycle import Reason, Status
from sessions.models import Session, SessionEvent, UsageDay

TRAINING: Final = "training"
CLASSROOM: Final = "classroom"
PROJECTS: Final = ("vision", "speech", "proteins")
POLICY: Final = "cluster"
DOMAIN: Final = "cluster.example.org"
IMAGES: Final = (("PyTorch", "2.13"), ("PyTorch", "2.12"), ("TensorFlow", "2.21"), ("JAX", "0.9"), ("Python", "3.13"))
PAST_DAYS: Final = 14
PAST_SESSIONS_OF_USER: Final = 25
GIVEN_NAMES: Final = (
    *("ada", "alan", "barbara", "dennis", "donald", "edsger", "frances", "grace", "hedy", "john", "katherine", "ken"),
    *("leslie", "lynn", "margaret", "niklaus", "radia", "shafi", "sophie", "tim"),
)


def create(users: int, logins_file: Path) -> None:
    """Create all that, and the log-ins of the demo; nothing where the cluster's users exist."""
    if User.objects.filter(email__endswith=f"@{DOMAIN}").exists():
        return
    with transaction.atomic():
        groups = _groups()
        demo.create(logins_file)
        images = Image.objects.bulk_create(
            Image(environment=name, version=version, reference=f"simulated/{name.lower()}:{version}")
            for name, version in IMAGES
        )
        _past(_users(users), groups, images)


def _groups() -> list[ResourceGroup]:
    """Create one group of whole GPUs, shared fairly, and one whose GPUs are divided in four."""
    return [
        ResourceGroup.objects.create(
            name=TRAINING, description="Whole GPUs, for training", open_to_all=True, queue_order="fair"
        ),
        ResourceGroup.objects.create(
            name=CLASSROOM,
            description="Quarters of a GPU, for courses",
            open_to_all=True,
            fgpu_per_gpu=4,
            sharing=Sharing.BURST.value,
        ),
    ]


def _users(count: int) -> list[User]:
    policy = ResourcePolicy.objects.create(
        name=POLICY, fgpu=16_000, max_sessions=12, max_pending=10, max_lifetime=timedelta(days=2)
    )
    names = (f"{GIVEN_NAMES[n % len(GIVEN_NAMES)]}{n // len(GIVEN_NAMES) or ''}" for n in range(count))
    users = [User.objects.create_user(f"{name}@{DOMAIN}", policy=policy) for name in names]
    projects = [Project.objects.create(name=name) for name in PROJECTS]
    for number, user in enumerate(users):  # every fourth is in no project
        if number % 4:
            role = ProjectRole.MANAGER if number < 4 else ProjectRole.MEMBER
            Membership.objects.create(project=projects[number % 4 - 1], user=user, role=role.value)
    return users


def _past(users: Sequence[User], groups: Sequence[ResourceGroup], images: Sequence[Image]) -> None:
    """Write what these users ran in the last days, without hosts: reports and fair share have something to show."""
    random, now = Random(1), timezone.now()  # noqa: S311  # the same past each time
    made = [_past_session(random, now, user, groups, images) for user in users for _ in range(PAST_SESSIONS_OF_USER)]
    Session.objects.bulk_create(made, batch_size=500)
    SessionEvent.objects.bulk_create(
        (
            SessionEvent(session=each, at=at, old_status=old, new_status=new, reason=reason.value)
            for each in made
            for at, old, new, reason in _changes(each)
        ),
        batch_size=1000,
    )
    UsageDay.objects.bulk_create(_usage_day(random, each) for each in made if each.fgpu)


def _past_session(
    random: Random, now: datetime, user: User, groups: Sequence[ResourceGroup], images: Sequence[Image]
) -> Session:
    created = now - timedelta(seconds=random.randint(3 * 3600, PAST_DAYS * 24 * 3600))
    started = created + timedelta(seconds=random.expovariate(1 / 400))
    ended = min(now, started + timedelta(seconds=random.expovariate(1 / 6000)))
    has_failed = random.random() < 0.06
    return Session(
        name=f"run-{random.randint(0, 99999):05}",
        owner=user,
        image=random.choice(images),
        resource_group=random.choice(groups),
        status=(Status.ERROR if has_failed else Status.TERMINATED).value,
        reason=(Reason.OUT_OF_MEMORY if has_failed else Reason.USER_REQUEST).value,
        cpu=4,
        memory=32 * GIB,
        shared_memory=GIB,
        fgpu=random.choice((0, 500, 1000, 1000, 2000, 4000)),
        created_at=created,
        started_at=started,
        ended_at=ended,
    )


def _changes(session: Session) -> list[tuple[datetime, str, str, Reason]]:
    started, ended = session.started_at, session.ended_at
    if started is None or ended is None:
        return []
    running, end = Status.RUNNING.value, Reason(session.reason)
    return [
        (session.created_at, "", Status.PENDING.value, Reason.SUBMITTED),
        (started, Status.PENDING.value, running, Reason.STARTED),
        (ended, running, session.status, end),
    ]


def _usage_day(random: Random, session: Session) -> UsageDay:
    seconds = int(
        ((session.ended_at or session.created_at) - (session.started_at or session.created_at)).total_seconds()
    )
    held, idle = session.fgpu * seconds, random.random() ** 2
    return UsageDay(
        session=session,
        day=session.created_at.date(),
        measured_seconds=seconds,
        idle_seconds=round(seconds * idle),
        cpu_milli_seconds=round(seconds * session.cpu * 1000 * (1 - idle) / 2),
        fgpu_milli_seconds=held,
        fgpu_milli_seconds_idle=round(held * idle),
        fgpu_milli_seconds_used=round(held * (1 - idle) * 0.8),
    )
