"""The cached state of a process equals what it would read, whatever others have committed meanwhile.

Seen to fail under these faults, planted in the product: a start time, or a GPU that goes, is not
noted; texts that another scheduler has written are not noted; notes are read from the youngest transaction on instead
of the oldest that is open; unconfirmed decisions are not read again; texts that this process has written are read;
a session that another process starts between the queries of a read is taken to wait, too.
"""

import gc
import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from folders.models import HostRoot
from resources.amounts.units import GIB
from resources.gpus.tiers import Tier
from resources.models import Gpu, Host, HostImage, ResourceGroup
from scheduler.core.types import RunningSession
from scheduler.cycle import passes
from scheduler.snapshot import queue as snapshot
from scheduler.snapshot.cluster import running_sessions
from scheduler.state import cache as state_cache
from scheduler.state.cache import GroupCaches, StateCache
from scheduler.state.scheduler_state import SchedulerState
from sessions.launching import services
from sessions.lifecycle import HOSTED, Reason, Status
from sessions.models import Session
from tests.factories import (
    make_group,
    make_host,
    make_image,
    make_policy,
    make_root,
    make_session,
    make_user,
    run_session,
)
from tests.wait import SECONDS

MINUTE = timedelta(minutes=1)
pytestmark = pytest.mark.django_db(
    transaction=True
)  # notes are read once, and again until their writer is known to be done


def known(state: SchedulerState) -> dict[str, Any]:
    """Return the content of a state in a form that does not depend on how it came about."""
    cluster = state.incremental.cluster
    return {
        "waiting": {name: (session.request, *session[1:]) for name, session in state.waiting.items()},
        "queue": set(state.incremental.requests),
        "running": {
            one.session_id: one._replace(shares=tuple(sorted(one.shares))) for one in cluster.running_sessions()
        },
        "hosts": {
            host.host_id: (
                host.cpu,
                host.memory_bytes,
                host.device_free,
                host.max_request_milli,
                host.granularity_milli,
                host.traits,
            )
            for group in cluster.groups.values()
            for host in group.capacity.hosts
        },
        "closed": cluster.closed_groups,
        "traits": (state.offered, cluster.trait_names),
        "ends": {group_id: [end[:2] for end in group.ends] for group_id, group in cluster.groups.items()},
        "limits": {
            session.request.owner_id: [
                (limits.cpu, limits.memory_bytes, limits.fgpu_milli, limits.sessions, limits.limits)
                for limits in cluster.limits.of(session.request.owner_id, None)
            ]
            for session in state.waiting.values()
        },
    }


def check() -> None:
    """Compare the cached state, brought up to date, with one read afresh."""
    now = timezone.now()
    for group_id in passes.group_ids():
        cache = passes.caches.of(group_id)
        state, afresh = cache.take(now), SchedulerState(snapshot.load(now, group_id))
        for known_state in (state, afresh):
            known_state.incremental.cluster.clear_reservations()
            known_state.enqueue_due(now)
        assert known(state) == known(afresh)
        cache.put_back(state)


def written(session: Session, group_id: int) -> str:
    """Return why the session waits in a group, as it is stored."""
    waits = session.group_waits
    return str(waits[str(group_id)]["detail"]) if session.group_choices else session.detail


