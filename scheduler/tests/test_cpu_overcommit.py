"""Groups that overcommit CPU: of a host, sessions take what is guaranteed to them; limits count what they asked for."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from resources.models import Host, ResourceGroup
from scheduler.advice import estimate
from scheduler.cycle import passes
from scheduler.snapshot import queue as snapshot
from sessions.errors import RejectedError
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import FairUse, Lease, Session
from sessions.requeueing import requests
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize
from sessions.tests.launch_requests import make_launch_request
from tests.factories import make_group, make_host, make_policy, make_session, make_user, run_session, session_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def host() -> Host:
    """A host of 4 cores, of whose group each core of a session guarantees a quarter."""
    return make_host(group=make_group(cpu_overcommit=Decimal(4)), cpu=4)


def change_factor(group: ResourceGroup, factor: str) -> None:
    ResourceGroup.objects.filter(pk=group.pk).update(cpu_overcommit=Decimal(factor))


def placed() -> list[Session]:
    return list(Session.objects.filter(status=Status.SCHEDULED).order_by("created_at", "id"))


def test_sessions_fill_a_host_by_their_guarantees(host: Host) -> None:
    sessions = [make_session(resource_group=host.group, cpu=4) for _ in range(5)]
    assert passes.run_pass() == 4
    assert [session.cpu_guaranteed_milli for session in placed()] == [1000] * 4
    assert set(Lease.objects.values_list("cpu", "core_milli")) == {(4, 250)}
    waits = Session.objects.get(status=Status.PENDING, pk__in=[session.pk for session in sessions])
    assert (waits.reason, waits.cpu_guaranteed_milli) == (Reason.NO_CAPACITY, 1000)
    assert waits.detail == "Waiting for 4 CPU cores on one host: none is free."


def test_what_is_missing_is_said_in_cores_as_asked(host: Host) -> None:
    run_session(host=host, cpu=4)
    run_session(host=host, cpu=4)
    run_session(host=host, cpu=4)
    run_session(host=host, cpu=1)
    waits = make_session(resource_group=host.group, cpu=4)
    passes.run_pass()
    waits.refresh_from_db()
    assert waits.detail == "Waiting for 4 CPU cores on one host: at most 3 are free."


def test_a_factor_of_one_guarantees_all(host: Host) -> None:
    change_factor(host.group, "1")
    for _ in range(2):
        make_session(resource_group=host.group, cpu=3)
    assert passes.run_pass() == 1
    assert not placed()[0].is_cpu_shared


def test_limits_count_all_cores_asked_for(host: Host) -> None:
    owner = make_user(policy=make_policy(cpu=6))
    for _ in range(2):
        make_session(owner=owner, resource_group=host.group, cpu=4)
    assert passes.run_pass() == 1
    waits = Session.objects.get(status=Status.PENDING)
    assert waits.reason == Reason.USER_LIMIT
    assert "allows 6 CPU cores at once; with the 4 CPU cores of this session" in waits.detail


def test_running_sessions_keep_their_factor(host: Host) -> None:
    running = run_session(host=host, cpu=4)
    change_factor(host.group, "1")
    running = Session.objects.get(pk=running.pk)
    assert running.cpu_guaranteed_milli == 1000
    for _ in range(4):
        make_session(resource_group=host.group, cpu=1)
    assert passes.run_pass() == 3  # the fourth core is that of the session before
    assert {session.core_milli for session in placed()} == {1000}


def test_a_changed_factor_reaches_passes_that_keep_their_state(host: Host) -> None:
    change_factor(host.group, "1")
    state = snapshot.load(timezone.now())
    change_factor(host.group, "2")
    assert snapshot.load_changes(state.since, (), state.offered) is None


def test_a_host_with_too_few_cores_takes_no_larger_session(host: Host) -> None:
    large = make_host(group=host.group, cpu=8)
    wide = make_session(resource_group=host.group, cpu=8)
    assert passes.run_pass() == 1
    wide.refresh_from_db()
    assert wide.host == large
    Host.objects.filter(pk=large.pk).update(is_cordoned=True)
    waits = make_session(resource_group=host.group, cpu=5)
    passes.run_pass()
    waits.refresh_from_db()
    assert waits.reason == Reason.NO_SUITABLE_HOST
    assert waits.detail == "No ready host of this session's resource group has 8 CPU cores or more."


def test_guarantees_beyond_the_host_are_refused_by_the_database(host: Host) -> None:
    for _ in range(4):
        run_session(host=host, cpu=4)
    with pytest.raises(IntegrityError, match="leases exceed their host"), transaction.atomic():
        run_session(host=host, cpu=1)


@pytest.mark.parametrize("core_milli", [0, 1001])
def test_a_lease_guarantees_a_part_of_each_core(host: Host, core_milli: int) -> None:
    lease = Lease.objects.filter(session=run_session(host=host))
    with pytest.raises(IntegrityError, match="lease_guarantees_cpu"), transaction.atomic():
        lease.update(core_milli=core_milli)


def test_an_estimate_counts_guarantees(host: Host) -> None:
    for _ in range(3):
        run_session(host=host, cpu=4)
    order = make_launch_request(host, cpu=4)
    assert estimate.estimate(make_user(), order).advice.last.starts == "now"
    run_session(host=host, cpu=2)
    found = estimate.estimate(make_user(), order).advice
    assert found.last.starts is None
    assert [(each.cpu, each.starts) for each in found.alternatives] == [(2, "now")]


def test_another_group_is_advised_by_its_own_factor(host: Host) -> None:
    for _ in range(3):
        run_session(host=host, cpu=4)
    full = make_host(group=make_group(), cpu=4)
    run_session(host=full, cpu=2)
    advice = estimate.estimate(make_user(), make_launch_request(full, cpu=4)).advice
    groups = [(each.group_id, each.cpu, each.starts) for each in advice.alternatives]
    assert groups == [(full.group_id, 2, "now"), (host.group_id, 4, "now")]


def test_of_several_groups_the_one_where_it_starts_guarantees(host: Host) -> None:
    run_session(host=host, cpu=4)
    full = make_host(group=make_group(), cpu=4)
    run_session(host=full, cpu=4)
    choices = [full.group_id, host.group_id]
    waits = make_session(resource_group=full.group, group_choices=choices, cpu=4)
    for _ in range(2):  # it is the other group's turn once the preferred one has explained why not
        passes.run_pass()
    waits.refresh_from_db()
    assert (waits.host, waits.core_milli, waits.lease.core_milli) == (host, 250, 250)


def test_a_resize_takes_the_guarantee_of_its_factor(host: Host) -> None:
    session = run_session(host=host, cpu=1)
    for _ in range(3):
        run_session(host=host, cpu=4)
    run_session(host=host, cpu=1)
    change_factor(host.group, "1")
    with pytest.raises(RejectedError) as refused:
        resizing.resize(session, SessionSize(cpu=4, memory=session.memory, fgpu=0), actor=make_user(is_superuser=True))
    assert refused.value.errors == {"cpu": "Its host has room for at most 3 CPU cores in this session now."}
    target = SessionSize(cpu=3, memory=session.memory, fgpu=0)
    resized = resizing.resize(session, target, actor=make_user(is_superuser=True))
    assert resized.resize is not None
    resizing.finish(session.pk, resized.resize["id"])
    lease = Lease.objects.get(session=session)
    assert (lease.cpu, lease.core_milli) == (3, 250)
    assert Session.objects.get(pk=session.pk).cpu_guaranteed_milli == 750


def test_no_session_may_use_more_cores_than_its_host_has(host: Host) -> None:
    session = run_session(host=host, cpu=4)
    with pytest.raises(RejectedError) as refused:
        resizing.resize(session, SessionSize(cpu=5, memory=session.memory, fgpu=0), actor=session.owner)
    assert "at most 4 CPU cores" in refused.value.errors["cpu"]
    with pytest.raises(RejectedError, match="largest host of this group has 4 CPU cores"):
        services.submit(make_user(), make_launch_request(host, cpu=5))


def test_fair_share_charges_what_is_guaranteed(host: Host) -> None:
    session = run_session(host=host, cpu=4)
    before = timezone.now() - timedelta(hours=1)
    Session.objects.filter(pk=session.pk).update(started_at=before)
    services.terminate(Session.objects.get(pk=session.pk), actor=session.owner)
    Session.objects.get(pk=session.pk).move_to(Status.TERMINATED, Reason.USER_REQUEST)
    assert FairUse.objects.get(user=session.owner).cpu_seconds == pytest.approx(3600, rel=0.02)


def test_a_session_placed_again_takes_the_factor_of_then(host: Host) -> None:
    session = session_in(Status.PREPARING, host=host, cpu=2)
    assert (session.core_milli, session.cpu_guaranteed_milli) == (250, 500)
    change_factor(host.group, "2")
    requests.requeue(session, actor=make_user(is_superuser=True))
    assert Session.objects.get(pk=session.pk).cpu_guaranteed_milli == 1000
    assert passes.run_pass() == 1
    assert Lease.objects.get(session=session).core_milli == 500
