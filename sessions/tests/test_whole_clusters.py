"""What is done with a session is done with all members of its cluster, by the id of any of them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import Q
from django.test import Client
from django.utils import timezone

from accounts.models import User
from resources.kick import clear_kick
from resources.models import Host
from sessions.clusters import settling
from sessions.drains import services as drains
from sessions.errors import RejectedError
from sessions.extensions import services as extensions
from sessions.launching import services
from sessions.lifecycle import DependencyKind, Kind, Reason, Status
from sessions.limits.policy_use import use_by
from sessions.models import Cluster, Session, SessionEvent, end_expression, is_met
from sessions.requeueing import preemption
from sessions.requeueing import requests as requeue
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize
from sessions.sweeps import enforce_deadlines
from sessions.tests.launch_requests import make_launch_request, rejection
from sessions.usage.report import ReportBy, report_of
from tests.api import client_of
from tests.factories import (
    make_cluster,
    make_group,
    make_host,
    make_policy,
    make_user,
    run_cluster,
    run_session,
    scheduled_cluster,
    session_in,
)
from tests.invariants import broken_amounts, half_clusters
from tests.queues import take_all

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture
def owner() -> User:
    return make_user(policy=make_policy(max_lifetime=4 * HOUR, max_extension=2 * HOUR))


def values(members: list[Session], name: str) -> list[Any]:
    """Return a field of each member as it is stored, by rank."""
    return list(members[0].members.values_list(name, flat=True))


def test_an_extension_is_of_all_members(owner: User) -> None:
    members = run_cluster(owner=owner)
    extended = extensions.extend(members[2].pk, HOUR, actor=owner)
    assert values(members, "extension") == [HOUR] * 3
    assert extended == members[0]
    assert members[0].events.filter(reason=Reason.EXTENDED).count() == 1
    assert not members[2].events.filter(reason=Reason.EXTENDED).exists()


def test_a_drained_member_fixes_the_end_of_all(owner: User) -> None:
    hosts = [make_host(), make_host(is_cordoned=True, drain_by=timezone.now() + HOUR)]
    hosts[1].group = hosts[0].group
    hosts[1].save()
    members = run_cluster(owner=owner, hosts=hosts)
    head = Session.objects.get(pk=members[0].pk)
    assert extensions.allowed(head, make_user(is_superuser=True)) == timedelta(0)
    with pytest.raises(RejectedError, match="out of service"):
        extensions.extend(head.pk, HOUR, actor=owner)


def test_all_members_have_one_name(owner: User) -> None:
    members = run_cluster(owner=owner)
    services.rename(members[1], "training", actor=owner)
    assert values(members, "name") == ["training"] * 3
    assert members[0].events.get(reason=Reason.RENAMED)
    assert [member.full_name for member in members[0].members] == ["training", "training.sub1", "training.sub2"]
    run_session(owner=owner, name="another")
    with pytest.raises(RejectedError, match="another already"):
        services.rename(members[0], "another", actor=owner)
    assert values(members, "name") == ["training"] * 3


def test_a_forced_end_frees_all_members(owner: User) -> None:
    members = run_cluster(owner=owner)
    services.force_end(members[1], actor=make_user(is_superuser=True))
    assert set(values(members, "status")) == {Status.TERMINATED}
    assert not Session.objects.filter(lease__isnull=False).exists()


def test_all_members_ask_for_less_while_they_wait(owner: User) -> None:
    members = make_cluster(owner=owner, cpu=4, fgpu=4000)
    resizing.resize(members[2], SessionSize(cpu=2, memory=members[0].memory, fgpu=2000), actor=owner)
    assert values(members, "cpu") == [2] * 3
    assert values(members, "fgpu") == [2000] * 3
    with pytest.raises(RejectedError, match="one GPU, or whole GPUs"):
        resizing.resize(make_cluster(fgpu=4000)[0], SessionSize(cpu=1, memory=2**30, fgpu=3000), actor=owner)


def test_a_requeue_is_of_the_first_member(owner: User) -> None:
    members = run_cluster(owner=owner, kind=Kind.BATCH.value, command="train")
    requeue.requeue(members[2], actor=make_user(is_superuser=True))
    head = Session.objects.get(pk=members[0].pk)
    assert (head.status, head.reason) == (Status.TERMINATING, Reason.REQUEUED)
    interactive = run_cluster()
    with pytest.raises(RejectedError, match="Only a batch session"):
        requeue.requeue(interactive[1], actor=owner)


def test_no_requeue_once_a_member_has_ended(owner: User) -> None:
    members = run_cluster(runs_on_all=True, kind=Kind.BATCH.value, command="train")
    members[1].move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
    with pytest.raises(RejectedError, match="A member of it has ended"):
        requeue.requeue(members[0], actor=owner)


def test_all_members_end_at_one_time_from_the_last_start(owner: User) -> None:
    members = run_cluster(owner=owner)
    deadline = values(members, "start_by")[0]
    assert {*values(members, "started_at")} != {deadline}
    assert {member.ends_at for member in members[0].members} == {deadline + 4 * HOUR}
    changes = newest_change()
    settling.settle_all()
    last = max(values(members, "started_at"))
    assert last < deadline
    assert {member.ends_at for member in members[0].members} == {last + 4 * HOUR}
    assert set(members[0].members.values_list(end_expression(), flat=True)) == {last + 4 * HOUR}
    assert newest_change() > changes, "schedulers read its end again"
    Session.objects.update(start_by=deadline - 5 * HOUR)
    enforce_deadlines()
    assert set(values(members, "reason")) == {Reason.LIFETIME}


def test_one_that_returns_starts_anew(owner: User) -> None:
    members = run_cluster(owner=owner)
    settling.settle_all()
    Cluster.objects.update(host_addresses=["192.0.2.1"] * 3)
    members[1].move_to(Status.TERMINATING, Reason.CLUSTER_RETURNED)
    settling.settle_all()
    for member in members[0].members:
        preemption.conclude(member)
    settling.settle_all()
    assert set(values(members, "status")) == {Status.PENDING}
    assert (set(values(members, "start_by")), Cluster.objects.get().started_at) == ({None}, None)


def test_a_dependent_waits_for_each_that_runs_the_command(owner: User) -> None:
    batch: dict[str, Any] = {"owner": owner, "kind": Kind.BATCH.value, "command": "train"}
    members, alone = make_cluster(runs_on_all=True, **batch), make_cluster(**batch)
    host = make_host()
    waits = make_launch_request(host, depends_on=dict.fromkeys([members[0], alone[0]], DependencyKind.AFTER_OK))
    (dependent,) = services.submit(owner, waits)
    assert set(dependent.depends_on.all()) == {*members, alone[0]}
    shown = client_of(owner).get(f"/api/v1/sessions/{dependent.pk}/").json()
    assert shown["depends_on"] == sorted([members[0].pk, alone[0].pk])
    members[1].move_to(Status.CANCELLED, Reason.ADMIN_REQUEST)
    assert "has ended without success" in rejection(owner, waits)["depends_on"]
    enforce_deadlines()
    dependent.refresh_from_db()
    assert (dependent.status, dependent.reason) == (Status.CANCELLED, Reason.DEPENDENCY_FAILED)


def test_a_cluster_has_failed_once_all_ended_and_one_failed(owner: User) -> None:
    members = make_cluster(runs_on_all=True, owner=owner, kind=Kind.BATCH.value, command="train")
    kinds = [DependencyKind.AFTER_NOT_OK, DependencyKind.AFTER_ANY]
    host = make_host()
    mends, last = (
        services.submit(owner, make_launch_request(host, depends_on={members[0]: kind}))[0] for kind in kinds
    )

    def became(*statuses: Status) -> list[str | int]:
        for member, status in zip(members, statuses, strict=True):
            result = {Status.TERMINATED: "SUCCESS", Status.CANCELLED: "FAILURE"}.get(status, "")
            ended_at = timezone.now() if result else None
            Session.objects.filter(pk=member.pk).update(status=status, result=result, ended_at=ended_at)
        return [
            "met"
            if each.dependencies.filter(is_met()).count() == len(members)
            else each.dependencies.impossible().count()
            for each in (mends, last)
        ]

    ended, failed, waits = Status.TERMINATED, Status.CANCELLED, Status.PENDING
    rest = [ended] * (len(members) - 2)
    assert became(ended, waits, *rest) == [0, 0]
    assert became(failed, waits, *rest) == [0, 0]
    assert became(ended, failed, *rest) == ["met", "met"]
    assert became(ended, ended, *rest) == [len(members), "met"]


def test_a_cluster_that_waits_too_long_is_cancelled_whole(owner: User) -> None:
    group = make_group(pending_timeout=HOUR)
    members = make_cluster(owner=owner, resource_group=group)
    Session.objects.filter(rank__gt=0).update(status_at=timezone.now() - 2 * HOUR)
    enforce_deadlines()
    assert set(values(members, "status")) == {Status.PENDING}
    Session.objects.update(status_at=timezone.now() - 2 * HOUR)
    enforce_deadlines()
    settling.settle_all()
    assert values(members, "reason") == [Reason.PENDING_TIMEOUT, Reason.CLUSTER_ENDED, Reason.CLUSTER_ENDED]


def on_two_hosts(owner: User) -> list[Session]:
    """Return the members of a cluster: the first and the last on one host, the other on another."""
    first = make_host()
    return run_cluster(owner=owner, hosts=[first, make_host(group=first.group)])


def test_the_drain_of_one_host_ends_the_whole(owner: User) -> None:
    members = on_two_hosts(owner)
    host = members[1].host
    assert host
    at = timezone.now() + HOUR
    assert drains.drain(host, end_at=at, reason="new GPUs", actor=make_user(is_superuser=True)) == [members[1]]
    told = members[0].events.get(reason=Reason.HOST_DRAINED)
    assert told.detail.startswith(f"The host {host} of its cluster is taken out of service (new GPUs)")
    Host.objects.filter(pk=host.pk).update(drain_by=timezone.now())
    enforce_deadlines()
    settling.settle_all()
    ended = [Reason.CLUSTER_ENDED, Reason.HOST_DRAINED, Reason.CLUSTER_ENDED]
    assert (values(members, "reason"), set(values(members, "status"))) == (ended, {Status.TERMINATING})


def test_a_lost_host_ends_the_whole(owner: User) -> None:
    members = on_two_hosts(owner)
    host = members[1].host
    assert host
    Host.objects.filter(pk=host.pk).update(status="LOST", lost_at=timezone.now() - HOUR)
    enforce_deadlines()
    settling.settle_all()
    assert values(members, "status") == [Status.TERMINATING, Status.ERROR, Status.TERMINATING]
    assert half_clusters()
    for member in members[0].members.filter(status=Status.TERMINATING):
        preemption.conclude(member)
    settling.settle_all()
    assert half_clusters() == []
    assert broken_amounts() == []


def test_every_member_counts_in_limits_and_reports(owner: User) -> None:
    members = run_cluster(owner=owner, cpu=2, fgpu=500)
    make_cluster(2, owner=owner)
    used = client_of(owner).get("/api/v1/me/limits/").json()["used"]
    assert (used["cpu"], used["fgpu"], used["sessions"], used["pending"]) == (6, "1.5", 3, 2)
    assert use_by("owner", owner=owner)["max_sessions"] == {owner.pk: 3}
    now = timezone.now()
    SessionEvent.objects.filter(session__in=members).update(at=now - HOUR)
    report = report_of(Q(owner=owner), now.date(), now.date(), ReportBy.USER, now)
    assert report.sessions == 5
    assert report.total.cpu_hours > 0
    assert report.total.gpu_hours == pytest.approx(report.total.cpu_hours * 3 * 0.25 / 6)


def test_the_administration_does_once_what_is_of_the_whole(owner: User) -> None:
    members, admin = run_cluster(owner=owner, name="train"), make_user(is_superuser=True)
    client = Client()
    client.force_login(admin)
    url = "/admin/compute/session/"
    page = client.get(url, {"cluster__isempty": "0"}).content.decode()
    assert [name in page for name in ("train.sub1", "train.sub2")] == [True, True]
    assert client.get(url, {"q": members[0].pk}).context["cl"].result_count == 3
    chosen = {"_selected_action": [member.pk for member in members]}
    client.post(url, {**chosen, "action": "extend", "minutes": "60"})
    assert values(members, "extension") == [HOUR] * 3
    confirm = client.post(url, {**chosen, "action": "end"})
    assert "With one member of a cluster all its others end." in confirm.content.decode()


def newest_change() -> int:
    """Return the number of changes that schedulers are told of."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM compute_change")
        return int(cursor.fetchone()[0])


def test_single_sessions_are_their_own_whole() -> None:
    session = session_in(Status.PENDING)
    assert (list(session.members), session.main, session.full_name) == ([session], session, session.name)


def test_the_scheduler_is_asked_as_the_last_member_runs(
    django_capture_on_commit_callbacks: Callable[..., AbstractContextManager[object]],
) -> None:
    members = scheduled_cluster(*[make_host(group=make_group())] * 2)
    for member in members:
        member.move_to(Status.PREPARING, Reason.CLAIMED)
    asked = []
    for member in members:
        clear_kick()
        take_all("scheduler")
        with django_capture_on_commit_callbacks(execute=True):
            member.move_to(Status.RUNNING, Reason.STARTED)
        asked.append([name for name, _ in take_all("scheduler")])
    assert asked == [[], ["scheduler.tasks.run_pass"]]
