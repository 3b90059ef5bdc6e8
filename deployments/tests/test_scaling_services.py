"""Settings and rules of scaling: what is refused at which field, and what is recorded."""

import threading
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, transaction
from django.utils import translation
from pytest_django import Settings

from accounts.models import AuditEntry
from deployments import services
from deployments.models import Deployment, PrometheusQuery, ScalingRule, StepwiseRollout
from deployments.replicas import reconciliation
from deployments.scaling import services as scaling
from deployments.tests.making import make_deployment, offer_query, revision_request
from sessions.errors import GENERAL, RejectedError
from tests.factories import make_policy, make_user
from tests.wait import SECONDS, until
from translation.english import from_english

pytestmark = pytest.mark.django_db(transaction=True)

SCALED = {"min_replicas": 1, "max_replicas": 4}
SLEPT = "Sent to sleep. The next request wakes it."


def scaled_deployment(**overrides: Any) -> Deployment:
    deployment = make_deployment()
    return scaling.change(deployment, SCALED | overrides, actor=deployment.owner)


def said(deployment: Deployment) -> list[str]:
    """Return what its events say, the last first."""
    return [event.what for event in deployment.events.all()]


def errors_of(deployment: Deployment, **fields: Any) -> set[str]:
    with pytest.raises(RejectedError) as refused:
        scaling.change(deployment, fields, actor=deployment.owner)
    return set(refused.value.errors)


def rule_errors_of(deployment: Deployment, **fields: Any) -> set[str]:
    with pytest.raises(RejectedError) as refused:
        scaling.add_rule(deployment, actor=deployment.owner, **fields)
    return set(refused.value.errors)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"max_replicas": 65}, "max_replicas"),
        ({"max_replicas": 0}, "max_replicas"),
        ({"min_replicas": 0}, "min_replicas"),
        ({"min_replicas": 5}, "max_replicas"),
        ({"down_after_seconds": 5}, "down_after_seconds"),
        ({"cooldown_seconds": -1}, "cooldown_seconds"),
        ({"idle_seconds": 59}, "idle_seconds"),
        ({"wake_seconds": 601}, "wake_seconds"),
        ({"idle_action": "sell"}, "idle_action"),
        ({"idle_seconds": 600, "max_replicas": None}, "idle_seconds"),
    ],
)
def test_bad_settings_are_refused_at_their_field(fields: dict[str, Any], field: str) -> None:
    assert errors_of(scaled_deployment(), **fields) == {field}


def test_the_policy_bounds_the_largest_number() -> None:
    deployment = make_deployment(make_user(policy=make_policy(max_sessions=3)))
    assert errors_of(deployment, max_replicas=4) == {"max_replicas"}
    assert scaling.change(deployment, {"max_replicas": 3}, actor=deployment.owner).max_replicas == 3


def test_settings_of_scaling_are_recorded() -> None:
    deployment, admin = make_deployment(), make_user(is_superuser=True)
    scaling.change(deployment, {"max_replicas": 4, "idle_seconds": 600}, actor=admin)
    scaling.change(deployment, {"max_replicas": 4}, actor=admin)
    assert said(deployment)[0] == "Changed its scaling: max replicas 4, idle seconds 600."
    assert deployment.events.count() == 2
    assert AuditEntry.objects.get().action == "change scaling"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"metric": "mood", "target": 1}, "metric"),
        ({"metric": "outstanding", "target": 0}, "target"),
        ({"metric": "outstanding", "target": float("nan")}, "target"),
        ({"metric": "outstanding", "target": 9}, "target"),
        ({"metric": "requests", "target": float("inf")}, "target"),
        ({"metric": "gpu", "target": 50}, "metric"),
        ({"metric": "query", "target": 1, "query": "up"}, "metric"),
        ({"metric": "requests", "target": 1, "query": "up"}, "query"),
    ],
)
def test_rules_that_cannot_be_met_are_refused(fields: dict[str, Any], field: str) -> None:
    deployment = scaled_deployment()
    services.change(deployment, {"concurrency": 4, "queue": 4}, actor=deployment.owner)
    assert rule_errors_of(deployment, **fields) == {field}


@pytest.mark.parametrize("query", ["", "  ", "up", "sum(secret)", "disabled", "x" * 1001])
def test_owners_choose_among_named_queries_alone(query: str, settings: Settings) -> None:
    settings.COMPUTE_PROMETHEUS_URL = "http://127.0.0.1:1"
    offer_query("offered", "up")
    offer_query("disabled", is_enabled=False)
    assert rule_errors_of(scaled_deployment(), metric="query", target=1, query=query) == {"query"}


