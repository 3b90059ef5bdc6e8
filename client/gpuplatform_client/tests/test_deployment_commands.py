"""Commands on deployments as a person runs them, against a live server whose replicas nobody starts."""

import json
from pathlib import Path

import pytest
from django.utils import timezone

from accounts.models import ApiToken, User
from deployments.models import Deployment, DeploymentToken, Replica, Revision, StepwiseRollout
from deployments.tests.model_folders import DEFINITION, WRONG, make_model_folder, store_model
from deployments.tests.rolling import answer
from deployments.tests.serving import make_replica
from deployments.usage import metering
from gpuplatform_client.tests.program import Command, RunningProgram
from proxy.authorization.signing import digest
from proxy.budgets import TokenUse
from resources.models import Host
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.factories import make_folder, make_group, make_host, make_image, make_root, make_user
from tests.live import LiveServer
from tests.wait import until

pytestmark = [pytest.mark.loopback, pytest.mark.django_db(transaction=True)]
DEPLOY = ("deploy", "chat", "--image", "llm", "--cpu", "2", "--memory", "4g")


@pytest.fixture
def user(transactional_db: None) -> User:
    make_host(group=make_group(name="lab"), gpus=1)
    make_image(reference="team/llm:1", environment="LLM", version="1")
    return make_user(email="user@example.org")


def test_deploying_again_makes_a_revision(signed_in: Command, user: User) -> None:
    make_folder(user, name="weights", root=make_root(Host.objects.get()))
    options = (
        "--variant",
        "vllm",
        "--fgpu",
        "0.5",
        "--folder",
        "weights",
        "-e",
        "SEED=7",
        "--replicas",
        "2",
        "--public",
    )
    made = signed_in(*DEPLOY, *options, "--public", "--health-start", "600")
    assert made.exit_code == 0, made.stderr
    deployment = Deployment.objects.get()
    assert deployment.label in made.stdout
    revision = Revision.objects.get()
    assert (str(revision.variant), revision.fgpu, revision.start_seconds) == ("vLLM", 500, 600)
    assert (deployment.replicas, deployment.is_public, revision.environment) == (2, True, {"SEED": "7"})
    assert revision.mounts.get().is_model
    again = signed_in("deploy", "chat", "--cpu", "3", "--note", "more cores", "--replicas", "1")
    assert (again.exit_code, "Revision 2 of chat" in again.stderr) == (0, True)
    second = Revision.objects.get(number=2)
    assert (second.cpu, second.command, second.note) == (3, revision.command, "more cores")
    deployment.refresh_from_db()
    assert (deployment.replicas, deployment.revision) == (1, second)
    signed_in("deploy", "chat", "--no-public")
    assert Revision.objects.count() == 2  # nothing about what runs was named
    refused = signed_in("deploy", "chat", "--group", "other")
    assert (refused.exit_code, "keeps its resource group" in refused.stderr) == (1, True)


def test_a_folder_fills_what_is_left_out(signed_in: Command, user: User, tmp_path: Path) -> None:
    _, files = make_model_folder(user, tmp_path, host=Host.objects.get())
    assert "has no model-definition.yaml" in signed_in(*DEPLOY, "--definition", "models").stderr
    (files / "model-definition.yaml").write_text(WRONG)
    refused = signed_in(*DEPLOY, "--definition", "models")
    assert (refused.exit_code, "line 6, models[0].service.port" in refused.stderr) == (5, True)
    (files / "model-definition.yaml").write_text(DEFINITION)
    store_model(files / "mlruns/0/1/artifacts/letters", flavor="spark")
    store_model(files / "mlruns/0/2/artifacts/spam")
    several = signed_in(*DEPLOY, "--definition", "models")
    assert several.exit_code == 1
    assert "spam  2026-01-02 03:04  python_function, sklearn  mlruns/0/2/artifacts/spam/MLmodel" in several.stderr
    assert "python_function" in signed_in(*DEPLOY, "--definition", "models", "--model", "letters").stderr
    assert not Deployment.objects.exists()
    own = ("-e", "SEED=8", "--port", "9000", "--health-start", "500")
    made = signed_in(*DEPLOY, "--definition", "models", "--model", "digits", *own)
    assert (made.exit_code, "author" in made.stderr) == (0, True)
    revision = Revision.objects.get()
    assert revision.command == "exec python3 -m http.server --directory /srv/model 8000"
    assert (revision.port, revision.cpu, revision.environment) == (9000, 2, {"SEED": "8"})
    assert (revision.health_path, revision.start_seconds, revision.retries) == ("/health", 500, 3)
    signed_in("deploy", "chat", "--definition", "models:mlruns", "--model", "spam")
    second = Revision.objects.get(number=2)
    assert (second.variant and second.variant.name, second.mounts.get().is_model) == ("mlflow", True)


