"""The reconciliation of deployments: what it launches, drains, ends and says, on rows alone."""

import threading
from collections import Counter
from datetime import timedelta

import pytest
from django.db import connection

from accounts.models import User
from deployments import figures, services
from deployments.models import Deployment, DeploymentState, Replica, ReplicaHealth, Revision
from deployments.replicas import launching
from deployments.replicas.reconciliation import due, reconcile, reconcile_all
from deployments.tests.making import heal, make_deployment, revision_request, run_replicas, serving_deployment
from proxy.authorization.control_plane import ServiceFigures
from resources import clock
from resources.models import Host, HostStatus
from sessions.lifecycle import Kind, Reason, Status
from sessions.models import Endpoint, Session
from tests.factories import make_host, make_policy, make_user

pytestmark = pytest.mark.django_db
LONG_AGO = timedelta(minutes=30)


def read(deployment: Deployment) -> Deployment:
    return Deployment.objects.select_related("revision", "given_up").get(pk=deployment.pk)


def statuses(deployment: Deployment) -> Counter[str]:
    return Counter(deployment.replica_rows.values_list("session__status", flat=True))


def host_of(deployment: Deployment) -> Host:
    return Host.objects.get(group=deployment.resource_group)


def fail(replica: Replica, code: int = 1, output: str = "") -> None:
    """Have the replica's process end by itself."""
    session = Session.objects.get(pk=replica.pk)
    fields = {"exit_code": code, "log_tail": output}
    session.move_to(
        Status.ERROR, Reason.CONTAINER_EXITED, f"Its main process ended with exit code {code}.", fields=fields
    )


def let_pauses_pass(deployment: Deployment) -> None:
    """Move all ends of replicas into the past, beyond every pause."""
    ids = deployment.replica_rows.values("session")
    Session.objects.filter(pk__in=ids, ended_at__isnull=False).update(ended_at=clock.now() - LONG_AGO)


def let_drains_pass(deployment: Deployment, *, by: timedelta = timedelta(seconds=4)) -> None:
    deployment.replica_rows.exclude(draining_since=None).update(draining_since=clock.now() - by)


def test_replicas_are_sessions_of_their_own_kind() -> None:
    deployment = make_deployment(replicas=2)
    reconcile(deployment.pk)
    sessions = Session.objects.all()
    assert [session.kind for session in sessions] == [Kind.REPLICA, Kind.REPLICA]
    assert all(session.environment["PORT"] == "8000" and session.command for session in sessions)
    assert set(Endpoint.objects.values_list("app", "port", "state")) == {("serve", 8000, "READY")}
    assert read(deployment).state == DeploymentState.STARTING


def test_a_second_reconciliation_changes_nothing() -> None:
    deployment = make_deployment(replicas=2)
    reconcile(deployment.pk)
    reconcile(deployment.pk)
    assert statuses(deployment) == {"PENDING": 2}


def test_healthy_replicas_make_a_healthy_deployment() -> None:
    deployment = serving_deployment(2)
    assert (deployment.state, deployment.problem) == (DeploymentState.HEALTHY, "")
    assert due() == []


def test_what_is_not_as_wanted_is_due() -> None:
    deployment = serving_deployment(1)
    replica = deployment.replica_rows.get()
    for change in ({"health": ReplicaHealth.UNHEALTHY.value}, {"draining_since": clock.now()}):
        Replica.objects.filter(pk=replica.pk).update(**change)
        assert due() == [deployment.pk]
        Replica.objects.filter(pk=replica.pk).update(health=ReplicaHealth.HEALTHY.value, draining_since=None)
    Host.objects.update(status=HostStatus.LOST.value)
    assert due() == [deployment.pk]


