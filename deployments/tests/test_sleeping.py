"""Replicas of deployments that fall asleep and wake, on rows alone: which is parked, resumed, ended or launched."""

from datetime import timedelta
from typing import Any

import pytest

from deployments import services
from deployments.models import Deployment, DeploymentState, Replica, ReplicaHealth
from deployments.replicas.reconciliation import due, reconcile
from deployments.scaling import cold_start
from deployments.scaling import services as scaling
from deployments.tests.making import heal, revision_request, run_replicas, serving_deployment
from resources import clock
from resources.models import Host
from sessions.errors import RejectedError
from sessions.lifecycle import Reason, Status
from sessions.models import Endpoint, EndpointState, Session, SessionEvent
from sessions.parking import services as parking
from tests.factories import make_host, make_policy

pytestmark = pytest.mark.django_db
LONG_AGO = timedelta(minutes=5)


def read(deployment: Deployment) -> Deployment:
    return Deployment.objects.get(pk=deployment.pk)


def sleepy_deployment(replicas: int = 1, *, host: Host | None = None, **overrides: Any) -> Deployment:
    """Return a deployment that serves, and may fall asleep."""
    deployment = serving_deployment(replicas, host=host)
    fields = {"max_replicas": 4, "idle_seconds": 60} | overrides
    return scaling.change(deployment, fields, actor=deployment.owner)


def fall_asleep(deployment: Deployment) -> None:
    """Have its replicas drain, and be parked or ended."""
    assert scaling.sleep(deployment, before=read(deployment).replicas)
    reconcile(deployment.pk)
    deployment.replica_rows.update(draining_since=clock.now() - LONG_AGO)
    reconcile(deployment.pk)


def stop(deployment: Deployment) -> None:
    """Have the hosts stop what is to stop."""
    for session in Session.objects.filter(replica__deployment=deployment, status=Status.TERMINATING):
        session.move_to(Status.PARKED if session.is_parking else Status.TERMINATED, Reason(session.reason), "")
    reconcile(deployment.pk)


def statuses(deployment: Deployment) -> list[str]:
    return sorted(deployment.replica_rows.values_list("session__status", flat=True))


def asleep(replicas: int = 1, **overrides: Any) -> Deployment:
    """Return a deployment that sleeps, with one replica parked."""
    deployment = sleepy_deployment(replicas, **overrides)
    fall_asleep(deployment)
    stop(deployment)
    return read(deployment)


def test_one_replica_is_parked_and_the_others_end() -> None:
    deployment = asleep(3)
    assert statuses(deployment) == [Status.PARKED, Status.TERMINATED, Status.TERMINATED]
    assert deployment.state == DeploymentState.ASLEEP
    assert deployment.pk not in due()


def test_requests_under_way_end_before_it_sleeps() -> None:
    deployment = sleepy_deployment()
    scaling.sleep(deployment, before=1)
    reconcile(deployment.pk)
    assert statuses(deployment) == [Status.RUNNING]
    assert deployment.replica_rows.get().draining_since is not None


def test_with_the_action_end_none_is_parked() -> None:
    assert statuses(asleep(2, idle_action="end")) == [Status.TERMINATED, Status.TERMINATED]


def test_where_parking_is_not_allowed_replicas_end() -> None:
    deployment = sleepy_deployment()
    deployment.owner.policy = make_policy(max_parked=0)
    deployment.owner.save()
    fall_asleep(deployment)
    stop(deployment)
    assert statuses(deployment) == [Status.TERMINATED]


def test_waking_resumes_the_parked_replica_alone() -> None:
    deployment = asleep(3)
    assert [scaling.wake(deployment.pk) for _ in range(100)].count(True) == 1
    for _ in range(3):
        reconcile(deployment.pk)
    assert statuses(deployment) == [Status.PENDING, Status.TERMINATED, Status.TERMINATED]
    replica = deployment.replica_rows.get(session__status=Status.PENDING)
    assert (replica.health, replica.is_asleep, replica.draining_since) == (ReplicaHealth.STARTING, False, None)
    assert Endpoint.objects.get(session=replica.session).state == EndpointState.READY


def test_waking_without_a_parked_replica_launches_one() -> None:
    deployment = asleep(2, idle_action="end")
    scaling.wake(deployment.pk)
    reconcile(deployment.pk)
    assert statuses(deployment).count(Status.PENDING) == 1


def test_what_drains_still_serves_again_at_once() -> None:
    deployment = sleepy_deployment()
    scaling.sleep(deployment, before=1)
    reconcile(deployment.pk)
    scaling.wake(deployment.pk)
    reconcile(deployment.pk)
    replica = deployment.replica_rows.get()
    assert replica.draining_since is None
    assert replica.health == ReplicaHealth.HEALTHY
    assert cold_start.note(deployment)
    assert deployment.events.all()[0].what == "Awake at once: its replica had not ended yet."


