"""Owners are told what became of their deployments: each thing once, also while it comes and goes."""

from datetime import UTC, datetime, timedelta

import pytest
from django.urls import reverse

from deployments import services
from deployments.access import tokens
from deployments.models import Deployment, DeploymentState, DeploymentToken, Replica, ReplicaHealth
from deployments.replicas import reconciliation
from deployments.tests.making import heal, make_deployment, revision_request, run_replicas, serving_deployment
from deployments.usage import metering
from notifications.delivery import deployments
from notifications.delivery.texts import text_of
from notifications.models import Notification, ServingWatch
from proxy.budgets import TokenUse
from resources import clock
from resources.models import Host, Image
from webhooks import services as webhooks
from webhooks.models import WebhookDelivery

pytestmark = pytest.mark.django_db
START = datetime(2026, 12, 5, 12, tzinfo=UTC)


class Clock:
    """The time of a test."""

    def __init__(self) -> None:
        self.now = START

    def after(self, **span: float) -> list[str]:
        """Let time pass and have owners told; return the kinds of all that they were told, oldest first."""
        self.now += timedelta(**span)
        deployments.announce()
        return list(Notification.objects.order_by("pk").values_list("kind", flat=True))


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Set the clock."""
    made = Clock()
    monkeypatch.setattr(clock, "now", lambda: made.now)
    return made


def set_health(health: ReplicaHealth) -> None:
    """Have all replicas be so."""
    Replica.objects.update(health=health.value)


def test_what_does_not_serve_is_told_once(time: Clock) -> None:
    deployment = serving_deployment(1)
    assert time.after(seconds=5) == []
    Deployment.objects.update(state=DeploymentState.FAILING, problem="A replica is unhealthy: HTTP 500\nlast line")
    set_health(ReplicaHealth.UNHEALTHY)
    assert time.after(seconds=5) == []
    assert time.after(seconds=29) == []
    assert time.after(seconds=1) == ["DEPLOYMENT_DOWN"]
    assert time.after(hours=1) == ["DEPLOYMENT_DOWN"]
    text = text_of(Notification.objects.get())
    assert (text.title, text.level) == ("model does not serve", "danger")
    assert text.body == "No replica takes requests. A replica is unhealthy: HTTP 500"
    assert text.url == reverse("deployments:detail", args=[deployment.pk])
    assert Notification.objects.get().email_due_at


def test_what_flaps_is_not_told_again(time: Clock) -> None:
    serving_deployment(1)
    time.after(seconds=5)
    for _ in range(3):
        set_health(ReplicaHealth.UNHEALTHY)
        time.after(seconds=5)
        time.after(minutes=1)
        set_health(ReplicaHealth.HEALTHY)
        time.after(seconds=5)
        assert time.after(minutes=4) == ["DEPLOYMENT_DOWN"]
    assert time.after(minutes=1) == ["DEPLOYMENT_DOWN", "DEPLOYMENT_UP"]
    assert time.after(hours=1) == ["DEPLOYMENT_DOWN", "DEPLOYMENT_UP"]
    set_health(ReplicaHealth.UNHEALTHY)
    time.after(seconds=5)
    assert time.after(seconds=30) == ["DEPLOYMENT_DOWN", "DEPLOYMENT_UP", "DEPLOYMENT_DOWN"]


def test_what_is_not_to_serve_is_not_missed(time: Clock) -> None:
    starting, stopped = make_deployment(name="starting"), serving_deployment(1, name="stopped")
    time.after(seconds=5)
    services.set_replicas(stopped, 0, actor=stopped.owner)
    set_health(ReplicaHealth.UNHEALTHY)
    time.after(seconds=5)
    assert time.after(hours=1) == []
    assert not ServingWatch.objects.exists()
    Deployment.objects.filter(pk=starting.pk).update(state=DeploymentState.FAILING)
    time.after(seconds=5)
    assert time.after(seconds=30) == ["DEPLOYMENT_DOWN"]


def test_a_rollout_is_told_when_it_is_over(time: Clock) -> None:
    deployment, host = serving_deployment(1), Host.objects.get()
    assert time.after(seconds=1) == []
    services.new_revision(deployment, revision_request(image=Image.objects.get()), actor=deployment.owner)
    reconciliation.reconcile(deployment.pk)
    assert time.after(seconds=1) == []
    heal(*run_replicas(deployment, host))
    for _ in range(3):
        time.after(minutes=2)
        reconciliation.reconcile(deployment.pk)
    Replica.objects.filter(draining_since__isnull=False).delete()
    reconciliation.reconcile(deployment.pk)
    assert time.after(seconds=1) == ["ROLLOUT_DONE"]
    assert text_of(Notification.objects.get()).title == "All replicas of model run revision 2"
    assert time.after(days=1) == ["ROLLOUT_DONE"]


def test_a_revision_that_is_given_up_is_told(time: Clock) -> None:
    deployment = serving_deployment(1)
    row = services.new_revision(
        deployment, revision_request(image=Image.objects.get()), actor=deployment.owner, activates=False
    )
    Deployment.objects.update(given_up=row, given_up_why="It has more errors.", activated_at=time.now)
    for _ in range(2):
        assert time.after(seconds=5) == ["REVISION_FAILED"]
    text = text_of(Notification.objects.get())
    assert text.title == "Revision 2 of model was given up"
    assert text.body == "It has more errors. The revision before is current again."


def test_a_token_is_told_a_week_before_it_expires(time: Clock) -> None:
    deployment = make_deployment()
    for days in (30, 5):
        tokens.create_token(
            deployment, name=f"for {days}", actor=deployment.owner, expires_at=time.now + timedelta(days=days)
        )
    assert time.after(days=1) == []
    assert time.after(days=22) == ["TOKEN_EXPIRING"]
    assert time.after(days=1) == ["TOKEN_EXPIRING"]
    text = text_of(Notification.objects.get())
    assert (text.title, text.level) == ("The token for 30 of model expires soon", "warning")
    assert "2027-01-04 12:00 UTC" in text.body


def test_a_budget_is_told_at_eighty_percent_and_spent(time: Clock) -> None:
    deployment = make_deployment()
    token = tokens.create_token(deployment, name="shop", actor=deployment.owner, monthly_requests=10).token
    tokens.create_token(deployment, name="other", actor=deployment.owner)
    for requests, kinds in ((7, []), (1, ["BUDGET_LOW"]), (1, ["BUDGET_LOW"]), (1, ["BUDGET_LOW", "BUDGET_SPENT"])):
        metering.store({token.pk: TokenUse(requests)})
        assert time.after(seconds=5) == kinds
    low, spent = [text_of(each) for each in Notification.objects.order_by("pk")]
    assert low.body == "It has used 8 of 10 requests of the month at model."
    assert spent.body.startswith("It has used 10 of 10 requests of the month at model. Its requests are refused")
    assert (low.level, spent.level) == ("warning", "danger")
    tokens.change_limits(token, {"monthly_requests": 20}, actor=deployment.owner)
    assert len(time.after(seconds=5)) == 2
    metering.store({token.pk: TokenUse(6, 60, 40)})
    assert time.after(seconds=5)[2:] == ["BUDGET_LOW"]
    tokens.change_limits(token, {"monthly_requests": 0, "monthly_tokens": 100}, actor=deployment.owner)
    assert time.after(seconds=5)[3:] == ["BUDGET_SPENT"]
    assert "100 of 100 tokens of models" in text_of(Notification.objects.latest("pk")).body
    time.after(days=31)
    metering.store({token.pk: TokenUse(1, 100, 0)})
    assert time.after(seconds=5)[4:] == ["BUDGET_SPENT"]
    DeploymentToken.objects.update(revoked_at=time.now, monthly_tokens=1)
    assert len(time.after(seconds=5)) == 5


def test_webhooks_get_the_same(time: Clock) -> None:
    deployment = serving_deployment(1)
    types = ["notification.deployment_down", "notification.budget_spent"]
    webhooks.create(deployment.owner, url="https://example.org/hook", types=types)
    time.after(seconds=5)
    set_health(ReplicaHealth.UNHEALTHY)
    time.after(seconds=5)
    time.after(minutes=1)
    assert list(WebhookDelivery.objects.values_list("type", flat=True)) == types[:1]