def test_what_is_refused_names_the_field(signed_in: Command) -> None:
    refused = signed_in("deploy", "Chat", "--image", "llm", "--cpu", "2", "--memory", "4g", "--command", "serve")
    assert refused.exit_code == 5
    assert "name" in refused.stderr
    assert signed_in(*DEPLOY, "--command", "serve", "--", "serve").exit_code == 2
    assert "no deployment 'chat'" in signed_in("deployments", "show", "chat").stderr
    assert not Deployment.objects.exists()


def test_deployments_are_listed_scaled_and_ended(signed_in: Command) -> None:
    signed_in(*DEPLOY, "--", "python", "serve.py", "--title", "a b")
    deployment = Deployment.objects.get()
    assert deployment.revision
    assert deployment.revision.command == "python serve.py --title 'a b'"
    make_replica(deployment)
    listed = signed_in("deployments").stdout
    assert [word in listed for word in ("chat", "1/1", deployment.label)] == [True] * 3
    assert signed_in("deployments", "-o", "name").stdout == f"{deployment.pk}\n"
    assert json.loads(signed_in("deployments", "ls", "-o", "json").stdout)["name"] == "chat"
    assert "user@example.org" in signed_in("deployments", "-o", "wide").stdout
    shown = signed_in("deployments", "show", "chat").stdout
    assert [word in shown for word in ("healthy", "serving", "RUNNING", "1 (current)")] == [True] * 4
    assert signed_in("deployments", "scale", "chat", "3").exit_code == 0
    signed_in("deploy", "chat", "--cpu", "1")
    assert "2 (current)" in signed_in("deployments", "revisions", "chat").stdout
    assert "revision 1" in signed_in("deployments", "rollback", "chat").stdout
    assert "revision 2" in signed_in("deployments", "rollback", "chat", "--to", "2").stdout
    assert signed_in("deployments", "restart", deployment.pk).exit_code == 0
    assert "Restarted." in signed_in("deployments", "events", "chat").stdout
    assert "has ended" in signed_in("deployments", "end", "chat").stdout
    assert deployment.pk not in signed_in("deployments").stdout


def test_superadmins_give_host_names(signed_in: Command, user: User) -> None:
    signed_in(*DEPLOY, "--command", "serve")
    assert signed_in("deployments", "hosts", "chat", "models.example.org").exit_code == 4
    User.objects.update(is_superuser=True)
    given = signed_in("deployments", "hosts", "chat", "models.example.org", "b.example.org")
    assert (given.exit_code, "b.example.org" in given.stdout) == (0, True)
    refused = signed_in("deployments", "hosts", "chat", "no name")
    assert (refused.exit_code, "is no host name" in refused.stderr) == (5, True)
    assert "models.example.org" in signed_in("deployments", "show", "chat").stdout
    assert signed_in("deployments", "hosts", "chat").exit_code == 0
    assert not Deployment.objects.get().hosts.exists()