class Lab:
    """A small platform on which random events happen."""

    def __init__(self, random: Random, soon: timedelta) -> None:
        self.random = random
        self.soon = soon  # within which sessions may ask to start
        self.groups = [make_group(), make_group(queue_order="fair")]
        self.hosts = [make_host(group=group, gpus=2, cpu=6) for group in self.groups for _ in range(2)]
        self.users = [make_user(), make_user(policy=make_policy(max_sessions=3, max_lifetime=60 * MINUTE))]
        self.images = [make_image(), make_image(architecture="arm64"), make_image(is_local=True)]
        self.roots = [make_root() for _ in range(2)]
        for host in self.hosts[::2]:
            HostRoot.objects.create(host=host, root=self.roots[0], is_present=True)

    def happen(self) -> None:
        name = self.random.choice(
            ["submit", "submit", "submit", "move", "move", "end", "edit", "host", "root", "image", "late", "say"]
        )
        getattr(self, name)()

    def submit(self) -> None:
        soon = timezone.now() + self.random.random() * self.soon
        session = make_session(
            owner=self.random.choice(self.users),
            image=self.random.choice(self.images),
            resource_group=self.random.choice(self.groups),
            group_choices=self.random.choice(
                [[], [], [group.pk for group in self.groups[:: self.random.choice((1, -1))]]]
            ),
            gpu_model=self.random.choice(["", "", "Simulated GPU", "Other GPU"]),
            min_gpu_memory=self.random.choice([0, 0, GIB, 6 * GIB]),
            cpu=self.random.randint(1, 3),
            fgpu=self.random.choice([0, 500, 1000, 2500]),
            priority=self.random.choice([10, 10, 11]),
            time_limit=self.random.choice([None, 5 * MINUTE]),
            not_before=self.random.choice([None, None, soon, soon + 60 * MINUTE]),
            required_roots=self.random.choice([[], [], [self.roots[0].pk], [self.roots[1].pk]]),
            wanted_roots=self.random.choice([[], [root.pk for root in self.roots]]),
        )
        others = list(Session.objects.exclude(pk=session.pk).order_by("?")[:1])
        session.depends_on.set(others if self.random.random() < 0.3 else [])

    def move(self) -> None:
        """Move a hosted session one status further."""
        steps = {Status.SCHEDULED: Status.PREPARING, Status.PREPARING: Status.RUNNING}
        session = Session.objects.filter(status__in=steps).order_by("?").first()
        if session is not None:
            session.move_to(steps[Status(session.status)], Reason.CLAIMED)

    def end(self) -> None:
        session = Session.objects.filter(status__in=(*HOSTED, Status.PENDING)).order_by("?").first()
        if session is not None and session.status == Status.RUNNING and self.random.random() < 0.7:
            session.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
        elif session is not None and session.status != Status.TERMINATING:
            services.terminate(session, actor=session.owner)

    def edit(self) -> None:
        """Change rows that a pass reads, by plain updates."""
        changes: dict[str, Any] = self.random.choice(
            [
                {"priority": 12},
                {"time_limit": 9 * MINUTE},
                {"extension": 3 * MINUTE},
                {"not_before": None},
                {"created_at": timezone.now() - MINUTE},
            ]
        )
        Session.objects.filter(pk__in=Session.objects.order_by("?").values("pk")[:2]).update(**changes)

    def host(self) -> None:
        changes: dict[str, Any] = self.random.choice([{"is_cordoned": True}, {"is_cordoned": False}, {"cpu": 7}])
        Host.objects.filter(pk=self.random.choice(self.hosts).pk).update(**changes)

    def root(self) -> None:
        """Let a storage root come to a host, or go from it."""
        host, root = self.random.choice(self.hosts), self.random.choice(self.roots)
        change = {"is_present": self.random.random() < 0.6, "checked_at": timezone.now()}
        HostRoot.objects.update_or_create(host=host, root=root, defaults=change)

    def image(self) -> None:
        """Let an image come to a host, or go from it; or the host tell its architecture."""
        host, image = self.random.choice(self.hosts), self.random.choice(self.images)
        if self.random.random() < 0.3:
            Host.objects.filter(pk=host.pk).update(architecture=self.random.choice(["amd64", "arm64"]))
        elif not HostImage.objects.filter(host=host, image=image).delete()[0]:
            HostImage.objects.create(host=host, image=image, size=1)

    def late(self) -> None:
        Session.objects.filter(started_at__isnull=False).update(started_at=timezone.now() - MINUTE)

    def say(self) -> None:
        """Let another scheduler write explanations."""
        Session.objects.filter(status=Status.PENDING).update(detail=f"Waiting for {self.random.random()}.")


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))])
def test_the_cached_state_equals_a_fresh_read(seed: int) -> None:
    random = Random(seed)
    lab = Lab(random, timedelta(milliseconds=50))
    for _ in range(40):
        for _ in range(random.randint(0, 4)):
            lab.happen()
        check()
        if random.random() < 0.5:
            passes.run_pass()
            check()


@pytest.mark.parametrize("seed", range(3))
def test_two_schedulers_write_what_a_full_reload_would(seed: int) -> None:
    random = Random(100 + seed)
    lab, caches = Lab(random, timedelta(0)), [GroupCaches(), GroupCaches()]
    for _ in range(30):
        for _ in range(random.randint(0, 3)):
            lab.happen()
        passes.caches = random.choice(caches)
        for _ in range(2):  # a group comes after those that a session prefers
            passes.run_pass()
        waiting = {session.pk: session for session in Session.objects.filter(status=Status.PENDING)}
        for group_id in passes.group_ids():
            state = SchedulerState(snapshot.load(timezone.now(), group_id))
            assert state.serve(timezone.now()) == []
            assert [
                status
                for status in state.update_wait_statuses(timezone.now(), None)
                if status.detail != written(waiting[status.session_id], group_id)
            ] == []


