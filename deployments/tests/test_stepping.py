"""Rollouts by steps on rows: canaries that pass and go back, blue/green, and what people may do meanwhile."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from redis.exceptions import RedisError

from deployments import figures, services
from deployments.models import Deployment, DeploymentState, Replica, Revision, StepwiseRollout
from deployments.replicas import stepping
from deployments.replicas.reconciliation import reconcile
from deployments.tests.making import heal, revision_request, run_replicas
from deployments.tests.rolling import answer, begun, grow, let_step_pass, our_deployment
from endpoints.routing import service_routes
from resources import clock
from resources.models import Host
from sessions.errors import RejectedError
from sessions.lifecycle import Reason, Status
from sessions.models import Session

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


def read(deployment: Deployment) -> Deployment:
    return Deployment.objects.select_related("revision", "previous_revision", "given_up").get(pk=deployment.pk)


def events(deployment: Deployment) -> str:
    return "\n".join(deployment.events.values_list("what", flat=True))


def serving(deployment: Deployment) -> dict[int, int]:
    """Return how many replicas of each revision take requests."""
    found: dict[int, int] = {}
    for number in deployment.replica_rows.taking_requests().values_list("revision__number", flat=True):
        found[number] = found.get(number, 0) + 1
    return found


def weights(deployment: Deployment) -> Mapping[int, int]:
    """Return the shares that data planes are told."""
    [service] = service_routes.read([deployment.pk]).services
    return dict(service.weights)


def let_drains_pass(deployment: Deployment) -> None:
    deployment.replica_rows.exclude(draining_since=None).update(draining_since=clock.now() - MINUTE)


def test_a_canary_comes_beside_all_old_replicas() -> None:
    deployment = our_deployment(4, strategy="canary")
    services.new_revision(deployment, revision_request(), actor=deployment.owner)
    reconcile(deployment.pk)
    assert deployment.replica_rows.filter(session__status=Status.PENDING).count() == 1
    [new] = run_replicas(deployment, Host.objects.get())[4:]
    reconcile(deployment.pk)
    assert weights(deployment) == {1: 100}
    assert read(deployment).problem == "Revision 2 gets 0 % of the requests. It gets 5 % when its replicas are healthy."
    heal(new)
    assert weights(deployment) == {1: 100, 2: 0}
    reconcile(deployment.pk)
    assert (serving(deployment), weights(deployment)) == ({1: 4, 2: 1}, {1: 95, 2: 5})
    assert read(deployment).state == DeploymentState.UPDATING
    assert "Revision 2 gets 5 % of the requests." in events(deployment)


def test_a_good_canary_goes_through() -> None:
    deployment = begun()
    answer(deployment, 1, 950, 9)
    answer(deployment, 2, 50)
    reconcile(deployment.pk)
    assert weights(deployment)[2] == 5, "before its time"
    let_step_pass(deployment)
    reconcile(deployment.pk)
    assert weights(deployment)[2] == 5, "before its replicas are healthy"
    grow(deployment)
    assert (serving(deployment), weights(deployment)) == ({1: 4, 2: 2}, {1: 50, 2: 50})
    answer(deployment, 1, 100)
    answer(deployment, 2, 100)
    let_step_pass(deployment)
    for _ in range(4):
        grow(deployment)
        assert sum(serving(deployment).values()) >= 4
        let_drains_pass(deployment)
    grow(deployment)
    assert (serving(deployment), weights(deployment)) == ({2: 4}, {})
    row = read(deployment)
    assert (row.state, row.problem, row.revision.number) == (DeploymentState.HEALTHY, "", 2)  # type: ignore[union-attr]
    assert "Revision 2 has passed all steps" in events(deployment)


@pytest.mark.parametrize(
    ("errors", "seconds", "words"),
    [
        (5, 0.1, "10.0 % of its 50 requests failed, against 1.0 % of 500 of revision 1"),
        (0, 0.2, "95 % took up to 0.203 s, against 0.104 s."),
    ],
)
def test_a_bad_canary_goes_back_by_itself(errors: int, seconds: float, words: str) -> None:
    deployment = begun()
    answer(deployment, 1, 500, 5)
    answer(deployment, 2, 50, errors, seconds)
    let_step_pass(deployment)
    reconcile(deployment.pk)
    row = read(deployment)
    assert row.revision is not None
    assert row.given_up is not None
    assert (row.revision.number, row.given_up.number, row.previous_revision) == (1, 2, None)
    assert (serving(deployment), weights(deployment)) == ({1: 4}, {})
    assert words in events(deployment)
    assert words in row.problem
    reconcile(deployment.pk)
    assert (read(deployment).state, StepwiseRollout.objects.count()) == (DeploymentState.HEALTHY, 0)


def test_only_answers_of_the_step_count() -> None:
    deployment = begun()
    answer(deployment, 1, 500)
    answer(deployment, 2, 50)
    let_step_pass(deployment)
    grow(deployment)
    grow(deployment)
    assert weights(deployment)[2] == 50
    answer(deployment, 1, 100)
    answer(deployment, 2, 100, 3)
    let_step_pass(deployment)
    reconcile(deployment.pk)
    assert "3.0 % of its 100 requests failed, against 0.0 % of 100 of revision 1" in events(deployment)


def test_few_requests_are_waited_for_and_said() -> None:
    deployment = begun()
    answer(deployment, 2, 49, 49)
    let_step_pass(deployment)
    reconcile(deployment.pk)
    assert weights(deployment)[2] == 5
    assert "It waits for 50 requests, by which it is compared with revision 1." in read(deployment).problem
    answer(deployment, 2, 1)
    reconcile(deployment.pk)
    assert weights(deployment) == {}


def test_a_canary_without_requests_goes_on_after_three_times() -> None:
    deployment = begun()
    let_step_pass(deployment, by=3 * MINUTE - timedelta(seconds=5))
    grow(deployment)
    assert weights(deployment)[2] == 5
    let_step_pass(deployment, by=timedelta(seconds=5))
    grow(deployment)
    grow(deployment)
    assert weights(deployment)[2] == 50


def test_counts_that_begin_anew_are_taken_as_they_are() -> None:
    before = figures.RevisionTotals(requests=100, errors=5, latencies={3: 100})
    after = figures.RevisionTotals(requests=7, errors=1, latencies={3: 7})
    assert after.since(before) == after
    assert before.since(after).latencies == {3: 93}
    assert figures.RevisionTotals.from_json(before.as_json()) == before


def test_a_canary_stays_while_figures_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = begun()

    def fails(pk: str) -> dict[int, figures.RevisionTotals]:
        raise RedisError(pk)

    monkeypatch.setattr(figures, "revision_totals", fails)
    let_step_pass(deployment, by=timedelta(days=1))
    reconcile(deployment.pk)
    assert weights(deployment)[2] == 5
    assert "while it is not known what was answered" in read(deployment).problem


def fail(replica: Replica) -> None:
    session = Session.objects.get(pk=replica.pk)
    session.move_to(Status.ERROR, Reason.CONTAINER_EXITED, "It ended.", fields={"exit_code": 1})


def let_pauses_pass(deployment: Deployment) -> None:
    ids = deployment.replica_rows.values("session")
    Session.objects.filter(pk__in=ids, ended_at__isnull=False).update(ended_at=clock.now() - timedelta(minutes=30))


def test_a_canary_that_fails_again_and_again_goes_back() -> None:
    deployment = begun()
    for _ in range(3):
        assert read(deployment).revision.number == 2  # type: ignore[union-attr]
        fail(deployment.replica_rows.taking_requests().get(revision__number=2))
        assert weights(deployment) == {1: 100}
        reconcile(deployment.pk)
        let_pauses_pass(deployment)
        grow(deployment)
    row = read(deployment)
    assert row.revision is not None
    assert (row.revision.number, serving(deployment)) == (1, {1: 4})
    assert "Its replicas have failed again and again." in row.problem


def test_an_old_replica_that_dies_meanwhile_is_replaced() -> None:
    deployment = begun(2)
    fail(deployment.replica_rows.taking_requests().filter(revision__number=1)[0])
    reconcile(deployment.pk)
    let_pauses_pass(deployment)
    grow(deployment)
    assert serving(deployment) == {1: 2, 2: 1}


def test_a_restart_keeps_both_revisions() -> None:
    deployment = begun(2)
    before = set(deployment.replica_rows.taking_requests().values_list("pk", flat=True))
    services.restart(deployment, actor=deployment.owner)
    for _ in range(4):
        grow(deployment)
        assert serving(deployment) == {1: 2, 2: 1}
        let_drains_pass(deployment)
    assert not before & set(deployment.replica_rows.taking_requests().values_list("pk", flat=True))


def test_a_change_of_scale_reaches_both_revisions() -> None:
    deployment = begun(2, canary_steps=[50])
    services.set_replicas(deployment, 4, actor=deployment.owner)
    grow(deployment)
    assert serving(deployment) == {1: 4, 2: 2}
    services.set_replicas(deployment, 0, actor=deployment.owner)
    reconcile(deployment.pk)
    assert (serving(deployment), StepwiseRollout.objects.get().begun_at) == ({}, None)
    services.set_replicas(deployment, 2, actor=deployment.owner)
    grow(deployment)
    assert (serving(deployment), weights(deployment)) == ({1: 2, 2: 1}, {1: 50, 2: 50})


def test_blue_green_switches_when_all_are_healthy() -> None:
    deployment = our_deployment(2, strategy="blue_green", step_seconds=60)
    services.new_revision(deployment, revision_request(), actor=deployment.owner)
    reconcile(deployment.pk)
    one, two = run_replicas(deployment, Host.objects.get())[2:]
    heal(one)
    reconcile(deployment.pk)
    assert (serving(deployment), weights(deployment)) == ({1: 2, 2: 1}, {1: 100, 2: 0})
    heal(two)
    reconcile(deployment.pk)
    assert (serving(deployment), weights(deployment)) == ({1: 2, 2: 2}, {1: 0, 2: 100})
    assert "replicas of revision 1 stay for 60 seconds" in read(deployment).problem
    let_step_pass(deployment)
    reconcile(deployment.pk)
    assert (serving(deployment), weights(deployment)) == ({2: 2}, {})
    assert read(deployment).state == DeploymentState.HEALTHY


def test_blue_green_goes_back_without_a_launch() -> None:
    deployment = begun(2, "blue_green")
    first = Revision.objects.get(deployment=deployment, number=1)
    count = deployment.replica_rows.count()
    services.activate(read(deployment), first, actor=deployment.owner)
    assert (serving(deployment), weights(deployment)) == ({1: 2}, {}), "at once"
    reconcile(deployment.pk)
    assert deployment.replica_rows.count() == count
    assert read(deployment).revision == first


def test_an_aborted_canary_loses_its_requests_at_once() -> None:
    deployment = begun()
    services.abort_rollout(deployment, actor=deployment.owner)
    assert (serving(deployment), weights(deployment), StepwiseRollout.objects.count()) == ({1: 4}, {}, 0)


def test_going_back_later_takes_no_steps() -> None:
    deployment = begun(1)
    services.promote(deployment, actor=deployment.owner, to_all=True)
    grow(deployment)
    assert serving(deployment) == {2: 1}
    services.abort_rollout(deployment, actor=deployment.owner)
    assert StepwiseRollout.objects.count() == 0
    first = read(deployment).revision
    assert first is not None
    assert first.number == 1


def test_a_third_revision_is_compared_with_the_proven_one() -> None:
    deployment = begun()
    services.new_revision(deployment, revision_request(), actor=deployment.owner)
    row = read(deployment)
    assert row.revision is not None
    assert row.previous_revision is not None
    assert (row.revision.number, row.previous_revision.number, serving(deployment)) == (3, 1, {1: 4})
    grow(deployment)
    assert weights(deployment) == {1: 95, 3: 5}


def test_a_third_revision_after_the_switch_replaces_the_second() -> None:
    deployment = begun(2, "blue_green")
    services.new_revision(deployment, revision_request(), actor=deployment.owner)
    assert serving(deployment) == {2: 2}
    grow(deployment)
    assert weights(deployment) == {2: 0, 3: 100}


def test_promotion_passes_a_step_or_all() -> None:
    deployment = begun()
    services.promote(deployment, actor=deployment.owner)
    with pytest.raises(RejectedError, match="healthy"):
        services.promote(deployment, actor=deployment.owner)
    grow(deployment)
    assert weights(deployment) == {1: 50, 2: 50}
    services.promote(deployment, actor=deployment.owner, to_all=True)
    assert weights(deployment) == {}
    with pytest.raises(RejectedError, match="No rollout by steps"):
        services.promote(deployment, actor=deployment.owner)


def test_promotion_ends_the_wait_after_a_switch() -> None:
    deployment = begun(2, "blue_green")
    services.promote(deployment, actor=deployment.owner, to_all=True)
    assert weights(deployment) == {1: 0, 2: 100}
    reconcile(deployment.pk)
    assert serving(deployment) == {2: 2}


def test_what_does_not_serve_is_replaced_without_steps() -> None:
    deployment = our_deployment(1, strategy="canary")
    Replica.objects.update(health="unhealthy", unhealthy_at=clock.now())
    services.new_revision(deployment, revision_request(), actor=deployment.owner)
    assert StepwiseRollout.objects.count() == 0


def test_the_end_ends_a_rollout() -> None:
    deployment = begun()
    services.end(deployment, actor=deployment.owner)
    reconcile(deployment.pk)
    assert (serving(deployment), StepwiseRollout.objects.count()) == ({}, 0)


def test_a_death_between_two_steps_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = begun()
    answer(deployment, 2, 50, 50)
    let_step_pass(deployment)

    def dies(row: Deployment, revision: Revision) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(stepping, "drop", dies)
        with pytest.raises(KeyboardInterrupt):
            reconcile(deployment.pk)
    assert (serving(deployment), weights(deployment)) == ({1: 4, 2: 1}, {1: 95, 2: 5})
    reconcile(deployment.pk)
    reconcile(deployment.pk)
    assert (serving(deployment), weights(deployment)) == ({1: 4}, {})
    assert events(deployment).count("was given up") == 1