def test_tokens_are_printed_once_and_revoked(signed_in: Command) -> None:
    signed_in(*DEPLOY, "--command", "serve")
    made = signed_in("deployments", "token", "create", "chat", "shop", "--days", "30", "--rate", "60")
    token = DeploymentToken.objects.get()
    assert digest(made.stdout.strip()) == token.digest
    listed = signed_in("deployments", "token", "ls", "chat").stdout
    assert ("shop" in listed, made.stdout.strip() in listed) == (True, False)
    assert signed_in("deployments", "token", "revoke", "chat", "shop").exit_code == 0
    assert not DeploymentToken.objects.valid().exists()
    assert signed_in("deployments", "token", "revoke", "chat", "shop").exit_code == 4


def test_limits_of_tokens_are_set_and_their_use_listed(signed_in: Command) -> None:
    signed_in(*DEPLOY, "--command", "serve")
    signed_in("deployments", "token", "create", "chat", "shop", "--monthly-requests", "10")
    token = DeploymentToken.objects.get()
    metering.store({token.pk: TokenUse(4, 7, 12)})
    signed_in("deployments", "token", "set", "chat", "shop", "--monthly-tokens", "100", "--rate", "6")
    token.refresh_from_db()
    assert (token.rate_per_minute, token.monthly_requests, token.monthly_tokens) == (6, 10, 100)
    listed = signed_in("deployments", "token", "ls", "chat").stdout
    assert ("4/10" in listed, "19/100" in listed) == (True, True)
    row = signed_in("deployments", "usage", "chat").stdout.splitlines()[-1]
    assert row.split() == [f"{timezone.now():%Y-%m}", "shop", "4", "7", "12"]
    assert signed_in("deployments", "token", "set", "chat", "other", "--rate", "1").exit_code == 4


def test_logs_of_all_replicas_are_printed_and_followed(signed_in: Command) -> None:
    signed_in(*DEPLOY, "--command", "serve")
    deployment = Deployment.objects.get()
    for name, words in (("chat-1-a", "first\n"), ("chat-1-b", "second\n")):
        replica = make_replica(deployment)
        Session.objects.filter(pk=replica.pk).update(log_tail=words, name=name)
        Session.objects.get(pk=replica.pk).move_to(
            Status.ERROR, Reason.OUT_OF_MEMORY, fields={"ended_at": timezone.now()}
        )
    assert signed_in("deployments", "logs", "chat").stdout == "chat-1-a | first\nchat-1-b | second\n"
    assert signed_in("deployments", "logs", "chat", "--replica", "chat-1-b").stdout == "chat-1-b | second\n"
    assert signed_in("deployments", "logs", "chat", "--replica", "chat-1-c").exit_code == 5
    followed = signed_in("deployments", "logs", "chat", "-f", "--replica", "chat-1-a").stdout
    assert followed == "chat-1-a | first\n"
    signed_in("deployments", "end", "chat")
    Deployment.objects.update(state="ENDED")
    assert "chat-1-b | second" in signed_in("deployments", "logs", deployment.pk, "-f").stdout


def test_a_rollout_is_followed_until_it_is_done(signed_in: Command, server: LiveServer, tmp_path: Path) -> None:
    signed_in(*DEPLOY, "--command", "serve")
    deployment = Deployment.objects.get()
    old = make_replica(deployment)
    assert signed_in("rollout", "chat").exit_code == 0
    signed_in("deploy", "chat", "--cpu", "1")
    deployment.refresh_from_db()
    token = ApiToken.objects.issue(deployment.owner)[1]
    with RunningProgram(server.url, token, tmp_path, "rollout", "chat") as program:
        until(lambda: any("0 of this revision. 1 of other revisions" in line for line in program.messages))
        make_replica(deployment)
        until(lambda: any("2 of 1 replicas ready, 1 of this revision" in line for line in program.messages))
        Replica.objects.filter(pk=old.pk).update(draining_since=timezone.now())
        old.session.delete()
        assert program.wait() == 0
    assert "1 of 1 replicas ready, 1 of this revision" in program.messages[-1]