def test_scaling_down_ends_the_youngest_once_it_is_quiet() -> None:
    deployment = serving_deployment(3)
    oldest = list(deployment.replica_rows.order_by("created_at"))[:2]
    services.set_replicas(deployment, 2, actor=deployment.owner)
    reconcile(deployment.pk)
    [draining] = deployment.replica_rows.exclude(draining_since=None)
    assert draining not in oldest
    assert statuses(deployment) == {"RUNNING": 3}
    let_drains_pass(deployment)
    reconcile(deployment.pk)
    assert statuses(deployment) == {"RUNNING": 2, "TERMINATING": 1}


def test_a_replica_with_a_request_is_not_ended() -> None:
    deployment = serving_deployment(2)
    services.change(deployment, {"drain_seconds": 60}, actor=deployment.owner)
    services.set_replicas(deployment, 1, actor=deployment.owner)
    reconcile(deployment.pk)
    draining = deployment.replica_rows.exclude(draining_since=None).get()
    let_drains_pass(deployment, by=timedelta(seconds=50))
    figures.store("p1", [ServiceFigures(deployment=deployment.pk, session=draining.pk, outstanding=1)])
    reconcile(deployment.pk)
    assert statuses(deployment) == {"RUNNING": 2}
    let_drains_pass(deployment, by=timedelta(seconds=64))
    reconcile(deployment.pk)
    assert statuses(deployment) == {"RUNNING": 1, "TERMINATING": 1}


def test_a_rollout_replaces_one_after_the_other() -> None:
    deployment = serving_deployment(2)
    host, owner = host_of(deployment), deployment.owner
    second = services.new_revision(deployment, revision_request(), actor=owner)
    for _ in range(2):
        reconcile(deployment.pk)
        new = deployment.replica_rows.filter(revision=second, session__status=Status.PENDING).get()
        assert deployment.replica_rows.taking_requests().count() == 2
        run_replicas(deployment, host)
        heal(new)
        reconcile(deployment.pk)
        assert deployment.replica_rows.taking_requests().count() == 2
        assert read(deployment).state in (DeploymentState.UPDATING, DeploymentState.HEALTHY)
        let_drains_pass(deployment)
    reconcile(deployment.pk)
    assert set(deployment.replica_rows.taking_requests().values_list("revision", flat=True)) == {second.pk}
    assert read(deployment).state == DeploymentState.HEALTHY


def test_a_revision_that_fails_three_times_is_given_up() -> None:
    deployment = serving_deployment(2)
    host, first = host_of(deployment), deployment.revision
    second = services.new_revision(deployment, revision_request(), actor=deployment.owner)
    for number in range(3):
        reconcile(deployment.pk)
        assert read(deployment).revision == second, number
        run_replicas(deployment, host)
        fail(deployment.replica_rows.get(revision=second, session__status=Status.RUNNING), output="a\nno module vllm")
        reconcile(deployment.pk)
        let_pauses_pass(deployment)
    row = read(deployment)
    assert (row.revision, row.previous_revision, row.given_up) == (first, None, second)
    assert "Revision 2 was given up" in row.problem
    assert "no module vllm" in row.problem
    assert (row.state, statuses(deployment)) == (DeploymentState.HEALTHY, {"RUNNING": 2, "ERROR": 3})
    reconcile(deployment.pk)
    assert statuses(deployment) == {"RUNNING": 2, "ERROR": 3}
    services.restart(row, actor=row.owner)
    reconcile(deployment.pk)
    assert "given up" not in read(deployment).problem


def test_the_first_revision_is_tried_for_ever_with_pauses() -> None:
    deployment = make_deployment()
    host = host_of(deployment)
    for _ in range(5):
        reconcile(deployment.pk)
        [replica] = run_replicas(deployment, host)
        fail(replica, output="Traceback\nOSError: no model")
        reconcile(deployment.pk)
        assert not deployment.replica_rows.live().exists(), "launched again without a pause"
        let_pauses_pass(deployment)
    row = read(deployment)
    assert row.state == DeploymentState.FAILING
    assert "has failed. Its main process ended with exit code 1." in row.problem
    assert row.problem.endswith("OSError: no model")