def test_what_drains_on_a_silent_host_is_replaced() -> None:
    deployment = sleepy_deployment()
    scaling.sleep(deployment, before=1)
    reconcile(deployment.pk)
    Host.objects.update(lost_at=clock.now())
    scaling.wake(deployment.pk)
    reconcile(deployment.pk)
    assert statuses(deployment) == [Status.PENDING, Status.RUNNING]


def test_waking_while_it_is_being_parked_waits_for_that() -> None:
    deployment = sleepy_deployment()
    fall_asleep(deployment)
    scaling.wake(deployment.pk)
    reconcile(deployment.pk)
    assert statuses(deployment) == [Status.TERMINATING]
    stop(deployment)
    assert statuses(deployment) == [Status.PENDING]


def test_a_host_without_room_is_not_waited_for() -> None:
    deployment = asleep()
    scaling.wake(deployment.pk)
    reconcile(deployment.pk)
    Session.objects.filter(replica__deployment=deployment).update(status_at=clock.now() - LONG_AGO)
    reconcile(deployment.pk)
    assert statuses(deployment) == [Status.CANCELLED, Status.PENDING]


def test_what_cannot_be_resumed_is_replaced() -> None:
    deployment = asleep()
    scaling.wake(deployment.pk)
    reconcile(deployment.pk)
    session = Session.objects.get(replica__deployment=deployment)
    parking.return_parked(session, Reason.RESUME_FAILED, "The host did not start it.")
    reconcile(deployment.pk)
    assert statuses(deployment) == [Status.PENDING, Status.TERMINATED]
    assert Replica.objects.filter(failure="").count() == 2


def test_another_revision_ends_the_parked_replica() -> None:
    deployment = asleep()
    services.new_revision(deployment, revision_request(), actor=deployment.owner)
    assert deployment.pk in due()
    reconcile(deployment.pk)
    assert statuses(deployment) == [Status.TERMINATED]
    assert read(deployment).state == DeploymentState.ASLEEP


def test_the_end_of_a_deployment_ends_its_parked_replica() -> None:
    deployment = asleep()
    services.end(deployment, actor=deployment.owner)
    assert deployment.pk in due()
    reconcile(deployment.pk)
    assert statuses(deployment) == [Status.TERMINATED]


def test_what_is_stopped_by_hand_keeps_nothing_parked() -> None:
    deployment = asleep()
    services.set_replicas(deployment, 0, actor=deployment.owner)
    reconcile(deployment.pk)
    assert statuses(deployment) == [Status.TERMINATED]


def test_a_parked_replica_that_ended_is_replaced_on_waking() -> None:
    deployment = asleep()
    Session.objects.get(replica__deployment=deployment).move_to(Status.TERMINATED, Reason.PARK_TIMEOUT, "Too long.")
    reconcile(deployment.pk)
    scaling.wake(deployment.pk)
    reconcile(deployment.pk)
    assert statuses(deployment) == [Status.PENDING, Status.TERMINATED]


def test_nobody_parks_or_resumes_a_replica_by_hand() -> None:
    deployment = sleepy_deployment()
    session = Session.objects.get(replica__deployment=deployment)
    with pytest.raises(RejectedError):
        parking.park(session, actor=deployment.owner)
    fall_asleep(deployment)
    stop(deployment)
    session.refresh_from_db()
    with pytest.raises(RejectedError):
        parking.resume(session, actor=deployment.owner)
    assert not parking.is_offered(session)


def test_the_parts_of_a_cold_start_are_recorded() -> None:
    host = make_host()
    deployment = asleep(host=host)
    scaling.wake(deployment.pk)
    reconcile(deployment.pk)
    assert not cold_start.note(deployment)
    [replica] = run_replicas(deployment, host)
    since = clock.now() - timedelta(seconds=10)
    Deployment.objects.filter(pk=deployment.pk).update(waking_since=since)
    for status, seconds in ((Status.SCHEDULED, 1), (Status.RUNNING, 4)):
        SessionEvent.objects.create(
            session=replica.session, old_status=Status.PENDING, new_status=status, at=since + timedelta(seconds=seconds)
        )
    heal(replica, at=since + timedelta(seconds=9))
    assert cold_start.note(deployment)
    assert not cold_start.note(deployment)
    said = deployment.events.all()[0].what
    assert said == "Awake after 9.0 s: 1.0 s queued, 3.0 s until resumed, 5.0 s until healthy."