def test_how_revisions_are_rolled_out_is_set(signed_in: Command) -> None:
    steps = ("--strategy", "canary", "--canary-steps", "5,50", "--step-seconds", "60", "--max-error-points", "0.5")
    assert signed_in(*DEPLOY, "--command", "serve", *steps).exit_code == 0
    deployment = Deployment.objects.get()
    settings = (deployment.strategy, deployment.canary_steps, deployment.step_seconds, deployment.max_error_points)
    assert settings == ("canary", [5, 50], 60, 0.5)
    assert "canary: 5, 50 % of the requests, 60 s each" in signed_in("deployments", "show", "chat").stdout
    changed = signed_in("deployments", "set", "chat", "--strategy", "blue-green", "--step-seconds", "30")
    assert changed.stdout == "blue_green: old replicas stay for 30 s\n"
    assert signed_in("deployments", "set", "chat", "--canary-steps", "5,x").exit_code == 2
    refused = signed_in("deployments", "set", "chat", "--canary-steps", "50,5")
    assert (refused.exit_code, "canary_steps" in refused.stderr) == (5, True)


def test_a_rollout_is_shown_promoted_and_aborted(signed_in: Command, user: User) -> None:
    signed_in(*DEPLOY, "--command", "serve", "--strategy", "canary")
    deployment = Deployment.objects.get()
    make_replica(deployment)
    signed_in("deploy", "chat", "--cpu", "1")
    assert "It gets 5 % when its replicas are healthy" in signed_in("rollout", "chat", "--no-follow").stdout
    refused = signed_in("rollout", "chat", "--promote")
    assert (refused.exit_code, "that is awaited" in refused.stderr) == (5, True)
    StepwiseRollout.objects.update(begun_at=timezone.now())
    answer(deployment, 1, 190, 19)
    answer(deployment, 2, 10)
    shown = signed_in("rollout", "chat", "--no-follow").stdout
    assert [line in shown for line in ("Revision 2 gets 5 %", "Revision 1: 190 requests, 10.0 % failed, 95 %")] == [
        True
    ] * 2
    assert "Revision 2: 10 requests, 0.0 % failed" in shown
    promoted = signed_in("rollout", "chat", "--promote").stdout
    assert "Revision 2 gets 5 % of the requests. It gets 50 % when its replicas are healthy" in promoted
    assert signed_in("rollout", "chat", "--to-all", "--abort").exit_code == 2
    assert "Revision 1: 1 of 1 replicas ready" in signed_in("rollout", "chat", "--abort").stdout
    assert not StepwiseRollout.objects.exists()


def test_a_rollout_passes_all_its_steps_at_once(signed_in: Command, user: User) -> None:
    signed_in(*DEPLOY, "--command", "serve", "--strategy", "canary")
    make_replica(Deployment.objects.get())
    signed_in("deploy", "chat", "--cpu", "1")
    assert "Revision 2: 1 of 1 replicas ready" in signed_in("rollout", "chat", "--to-all").stdout
    assert not StepwiseRollout.objects.exists()


def test_a_dry_run_says_whether_there_is_room(signed_in: Command, user: User) -> None:
    room = "There is room now: 1 replica can start at once, while what serves goes on.\n"
    assert signed_in(*DEPLOY, "--command", "serve", "--dry-run").stdout == room
    assert not Deployment.objects.exists()
    signed_in(*DEPLOY, "--command", "serve")
    assert signed_in("deploy", "chat", "--cpu", "1", "--dry-run").stdout == room
    assert "room now: 3 replicas can" in signed_in("deployments", "scale", "chat", "4", "--dry-run").stdout
    assert "room now: 3 replicas can" in signed_in("deploy", "chat", "--replicas", "4", "--dry-run").stdout
    assert "too little room now: 8 of 63" in signed_in("deployments", "scale", "chat", "64", "--dry-run").stdout
    assert "No further replica" in signed_in("deployments", "rollback", "chat", "--to", "1", "--dry-run").stdout
    assert "no revision before" in signed_in("deployments", "rollback", "chat", "--dry-run").stderr
    refused = signed_in("deploy", "chat", "--cpu", "99", "--dry-run")
    assert (refused.exit_code, "cpu" in refused.stderr) == (5, True)
    assert (Revision.objects.count(), Deployment.objects.get().replicas) == (1, 1)