def test_a_restart_ends_the_pause() -> None:
    deployment = make_deployment()
    reconcile(deployment.pk)
    [replica] = run_replicas(deployment, host_of(deployment))
    fail(replica)
    reconcile(deployment.pk)
    services.restart(deployment, actor=deployment.owner)
    reconcile(deployment.pk)
    assert deployment.replica_rows.live().count() == 1


def test_a_restart_replaces_all_with_the_same_revision() -> None:
    deployment = serving_deployment(1)
    [old] = deployment.replica_rows.all()
    services.restart(deployment, actor=deployment.owner)
    reconcile(deployment.pk)
    assert deployment.replica_rows.taking_requests().get() == old
    [_, new] = run_replicas(deployment, host_of(deployment))
    heal(new)
    reconcile(deployment.pk)
    assert deployment.replica_rows.taking_requests().get() == new


def test_what_ends_without_its_fault_is_replaced_at_once() -> None:
    deployment = serving_deployment(1)
    session = deployment.replica_rows.get().session
    session.move_to(Status.TERMINATING, Reason.USER_REQUEST)
    reconcile(deployment.pk)
    assert statuses(deployment) == {"TERMINATING": 1, "PENDING": 1}
    session.move_to(Status.TERMINATED, Reason.USER_REQUEST)
    reconcile(deployment.pk)
    assert deployment.replica_rows.get(session=session.pk).failure == ""


def test_a_replica_that_stays_unhealthy_is_replaced() -> None:
    deployment = serving_deployment(1)
    replica = deployment.replica_rows.get()
    patience = timedelta(seconds=3 * 5 * 3)
    for since, given_up in ((clock.now() - patience + timedelta(seconds=5), False), (clock.now() - patience, True)):
        Replica.objects.filter(pk=replica.pk).update(
            health=ReplicaHealth.UNHEALTHY.value, unhealthy_at=since, health_detail="HTTP 500"
        )
        reconcile(deployment.pk)
        assert deployment.replica_rows.exclude(draining_since=None).exists() is given_up
    assert "HTTP 500" in deployment.replica_rows.get(pk=replica.pk).failure
    assert read(deployment).state == DeploymentState.FAILING


def test_replicas_of_a_lost_host_are_replaced_after_a_while() -> None:
    deployment = serving_deployment(1)
    make_host(group=deployment.resource_group)
    silent = Host.objects.filter(sessions__replica__deployment=deployment)
    silent.update(status=HostStatus.LOST.value, lost_at=clock.now())
    reconcile(deployment.pk)
    assert statuses(deployment) == {"RUNNING": 1}
    silent.update(lost_at=clock.now() - timedelta(seconds=31))
    reconcile(deployment.pk)
    assert statuses(deployment)["PENDING"] == 1
    what = f"A replica of revision 1 is replaced. Its host {silent.get()} is unreachable."
    assert deployment.events.filter(what=what).count() == 1
    reconcile(deployment.pk)
    assert statuses(deployment)["PENDING"] == 1


def test_a_drained_host_is_left_without_an_outage() -> None:
    deployment = serving_deployment(1)
    Host.objects.update(is_cordoned=True, drain_by=clock.now() + timedelta(hours=1))
    reconcile(deployment.pk)
    assert deployment.replica_rows.taking_requests().count() == 1
    assert statuses(deployment) == {"RUNNING": 1, "PENDING": 1}


def test_the_end_ends_all_at_once() -> None:
    deployment = serving_deployment(2)
    services.end(deployment, actor=deployment.owner)
    assert due() == [deployment.pk]
    reconcile(deployment.pk)
    assert statuses(deployment) == {"TERMINATING": 2}
    for session in Session.objects.all():
        session.move_to(Status.TERMINATED, Reason.DEPLOYMENT)
    reconcile(deployment.pk)
    assert due() == []


def test_a_disabled_owner_serves_nothing() -> None:
    deployment = serving_deployment(1)
    User.objects.filter(pk=deployment.owner.pk).update(is_active=False)
    reconcile(deployment.pk)
    assert statuses(deployment) == {"TERMINATING": 1}


