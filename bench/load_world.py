"""Fills an empty database for bench/load.py: users with tokens and logins, and sessions that hold all GPUs, or wait."""

import json
from datetime import timedelta
from typing import Final

from django.db import connection, transaction
from django.utils import timezone

from accounts.models import ApiToken, ResourcePolicy, User
from bench.page_world import sign_in
from resources.amounts.units import GIB, MIB
from resources.models import Gpu, Host, HostStatus, Image, ResourceGroup
from sessions.lifecycle import Reason, Status
from sessions.models import GpuShare, Lease, Session, SessionEvent

USERS: Final = 220
SUPERADMINS_EVERY: Final = 11  # users, so that few users have few of them, too
GROUP: Final = "load"


def people(clients: int, browsers: int) -> None:
    """Make group, image and users; print, as JSON, the tokens of clients and the cookies of browsers."""
    ResourceGroup.objects.create(name=GROUP, open_to_all=True)
    image = Image.objects.create(environment="Python", version="3.13", reference="bench/python:3.13")
    policy = ResourcePolicy.objects.create(name="load", max_lifetime=timedelta(days=7))
    users = [
        User.objects.create_user(f"user{n}@example.org", policy=policy, is_superuser=n % SUPERADMINS_EVERY == 0)
        for n in range(USERS)
    ]
    ordinary = [user for user in users if not user.is_superuser]
    with transaction.atomic():
        tokens = [ApiToken.objects.issue(ordinary[n % len(ordinary)])[1] for n in range(clients)]
        cookies = [sign_in(users[n % len(users)]) for n in range(browsers)]
    print(json.dumps({"tokens": tokens, "cookies": cookies, "image": image.reference}))


def sessions(count: int, terminals: int, owners: int = USERS) -> None:
    """Let sessions hold each GPU of the hosts, and the rest of `count` wait; print logins and ids for terminals."""
    users = list(User.objects.filter(is_superuser=False).order_by("pk")[:owners])
    image, group = Image.objects.get(), ResourceGroup.objects.get(name=GROUP)
    Host.objects.update(status=HostStatus.JOINING.value)  # until they are started again
    gpus = list(Gpu.objects.select_related("host").order_by("host_id", "index"))[:count]
    now = timezone.now()
    made, leases, shares = [], [], []
    for number in range(count):
        gpu = gpus[number] if number < len(gpus) else None
        session = Session(
            name=f"load-{number:05}",
            owner=users[number % len(users)],
            image=image,
            resource_group=group,
            host=gpu.host if gpu else None,
            status=(Status.RUNNING if gpu else Status.PENDING).value,
            reason=(Reason.STARTED if gpu else Reason.SUBMITTED).value,
            cpu=1,
            memory=2 * GIB,
            shared_memory=64 * MIB,
            fgpu=1000,
            created_at=now - timedelta(hours=1) + timedelta(milliseconds=number),
            started_at=now - timedelta(minutes=30) if gpu else None,
            container_id=f"{number:064x}" if gpu else "",
            attempt=1 if gpu else 0,
        )
        made.append(session)
        if gpu:
            leases.append(Lease(session=session, host=gpu.host, cpu=1, memory=2 * GIB))
            shares.append(GpuShare(lease_id=session.pk, gpu=gpu, milli=1000))
    with transaction.atomic():
        Session.objects.bulk_create(made, batch_size=1000)
        Lease.objects.bulk_create(leases, batch_size=1000)
        GpuShare.objects.bulk_create(shares, batch_size=1000)
        SessionEvent.objects.bulk_create(
            SessionEvent(session=each, at=each.created_at, new_status=each.status, reason=each.reason) for each in made
        )
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    opened = made[: min(terminals, len(gpus))]
    print(json.dumps([(sign_in(each.owner), each.pk) for each in opened]))
