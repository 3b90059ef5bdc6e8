"""Times whole passes on the database of the settings, which must be empty; see bench/database.py."""

import gc
import json
import statistics
import time
from collections.abc import Callable
from itertools import count
from random import Random

from django.db import connection, transaction

from accounts.models import ResourcePolicy, User
from bench.sizes import size
from bench.worlds import OWNERS, shapes
from messaging.background import finish_all
from resources.amounts.units import GIB, MIB
from resources.models import Gpu, Host, HostStatus, Image, ResourceGroup
from scheduler.advice.estimate import estimate
from scheduler.cycle import passes
from sessions.launching.services import LaunchRequest
from sessions.lifecycle import Reason, Status
from sessions.models import Session

RELEASES = size(15, 2)


def main(hosts: int, waiting: int) -> None:
    """Measure, print progress, and print one JSON object as the last line."""
    populate(hosts)
    submit(waiting, seed=1)
    vacuum()
    placed, first, explained = timed_pass()
    print(f"first pass over {hosts} x {waiting}: {placed} placed in {first:.3f} s, explained after {explained:.3f} s")
    vacuum()  # tens of thousands of leases are new: without statistics the next read of them is planned badly
    seeds = count(2)
    while missing := waiting - Session.objects.filter(status=Status.PENDING).count():
        submit(missing, seed=next(seeds))
        passes.run_pass()
        vacuum()
    vacuum()
    passes.run_pass()
    still = timed(passes.run_pass)
    found = []
    for number in range(RELEASES):
        release(number)
        found.append(timed_pass()[1:])
    print(f"without changes: {still:.4f} s; after a release: {', '.join(f'{seconds:.4f}' for seconds, _ in found)} s")
    group, image, owner = ResourceGroup.objects.get(), Image.objects.get(), User.objects.all()[0]
    order = LaunchRequest(image=image, resource_group=group, cpu=4, memory=8 * GIB, shared_memory=64 * MIB, fgpu=500)
    unknown = timed(lambda: estimate(owner, order))
    advised = min(timed(lambda: estimate(owner, order)) for _ in range(5))
    figures = {
        "db_pass_seconds": round(first, 3),
        "db_pass_and_words_seconds": round(explained, 3),
        "db_pass_standing_still_seconds": round(still, 4),
        "db_pass_after_release_seconds": round(statistics.median(committed for committed, _ in found), 4),
        "db_pass_after_release_worst_seconds": round(max(committed for committed, _ in found), 4),
        "db_pass_after_release_and_words_seconds": round(statistics.median(explained for _, explained in found), 4),
        "db_estimate_first_seconds": round(unknown, 4),  # the first answer of a process reads everything
        "db_estimate_seconds": round(advised, 4),
    }
    finish_all()  # messages to browsers of thousands of sessions, which need threads
    print(json.dumps(figures))


def timed_pass() -> tuple[int, float, float]:
    """Return the number placed, and the seconds until the placements and the explanations were committed."""
    gc.collect()
    begun = time.perf_counter()
    (group_id,) = passes.group_ids()
    state, placed, now = passes.place(group_id)
    committed = time.perf_counter()
    passes.explain(group_id, state, now)
    return placed, committed - begun, time.perf_counter() - begun


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    gc.collect()
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def populate(hosts: int) -> None:
    """Create `hosts` ready hosts of 8 GPUs, and users without limits."""
    policy = ResourcePolicy.objects.create(name="unlimited")
    User.objects.bulk_create(User(email=f"user{number}@example.org", policy=policy) for number in range(OWNERS))
    group = ResourceGroup.objects.create(name="all", open_to_all=True)
    Image.objects.create(environment="Python", version="3", reference="example/python:3")
    rows = Host.objects.bulk_create(
        Host(name=f"host-{number:05}", group=group, status=HostStatus.READY, cpu=128, memory=1024 * GIB)
        for number in range(hosts)
    )
    Gpu.objects.bulk_create(
        Gpu(uuid=f"GPU-{host.pk}-{index}", host=host, index=index, name="A", memory=80 * GIB)
        for host in rows
        for index in range(8)
    )


def submit(number_of_sessions: int, seed: int) -> None:
    """Create this many waiting sessions of 200 shapes, with names that depend on the seed."""
    random = Random(seed)
    mix = shapes(Random(1))
    owners = list(User.objects.values_list("pk", flat=True))
    group, image = ResourceGroup.objects.get(), Image.objects.get()
    sessions = []
    for number in range(number_of_sessions):
        shape = random.choice(mix)
        fields = {"cpu": shape.cpu, "memory": shape.memory_bytes, "fgpu": shape.fgpu_milli, "shared_memory": 64 * MIB}
        name = f"session-{seed}-{number}"
        owner = random.choice(owners)
        sessions.append(Session(owner_id=owner, name=name, image=image, resource_group=group, **fields))
    Session.objects.bulk_create(sessions)


def release(number: int) -> None:
    """End one session that holds a lease, as its host worker would."""
    with transaction.atomic():
        scheduled = Session.objects.filter(status=Status.SCHEDULED).order_by("pk")
        session = scheduled[37 * number % scheduled.count()]
        session.move_to(Status.CANCELLED, Reason.USER_REQUEST)


def vacuum() -> None:
    """Vacuum and analyze the tables, as the server's autovacuum does in time."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