def test_a_launch_that_is_refused_is_said_in_words() -> None:
    owner = make_user(policy=make_policy())
    deployment = make_deployment(owner)
    owner.policy.cpu = 0
    owner.policy.save()
    reconcile(deployment.pk)
    row = read(deployment)
    assert row.state == DeploymentState.FAILING
    assert "No replica can be launched: Your policy allows at most 0 CPU cores." in row.problem


def test_a_replica_that_waits_says_why() -> None:
    deployment = make_deployment()
    reconcile(deployment.pk)
    Session.objects.update(detail="Waits for a GPU.")
    reconcile(deployment.pk)
    assert read(deployment).problem == "A replica waits: Waits for a GPU."


def test_a_death_in_the_middle_leaves_nothing_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment, launch, count = make_deployment(replicas=3), launching.launch, 0

    def dies_at_the_third(deployment: Deployment, revision: Revision) -> Replica:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        return launch(deployment, revision)

    with monkeypatch.context() as patched:
        patched.setattr(launching, "launch", dies_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            reconcile(deployment.pk)
    assert statuses(deployment) == {}
    reconcile(deployment.pk)
    assert statuses(deployment) == {"PENDING": 3}


@pytest.mark.django_db(transaction=True)
def test_two_at_once_launch_as_many_as_one() -> None:
    deployment = make_deployment(replicas=3)
    barrier = threading.Barrier(4)

    def run() -> None:
        barrier.wait()
        for _ in range(5):
            reconcile(deployment.pk)
        connection.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses(deployment) == {"PENDING": 3}


def test_a_replica_near_its_limits_is_replaced_before() -> None:
    owner = make_user(policy=make_policy(max_lifetime=timedelta(hours=1)))
    host = make_host()
    deployment = make_deployment(owner, host=host)
    reconcile(deployment.pk)
    [old] = run_replicas(deployment, host)
    heal(old)
    reconcile(deployment.pk)
    assert due() == []
    started = clock.now() - timedelta(minutes=56)
    Session.objects.update(started_at=started, start_by=None)
    Replica.objects.update(created_at=started)
    assert due() == [deployment.pk]
    reconcile(deployment.pk)
    assert statuses(deployment) == {"RUNNING": 1, "PENDING": 1}
    assert deployment.replica_rows.taking_requests().get() == old


def test_a_life_too_short_to_replace_is_let_run_out() -> None:
    owner = make_user(policy=make_policy(max_lifetime=timedelta(minutes=4)))
    host = make_host()
    deployment = make_deployment(owner, host=host)
    reconcile(deployment.pk)
    heal(*run_replicas(deployment, host))
    reconcile(deployment.pk)
    reconcile(deployment.pk)
    assert statuses(deployment) == {"RUNNING": 1}


def test_one_that_fails_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = sorted((make_deployment(), make_deployment()), key=lambda each: each.pk)
    launch = launching.launch

    def fails_for_the_first(deployment: Deployment, revision: Revision) -> Replica:
        if deployment == first:
            raise ValueError("a fault")
        return launch(deployment, revision)

    monkeypatch.setattr(launching, "launch", fails_for_the_first)
    reconcile_all()
    assert (statuses(first), statuses(second)) == ({}, {"PENDING": 1})


def test_many_replicas_are_launched_in_steps() -> None:
    deployment = make_deployment(replicas=10)
    reconcile(deployment.pk)
    assert statuses(deployment) == {"PENDING": 8}
    reconcile(deployment.pk)
    assert statuses(deployment) == {"PENDING": 10}


def test_a_replica_that_never_served_is_ended_at_once() -> None:
    deployment = serving_deployment(1)
    services.set_replicas(deployment, 2, actor=deployment.owner)
    reconcile(deployment.pk)
    run_replicas(deployment, host_of(deployment))
    services.set_replicas(deployment, 1, actor=deployment.owner)
    reconcile(deployment.pk)
    assert statuses(deployment) == {"RUNNING": 1, "TERMINATING": 1}