@pytest.mark.parametrize("is_known", [False, True])
def test_a_start_during_a_read_is_no_second_one(is_known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    host = make_host(gpus=1)
    cache = StateCache()
    if is_known:
        cache.put_back(cache.take(timezone.now()))
    session = make_session(
        resource_group=host.group, owner=make_user(policy=make_policy(max_lifetime=MINUTE)), fgpu=500
    )

    def started_before(ids: Collection[str] | None) -> list[RunningSession]:
        monkeypatch.undo()
        passes.run_pass()
        return running_sessions(ids)

    monkeypatch.setattr(snapshot, "running_sessions", started_before)
    state = cache.take(timezone.now())
    assert state.serve(timezone.now()) == []
    assert session.pk not in state.waiting
    assert [one.session_id for one in state.incremental.cluster.running_sessions()] == [session.pk]


def test_a_late_commit_is_not_missed() -> None:
    host, owner, image = make_host(cpu=4), make_user(), make_image()
    written, may_commit = threading.Event(), threading.Event()

    def submit_slowly() -> None:
        try:
            with transaction.atomic():
                make_session(resource_group=host.group, owner=owner, image=image, cpu=3)
                written.set()
                assert may_commit.wait(SECONDS)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(submit_slowly)
        assert written.wait(SECONDS)
        make_session(resource_group=host.group, owner=owner, image=image)  # a younger transaction, which commits first
        assert passes.run_pass() == 1
        assert passes.run_pass() == 0
        may_commit.set()
        slow.result(SECONDS)
    assert passes.run_pass() == 1


def test_unwritten_decisions_are_dropped() -> None:
    host = make_host(cpu=4)
    passes.run_pass()
    session = make_session(resource_group=host.group, cpu=3)
    now = timezone.now()
    cache = passes.caches.of(host.group_id)
    state = cache.take(now)
    assert [placement.session_id for placement in state.serve(now)] == [session.pk]
    cache.put_back(state)
    check()
    assert passes.run_pass() == 1


def test_a_dependent_session_is_reconsidered_on_success() -> None:
    host = make_host(cpu=4)
    first = run_session(host=host)
    second = make_session(resource_group=host.group)
    second.depends_on.set([first])
    assert [passes.run_pass(), passes.run_pass()] == [0, 0]
    first.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
    assert passes.run_pass() == 1


def test_the_reason_changes_when_a_limit_no_longer_applies() -> None:
    owner, host = make_user(policy=make_policy(max_sessions=1)), make_host(cpu=1)
    first = run_session(owner=owner)
    run_session(host=host)
    second = make_session(owner=owner, resource_group=host.group)
    passes.run_pass()
    second.refresh_from_db()
    assert second.reason == Reason.USER_LIMIT
    passes.run_pass()
    first.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
    passes.run_pass()
    second.refresh_from_db()
    assert second.reason == Reason.NO_CAPACITY


def test_explanations_change_when_more_is_free_but_not_enough() -> None:
    host = make_host(cpu=4)
    small = run_session(host=host)
    run_session(host=host, cpu=3)
    waiting = make_session(resource_group=host.group, cpu=4)
    assert [passes.run_pass(), passes.run_pass()] == [0, 0]
    small.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
    passes.run_pass()
    waiting.refresh_from_db()
    assert waiting.detail == "Waiting for 4 CPU cores on one host: at most 1 is free."


def test_a_failed_pass_drops_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    host = make_host(cpu=4)
    passes.run_pass()
    session = make_session(resource_group=host.group, cpu=3)
    assign = services.assign
    with monkeypatch.context() as broken:
        broken.setattr(services, "assign", lambda *decided: assign(*decided) / 0)
        with pytest.raises(ZeroDivisionError):
            passes.run_pass()
    session.refresh_from_db()
    assert session.status == Status.PENDING
    assert passes.run_pass() == 1


@pytest.mark.parametrize("change", ["host", "gpu", "tier", "group", "limit", "policy"])
def test_changed_hosts_and_policies_are_reloaded(change: str) -> None:
    owner, host = make_user(policy=make_policy(cpu=2)), make_host(cpu=2, gpus=1)
    session = make_session(owner=owner, resource_group=host.group, cpu=2, fgpu=2500)
    passes.run_pass()
    check()
    if change == "host":
        Host.objects.update(memory=2 * GIB)
    elif change == "gpu":
        Gpu.objects.update(is_present=False)
    elif change == "tier":
        Gpu.objects.update(tier=Tier.NONE)
    elif change == "group":
        ResourceGroup.objects.update(fgpu_per_gpu=3)
    elif change == "limit":
        type(owner.policy).objects.update(cpu=1)
    else:
        owner.policy = make_policy(cpu=1)
        owner.save()
    check()
    passes.run_pass()
    assert Session.objects.get(pk=session.pk).status == (Status.SCHEDULED if change == "group" else Status.PENDING)


def test_a_pass_without_changes_by_others_reads_no_sessions(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    host = make_host(cpu=1)
    for _ in range(3):
        make_session(resource_group=host.group)
    passes.run_pass()
    make_session(resource_group=host.group)
    passes.run_pass()  # writes why it waits, which is not read
    with django_assert_num_queries(7):
        passes.run_pass()


def test_only_old_change_notes_are_deleted() -> None:
    def notes() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM compute_change")
            return int(cursor.fetchone()[0])

    make_session()
    passes.run_pass()
    assert notes() > 0
    with connection.cursor() as cursor:
        cursor.execute("UPDATE compute_change SET at = at - interval '1 hour'")
    passes.caches.clear()
    passes.run_pass()
    assert notes() == 0


def test_a_large_state_is_exempt_from_garbage_collection_until_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_cache, "MIN_FROZEN_SIZE", 1)
    cache, frozen = StateCache(), gc.get_freeze_count()
    make_session()
    cache.put_back(cache.take(timezone.now()))
    assert gc.get_freeze_count() > frozen
    Session.objects.all().delete()
    cache.clear()
    cache.take(timezone.now())
    assert gc.get_freeze_count() == 0