def test_rules_are_added_changed_paused_and_removed() -> None:
    deployment, admin = scaled_deployment(), make_user(is_superuser=True)
    rule = scaling.add_rule(deployment, metric="outstanding", target=16, actor=deployment.owner)
    assert rule_errors_of(deployment, metric="outstanding", target=8) == {"metric"}
    assert scaling.change_rule(rule, target=8, actor=deployment.owner).target == 8
    assert scaling.change_rule(rule, is_paused=True, actor=admin).is_paused
    scaling.remove_rule(rule, actor=admin)
    assert said(deployment)[:4] == [
        "Rule removed: requests under way and waiting, 8 a replica.",
        "Rule paused: requests under way and waiting, 8 a replica.",
        "Rule changed: requests under way and waiting, 8 a replica.",
        "Rule added: requests under way and waiting, 16 a replica.",
    ]
    with translation.override("ko"):
        assert from_english(said(deployment)[0]) == "규칙을 없앴습니다: 진행 중이거나 기다리는 요청, 레플리카당 8."
    assert AuditEntry.objects.count() == 2
    with pytest.raises(RejectedError):
        scaling.remove_rule(rule, actor=admin)


def test_a_rule_that_became_impossible_can_still_be_paused() -> None:
    deployment = scaled_deployment()
    rule = scaling.add_rule(deployment, metric="outstanding", target=50, actor=deployment.owner)
    services.change(deployment, {"concurrency": 4, "queue": 4}, actor=deployment.owner)
    assert scaling.change_rule(rule, is_paused=True, actor=deployment.owner).is_paused
    with pytest.raises(RejectedError):
        scaling.change_rule(rule, is_paused=False, actor=deployment.owner)


def test_a_deployment_has_ten_rules_at_most(settings: Settings) -> None:
    settings.COMPUTE_PROMETHEUS_URL = "http://127.0.0.1:1"
    deployment = scaled_deployment()
    for number in range(11):
        offer_query(f"up{number}")
    for number in range(10):
        scaling.add_rule(deployment, metric="query", target=1, query=f"up{number}", actor=deployment.owner)
    assert rule_errors_of(deployment, metric="query", target=1, query="up10") == {GENERAL}
    assert ScalingRule.objects.count() == 10


def test_numbers_by_hand_stay_within_the_bounds() -> None:
    deployment = scaled_deployment(min_replicas=2)
    assert services.set_replicas(deployment, 3, actor=deployment.owner).replicas == 3
    for replicas in (1, 5):
        with pytest.raises(RejectedError) as refused:
            services.set_replicas(deployment, replicas, actor=deployment.owner)
        assert set(refused.value.errors) == {"replicas"}
    assert services.set_replicas(deployment, 0, actor=deployment.owner).replicas == 0


def test_scaling_starts_from_what_was_seen_alone() -> None:
    deployment = scaled_deployment()
    assert not scaling.scale(deployment, 3, "much to do", before=2)
    assert scaling.scale(deployment, 2, "much to do", before=1)
    assert not scaling.scale(deployment, 2, "much to do", before=1)
    assert said(deployment)[0] == "Scaled from 1 to 2: much to do."
    assert Deployment.objects.get().replicas == 2


def test_what_the_policy_refuses_is_said_once() -> None:
    deployment = scaled_deployment()
    policy = make_policy(max_sessions=1)
    deployment.owner.policy = policy
    deployment.owner.save()
    for _ in range(3):
        assert not scaling.scale(deployment, 2, "much to do", before=1)
    found = [event.what for event in deployment.events.all() if "by its load" in event.what]
    assert len(found) == 1
    assert Deployment.objects.get().replicas == 1


def test_a_request_wakes_what_sleeps_once() -> None:
    deployment = scaled_deployment(min_replicas=2, idle_seconds=60)
    assert not scaling.wake(deployment.pk)
    assert scaling.sleep(deployment, before=1)
    assert not scaling.sleep(deployment, before=0)
    assert [scaling.wake(deployment.pk) for _ in range(3)] == [True, False, False]
    row = Deployment.objects.get()
    assert (row.replicas, row.asleep_since) == (2, None)
    assert row.waking_since is not None


def test_processes_that_wake_at_once_wake_once() -> None:
    deployment = scaled_deployment(idle_seconds=60)
    scaling.sleep(deployment, before=1)
    woken: list[bool] = []

    def wake() -> None:
        woken.append(scaling.wake(deployment.pk))
        connection.close()

    threads = [threading.Thread(target=wake) for _ in range(4)]
    with transaction.atomic():
        Deployment.objects.select_for_update().get(pk=deployment.pk)
        for thread in threads:
            thread.start()
        until(lambda: waiting_for_locks() == len(threads))
    for thread in threads:
        thread.join(SECONDS)
    assert sorted(woken) == [False, False, False, True]
    assert deployment.events.filter(what__startswith="A request wakes it").count() == 1


