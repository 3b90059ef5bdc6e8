"""Preemptible deployments give their GPUs to sessions that wait, drained and never below their least, and come back."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments import services
from deployments.models import Deployment
from deployments.replicas import preemptible
from deployments.replicas.reconciliation import due, reconcile
from deployments.replicas.rollout import ReplicaFact
from deployments.scaling import services as scaling
from deployments.tests.making import heal, revision_request, run_replicas, serving_deployment
from resources import clock
from resources.models import Host
from scheduler.cycle import passes
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.factories import make_group, make_host, make_policy, make_session, make_user

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    passes.caches.clear()


@pytest.fixture
def host() -> Host:
    return make_host(group=make_group(fgpu_per_gpu=1), gpus=3, cpu=64)


def giving(host: Host, replicas: int = 3, least: int = 1) -> Deployment:
    """Return a deployment that has all GPUs of the host, and gives those beyond its least."""
    deployment = serving_deployment(replicas, host=host, revision=revision_request(fgpu=1000))
    fields = {"is_preemptible": True, "min_replicas": least, "max_replicas": 3}
    return scaling.change(deployment, fields, actor=deployment.owner)


def marked(deployment: Deployment) -> list[bool]:
    """Return whether each live replica may end for others, the oldest first."""
    live = deployment.replica_rows.live().filter(draining_since=None).order_by("created_at")
    live = live.exclude(session__status=Status.TERMINATING)
    return list(live.values_list("session__is_preemptible", flat=True))


def serving(deployment: Deployment) -> int:
    return deployment.replica_rows.taking_requests().count()


def stop(deployment: Deployment) -> None:
    """Have drained replicas end, and their hosts stop them."""
    deployment.replica_rows.exclude(draining_since=None).update(draining_since=clock.now() - MINUTE)
    reconcile(deployment.pk)
    for session in Session.objects.filter(replica__deployment=deployment, status=Status.TERMINATING):
        session.move_to(Status.TERMINATED, Reason(session.reason), "")


def test_those_beyond_the_least_may_end_at_once(host: Host) -> None:
    deployment = giving(host)
    assert marked(deployment) == [False, True, True]
    scaling.change(deployment, {"min_replicas": 2}, actor=deployment.owner)
    assert marked(deployment) == [False, False, True]
    scaling.change(deployment, {"is_preemptible": False}, actor=deployment.owner)
    assert marked(deployment) == [False, False, False]


def test_what_is_no_longer_preemptible_pays_whole(host: Host) -> None:
    deployment = giving(host, 1)
    services.set_replicas(deployment, 3, actor=deployment.owner)
    reconcile(deployment.pk)
    heal(*run_replicas(deployment, host))
    charges = Session.objects.filter(replica__deployment=deployment).values_list("charge_percent", flat=True)
    assert sorted(charges.all()) == [50, 50, 100]
    scaling.change(deployment, {"is_preemptible": False}, actor=deployment.owner)
    assert sorted(charges.all()) == [100, 100, 100]


def test_a_session_that_waits_gets_what_is_beyond_the_least(host: Host) -> None:
    deployment = giving(host)
    passes.run_pass()
    waiting = [make_session(resource_group=host.group, fgpu=1000, owner=make_user()) for _ in range(3)]
    for _ in range(4):
        passes.run_pass()
    assert sum(session.claim is not None for session in Session.objects.filter(pk__in=[s.pk for s in waiting])) == 2
    assert deployment.pk in due()
    reconcile(deployment.pk)
    assert (serving(deployment), deployment.replica_rows.exclude(draining_since=None).count()) == (1, 2)
    assert "It gives its place to a session that waits." in deployment.events.latest("pk").what
    for _ in range(2):
        reconcile(deployment.pk)
    assert serving(deployment) == 1  # what was warned does not return
    stop(deployment)
    passes.run_pass()
    assert Session.objects.filter(pk__in=[s.pk for s in waiting], status=Status.SCHEDULED).count() == 2
    assert serving(deployment) == 1
    assert deployment.replica_rows.filter(session__status=Status.PENDING, session__is_preemptible=True).count() == 2


def test_replicas_come_back_when_there_is_room(host: Host) -> None:
    deployment = giving(host, 3, least=2)
    passes.run_pass()
    waiting = make_session(resource_group=host.group, fgpu=1000, owner=make_user())
    passes.run_pass()
    reconcile(deployment.pk)
    stop(deployment)
    reconcile(deployment.pk)
    passes.run_pass()
    waiting.refresh_from_db()
    waiting.move_to(Status.CANCELLED, Reason.USER_REQUEST, "")
    passes.run_pass()
    assert deployment.replica_rows.filter(session__status=Status.SCHEDULED).count() == 1


def test_a_rollout_gives_nothing(host: Host) -> None:
    deployment = giving(host, 2)
    assert marked(deployment) == [False, True]
    services.new_revision(deployment, revision_request(fgpu=1000), actor=deployment.owner)
    reconcile(deployment.pk)
    assert marked(deployment) == [False, False, False]
    for _ in range(3):
        heal(*run_replicas(deployment, host))
        reconcile(deployment.pk)
        stop(deployment)
        reconcile(deployment.pk)
    assert marked(deployment) == [False, True]


def test_another_takes_the_place_of_one_of_the_least(host: Host) -> None:
    deployment = giving(host)
    oldest = deployment.replica_rows.order_by("created_at")[0].session
    oldest.move_to(Status.TERMINATING, Reason.USER_REQUEST, "")
    reconcile(deployment.pk)
    assert marked(deployment) == [False, True, True]


def test_a_policy_of_preemptible_sessions_alone_counts(host: Host) -> None:
    owner = make_user(policy=make_policy(preemptible_only=True))
    deployment = serving_deployment(2, host=host, owner=owner)
    reconcile(deployment.pk)
    assert marked(deployment) == [True, True]


FACTS = st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=8)


@given(FACTS, st.integers(1, 4))
def test_the_least_is_of_those_that_serve(found: list[tuple[bool, int]], least: int) -> None:
    facts = [
        ReplicaFact(id=str(number), is_current=True, is_ready=ready, created_at=BEGIN + age * MINUTE)
        for number, (ready, age) in enumerate(found)
    ]
    chosen = preemptible.preemptible_of(facts, least)
    kept = [fact for fact in facts if fact.id not in chosen]
    assert len(kept) == min(least, len(facts))
    assert sum(fact.is_ready for fact in kept) == min(len(kept), sum(fact.is_ready for fact in facts))
