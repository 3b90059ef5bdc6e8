"""Fills the database of the settings, which must be empty, with hosts, users and sessions in every state."""

import json
from datetime import timedelta
from random import Random
from typing import Any, Final

from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.db import connection, transaction
from django.utils import timezone

from accounts.models import ApiToken, ResourcePolicy, User
from resources.amounts.units import GIB, MIB
from resources.models import Gpu, Host, HostStatus, Image, ResourceGroup
from sessions.lifecycle import Reason, Status
from sessions.models import GpuShare, Lease, Session, SessionEvent, SessionUsage

USERS: Final = 100
GPUS: Final = 4  # of each host
RUNNING: Final = 0.3  # parts of the sessions
PENDING: Final = 0.02
FAILED: Final = 0.03


def main(hosts: int, sessions: int) -> None:
    """Fill the database and print, as JSON, cookies and tokens of an administrator and a user, and what they see."""
    random = Random(1)
    users = _users()
    group = ResourceGroup.objects.create(name="lab", fgpu_per_gpu=2, open_to_all=True)
    machines = _hosts(group, hosts)
    images = Image.objects.bulk_create(
        Image(environment=name, version=f"3.{number}", reference=f"bench/{name.lower()}:3.{number}")
        for name in ("Python", "PyTorch", "TensorFlow")
        for number in range(4)
    )
    with transaction.atomic():
        made = _sessions(random, users, images, machines, sessions)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    running = next(session for session in made if session.status == Status.RUNNING and session.owner == users[1])
    cookies = {"administrator": sign_in(users[0]), "user": sign_in(users[1])}
    tokens = {name: ApiToken.objects.issue(user)[1] for name, user in zip(cookies, users, strict=False)}
    facts = {"session": running.pk, "name": running.name, "image": images[0].reference}
    print(json.dumps({"cookies": cookies, "tokens": tokens, **facts}))


def _users() -> list[User]:
    policy = ResourcePolicy.objects.create(name="bench", max_lifetime=timedelta(days=7))
    admin = User.objects.create_superuser("admin@example.org", policy=policy)
    return [admin, *(User.objects.create_user(f"user{number}@example.org", policy=policy) for number in range(USERS))]


def _hosts(group: ResourceGroup, count: int) -> list[tuple[Host, list[Gpu]]]:
    ready = HostStatus.READY.value
    hosts = Host.objects.bulk_create(
        Host(name=f"gpu-{number:04}", group=group, status=ready, cpu=64, memory=512 * GIB) for number in range(count)
    )
    gpus = Gpu.objects.bulk_create(
        Gpu(host=host, uuid=f"GPU-{host.name}-{index}", index=index, name="NVIDIA A100", memory=80 * GIB)
        for host in hosts
        for index in range(GPUS)
    )
    return [(host, gpus[number * GPUS : number * GPUS + GPUS]) for number, host in enumerate(hosts)]


def _sessions(
    random: Random, users: list[User], images: list[Image], machines: list[tuple[Host, list[Gpu]]], count: int
) -> list[Session]:
    """Return the sessions, those that run with a lease of one core and half a GPU each."""
    running, pending, failed = (int(count * part) for part in (RUNNING, PENDING, FAILED))
    status_of = {
        **dict.fromkeys(range(running), (Status.RUNNING, Reason.STARTED)),
        **dict.fromkeys(range(running, running + pending), (Status.PENDING, Reason.NO_CAPACITY)),
        **dict.fromkeys(range(running + pending, running + pending + failed), (Status.ERROR, Reason.OUT_OF_MEMORY)),
    }
    now = timezone.now()
    made, leases, shares = [], [], []
    for number in range(count):
        status, reason = status_of.get(number, (Status.TERMINATED, Reason.USER_REQUEST))
        host, gpus = machines[number % len(machines)]
        session = _session(random, now, status, reason)
        session.name, session.owner = f"train-{number:05}", users[number % len(users)]
        session.image, session.resource_group = random.choice(images), host.group
        if status is not Status.PENDING:
            session.host = host
        if status is Status.RUNNING:
            leases.append(Lease(session=session, host=host, cpu=session.cpu, memory=session.memory))
            gpu = gpus[number // len(machines) % len(gpus)]
            shares.append(GpuShare(lease_id=session.pk, gpu=gpu, milli=session.fgpu))
        made.append(session)
    Session.objects.bulk_create(made, batch_size=1000)
    Lease.objects.bulk_create(leases)
    GpuShare.objects.bulk_create(shares)
    SessionEvent.objects.bulk_create(
        SessionEvent(session=each, at=each.created_at, new_status=each.status, reason=each.reason) for each in made
    )
    SessionUsage.objects.bulk_create(
        SessionUsage(
            session_id=lease.session_id,
            at=now + timedelta(hours=1),
            cpu_milli=400,
            memory=GIB,
            gpu_memory=GIB,
            gpu_utilisation=20,
        )
        for lease in leases  # in the future, so that they stay fresh
    )
    return made


def _session(random: Random, now: Any, status: Status, reason: Reason) -> Session:
    created = now - timedelta(minutes=random.randint(1, 20_000))
    is_over = status in (Status.TERMINATED, Status.ERROR)
    return Session(
        status=status.value,
        reason=reason.value,
        cpu=1,
        memory=2 * GIB,
        shared_memory=64 * MIB,
        fgpu=500,
        created_at=created,
        started_at=None if status is Status.PENDING else created + timedelta(seconds=2),
        ended_at=created + timedelta(minutes=30) if is_over else None,
        container_id=f"bench-{random.random()}" if status is Status.RUNNING else "",
    )


def sign_in(user: User) -> str:
    """Return the cookie's value of a login session."""
    login = SessionStore()
    login[SESSION_KEY] = str(user.pk)
    login[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    login[HASH_SESSION_KEY] = user.get_session_auth_hash()
    login.create()
    return str(login.session_key)
