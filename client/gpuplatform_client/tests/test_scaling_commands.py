"""Commands on how a deployment follows its load, as a person runs them against a live server."""

import json

import pytest

from accounts.models import User
from deployments.models import Deployment, ScalingRule
from deployments.tests.making import make_deployment, revision_request
from gpuplatform_client.tests.program import Command
from tests.factories import make_host, make_user

pytestmark = [pytest.mark.loopback, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def user(transactional_db: None) -> User:
    return make_user(email="user@example.org")


@pytest.fixture
def deployment(user: User) -> Deployment:
    return make_deployment(user, name="chat")


def test_bounds_and_sleep_are_shown_and_changed(signed_in: Command, deployment: Deployment) -> None:
    assert "1 wanted now; not scaled by its load" in signed_in("deployments", "scaling", "chat").stdout
    times = ("--sleep-after", "30m", "--sleep", "end", "--hold", "60s", "--down-after", "90s", "--cooldown", "0s")
    changed = signed_in("deployments", "scaling", "chat", "--min", "1", "--max", "4", "--preemptible", *times)
    assert changed.exit_code == 0, changed.stderr
    words = (
        "1 to 4, 1 wanted now",
        "after 30m without requests, and ends all",
        "requests 1m",
        "after 90s",
        "least 0s",
        "beyond 1, to",
    )
    assert [each for each in words if each not in changed.stdout] == []
    deployment.refresh_from_db()
    assert (deployment.min_replicas, deployment.max_replicas, deployment.idle_seconds) == (1, 4, 1800)
    assert (deployment.wake_seconds, deployment.down_after_seconds, deployment.cooldown_seconds) == (60, 90, 0)
    assert changed.stdout == signed_in("deployments", "scaling", "chat").stdout
    signed_in("deployments", "scaling", "chat", "--sleep-after", "never", "--max", "none")
    deployment.refresh_from_db()
    assert (deployment.max_replicas, deployment.idle_seconds) == (None, None)


def test_rules_are_added_paused_and_removed(signed_in: Command, deployment: Deployment) -> None:
    made = signed_in("deployments", "scaling-rules", "chat", "--add", "outstanding=16")
    assert made.exit_code == 0, made.stderr
    rule = ScalingRule.objects.get()
    assert (rule.metric, rule.target) == ("outstanding", 16)
    shown = json.loads(signed_in("deployments", "scaling-rules", "chat", "-o", "json").stdout)
    assert (shown["id"], shown["paused"]) == (rule.pk, False)
    assert "no, paused" in signed_in("deployments", "scaling-rules", "chat", "--pause", str(rule.pk)).stdout
    assert "yes" in signed_in("deployments", "scaling-rules", "chat", "--resume", str(rule.pk)).stdout
    assert signed_in("deployments", "scaling-rules", "chat", "--remove", str(rule.pk), "-o", "name").stdout == ""
    assert signed_in("deployments", "scaling-rules", "chat", "--remove", str(rule.pk)).exit_code == 4
    assert not ScalingRule.objects.exists()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("scaling", "chat", "--max", "many"), "--max"),
        (("scaling", "chat", "--sleep-after", "30"), "--sleep-after"),
        (("scaling", "chat", "--hold", "1 hour"), "--hold"),
        (("scaling-rules", "chat", "--add", "outstanding"), "--add"),
        (("scaling-rules", "chat", "--add", "requests=nan"), "--add"),
        (("scaling-rules", "chat", "--query", "up"), "--query"),
        (("scaling-rules", "chat", "--add", "requests=1", "--remove", "1"), "--remove"),
    ],
)
def test_a_wrong_option_is_named(signed_in: Command, wrong: tuple[str, ...], said: str) -> None:
    refused = signed_in("deployments", *wrong)
    assert (refused.exit_code, said in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("scaling", "chat", "--min", "5", "--max", "4"), "max_replicas"),
        (("scaling", "chat", "--max", "4", "--sleep-after", "10s"), "idle_seconds"),
        (("scaling", "chat", "--sleep", "nap"), "idle_action"),
        (("scaling-rules", "chat", "--add", "mood=1"), "metric"),
        (("scaling-rules", "chat", "--add", "query=1"), "metric"),
    ],
)
def test_what_the_platform_refuses_names_the_field(
    signed_in: Command, deployment: Deployment, wrong: tuple[str, ...], said: str
) -> None:
    refused = signed_in("deployments", *wrong)
    assert (refused.exit_code, said in refused.stderr) == (5, True)
    assert not ScalingRule.objects.exists()


def test_it_is_sent_to_sleep_and_woken(signed_in: Command, deployment: Deployment) -> None:
    assert "set max replicas first" in signed_in("deployments", "sleep", "chat").stderr
    signed_in("deployments", "scaling", "chat", "--max", "4")
    assert "Asleep" in signed_in("deployments", "sleep", "chat").stdout
    assert "1 wanted now" in signed_in("deployments", "wake", "chat").stdout
    deployment.refresh_from_db()
    assert (deployment.replicas, deployment.asleep_since) == (1, None)


def test_the_most_of_a_share_is_set_and_shown(signed_in: Command, user: User) -> None:
    make_deployment(user, name="draw", host=make_host(gpus=1), revision=revision_request(fgpu=200))
    changed = signed_in("deployments", "scaling", "draw", "--max", "4", "--max-fgpu", "0.8")
    assert "to 0.8 fGPU a replica" in changed.stdout, changed.stderr
    assert "Grows" not in signed_in("deployments", "scaling", "draw", "--max-fgpu", "none").stdout
    refused = signed_in("deployments", "scaling", "draw", "--max-fgpu", "9")
    assert (refused.exit_code, "max_fgpu" in refused.stderr) == (5, True)