def waiting_for_locks() -> int:
    """Return how many connections wait for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted")
        return int(cursor.fetchone()[0])


def test_what_was_stopped_by_hand_does_not_wake() -> None:
    deployment = scaled_deployment(idle_seconds=60)
    scaling.sleep(deployment, before=1)
    services.set_replicas(deployment, 0, actor=deployment.owner)
    assert not scaling.wake(deployment.pk)
    reconciliation.reconcile(deployment.pk)
    assert Deployment.objects.get().state == "STOPPED"


def test_what_has_ended_does_not_wake() -> None:
    deployment = scaled_deployment(idle_seconds=60)
    scaling.sleep(deployment, before=1)
    services.end(deployment, actor=deployment.owner)
    assert not scaling.wake(deployment.pk)
    assert not scaling.wake("0" * 16)


def test_without_sleep_it_wakes_at_once() -> None:
    deployment = scaled_deployment(idle_seconds=60)
    scaling.sleep(deployment, before=1)
    row = scaling.change(deployment, {"idle_seconds": None}, actor=deployment.owner)
    assert (row.replicas, row.asleep_since) == (1, None)


def test_another_revision_is_rolled_out_while_asleep() -> None:
    deployment = scaled_deployment(idle_seconds=60)
    scaling.sleep(deployment, before=1)
    services.new_revision(deployment, revision_request(), actor=deployment.owner)
    assert Deployment.objects.get().replicas == 0


def test_it_sleeps_now_and_wakes_now_by_hand() -> None:
    deployment, admin = scaled_deployment(min_replicas=2), make_user(is_superuser=True)
    for _ in range(2):
        row = scaling.sleep_now(deployment, actor=admin)
        assert (row.replicas, row.asleep_since is not None, row.state) == (0, True, "ASLEEP")
    assert scaling.change(deployment, {"cooldown_seconds": 7}, actor=admin).asleep_since is not None
    for _ in range(2):
        row = scaling.wake_now(deployment, actor=admin)
        assert (row.replicas, row.asleep_since, row.waking_since is not None) == (2, None, True)
    assert said(deployment)[:3] == ["Woken: 2 replicas to run.", "Changed its scaling: cooldown seconds 7.", SLEPT]
    assert {entry.action for entry in AuditEntry.objects.all()} == {"sleep", "wake", "change scaling"}


def test_what_would_never_wake_is_not_sent_to_sleep() -> None:
    deployment = make_deployment()
    with pytest.raises(RejectedError, match="set max replicas first"):
        scaling.sleep_now(deployment, actor=deployment.owner)
    scaling.change(deployment, SCALED, actor=deployment.owner)
    services.set_replicas(deployment, 0, actor=deployment.owner)
    for act in (scaling.sleep_now, scaling.wake_now):
        with pytest.raises(RejectedError, match="stopped"):
            act(deployment, actor=deployment.owner)


def test_nothing_sleeps_in_the_middle_of_a_canary() -> None:
    deployment = scaled_deployment(idle_seconds=60)
    rollout = StepwiseRollout.objects.create(deployment=deployment, strategy="canary", steps=[5])
    with pytest.raises(RejectedError, match="pass all its steps or go back first"):
        scaling.sleep_now(deployment, actor=deployment.owner)
    assert not scaling.sleep(deployment, before=1)
    rollout.delete()
    assert scaling.sleep(deployment, before=1)


def test_queries_that_owners_wrote_become_disabled_named_ones() -> None:
    deployment, other = scaled_deployment(), scaled_deployment(max_replicas=3)
    for row, expression in ((deployment, "up"), (other, "up"), (other, "sum(jobs)")):
        ScalingRule.objects.create(deployment=row, metric="query", target=1, query=expression)
    ScalingRule.objects.create(deployment=other, metric="requests", target=1)
    migration = import_module("deployments.migrations.0009_named_prometheus_queries")
    migration.name_queries(apps, None)
    found = {query.name: (query.expression, query.is_enabled) for query in PrometheusQuery.objects.all()}
    assert found == {"rule-1": ("sum(jobs)", False), "rule-2": ("up", False)}
    assert sorted(ScalingRule.objects.values_list("query", flat=True)) == ["", "rule-1", "rule-2", "rule-2"]
    migration.write_expressions(apps, None)
    assert sorted(ScalingRule.objects.values_list("query", flat=True)) == ["", "sum(jobs)", "up", "up"]
