"""Commands on deployments: what they store, refuse and record."""

from dataclasses import replace
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from accounts.models import AuditEntry
from deployments import services
from deployments.access import tokens
from deployments.models import Deployment, DeploymentState, HealthKind, Revision, RuntimeVariant
from deployments.requests import HealthCheck
from deployments.tests.making import deployment_request, make_deployment, revision_request
from endpoints.routing import service_routes
from folders.models import Folder, HostRoot
from sessions.errors import GENERAL, RejectedError
from sessions.launching.mounts import MountRequest
from tests.factories import make_folder, make_group, make_host, make_policy, make_user

pytestmark = pytest.mark.django_db


def test_create_stores_revision_1_as_current() -> None:
    deployment = make_deployment(replicas=2)
    assert deployment.revision is not None
    assert (deployment.revision.number, deployment.replicas, deployment.label) == (1, 2, f"model--{deployment.pk}")
    assert [event.what for event in deployment.events.all()] == ["Created with 2 replicas."]
    assert Deployment.objects.labelled(deployment.label).get() == deployment


@pytest.mark.parametrize(
    ("field", "overrides"),
    [
        ("name", {"name": "Model"}),
        ("name", {"name": "a--b"}),
        ("name", {"name": "a-"}),
        ("name", {"name": "a" * 21}),
        ("replicas", {"replicas": 65}),
        ("replicas", {"replicas": -1}),
        ("max_surge", {"max_surge": 0, "max_unavailable": 0}),
        ("sticky", {"sticky": "ip"}),
        ("sticky", {"sticky": "header:Cookie"}),
        ("sticky", {"sticky": "header:a b"}),
        ("queue", {"queue": -1}),
        ("concurrency", {"concurrency": 100_001}),
        ("drain_seconds", {"drain_seconds": 3601}),
        ("allowed_origins", {"allowed_origins": ["https://page.example/"]}),
        ("allowed_origins", {"allowed_origins": ["page.example"]}),
        ("allowed_origins", {"allowed_origins": ["https://Page.example"]}),
        ("allowed_origins", {"allowed_origins": ["https://*.page.example"]}),
        ("allowed_origins", {"allowed_origins": ["https://me@page.example"]}),
        ("allowed_origins", {"allowed_origins": ["null"]}),
        ("allowed_origins", {"allowed_origins": ["https://page.example:443"]}),
        ("allowed_origins", {"allowed_origins": ["https://page.example:65536"]}),
        ("allowed_origins", {"allowed_origins": ["https://page.example\r\nX: y"]}),
        ("allowed_origins", {"allowed_origins": ["https://page.example"] * 2}),
        ("allowed_origins", {"allowed_origins": [f"https://page{number}.example" for number in range(21)]}),
        ("allowed_origins", {"allowed_origins": ["*", "https://page.example"]}),
        ("allowed_origins", {"allowed_origins": ["*"], "sticky": "cookie"}),
    ],
)
def test_create_refuses_bad_settings_at_their_field(field: str, overrides: dict[str, Any]) -> None:
    with pytest.raises(RejectedError) as refused:
        make_deployment(**overrides)
    assert set(refused.value.errors) == {field}
    assert not Deployment.objects.exists()


@pytest.mark.parametrize(
    ("field", "overrides"),
    [
        ("command", {"command": " "}),
        ("command", {"command": "a\0"}),
        ("port", {"port": 80}),
        ("cpu", {"cpu": 0}),
        ("memory", {"memory": 1}),
        ("environment", {"environment": {"LD_PRELOAD": "x"}}),
        ("note", {"note": "n" * 201}),
        ("health_path", {"health": HealthCheck(path="health")}),
        ("health_path", {"health": HealthCheck(path="/a b")}),
        ("health_path", {"health": HealthCheck(path="/\r\nX: y")}),
        ("timeout_seconds", {"health": HealthCheck(interval_seconds=1, timeout_seconds=2)}),
        ("retries", {"health": HealthCheck(retries=0)}),
        ("start_seconds", {"health": HealthCheck(start_seconds=7201)}),
    ],
)
def test_a_revision_is_refused_at_its_field(field: str, overrides: dict[str, Any]) -> None:
    with pytest.raises(RejectedError) as refused:
        make_deployment(revision=revision_request(**overrides))
    assert field in refused.value.errors


def test_errors_of_deployment_and_revision_come_together() -> None:
    with pytest.raises(RejectedError) as refused:
        make_deployment(name="NO", revision=revision_request(port=1))
    assert {"name", "port"} <= set(refused.value.errors)


def test_a_name_is_free_again_after_the_end() -> None:
    owner = make_user()
    first = make_deployment(owner)
    with pytest.raises(RejectedError) as refused:
        make_deployment(owner)
    assert set(refused.value.errors) == {"name"}
    services.end(first, actor=owner)
    assert make_deployment(owner).pk != first.pk


def test_more_replicas_than_the_policy_allows_are_refused() -> None:
    owner = make_user(policy=make_policy(cpu=3))
    with pytest.raises(RejectedError) as refused:
        make_deployment(owner, replicas=4)
    assert set(refused.value.errors) == {"replicas"}
    deployment = make_deployment(owner, replicas=3)
    with pytest.raises(RejectedError):
        services.set_replicas(deployment, 4, actor=owner)


def test_a_variant_fills_what_the_request_leaves_out() -> None:
    variant = RuntimeVariant.objects.get(name="vllm")
    owner = make_user()
    folder = make_folder(owner=owner)
    host = make_host()
    _on_host(folder, host)
    request = revision_request(variant=variant, command="", model_folder=MountRequest(folder=folder))
    revision = make_deployment(owner, host=host, revision=request).revision
    assert revision is not None
    assert (revision.port, revision.health_path, revision.command) == (8000, "/health", variant.command)
    mount = revision.mounts.get()
    assert (mount.is_model, mount.is_read_only, mount.path) == (True, True, "/srv/model")


def test_a_disabled_variant_is_refused() -> None:
    variant = RuntimeVariant.objects.get(name="tgi")
    variant.is_enabled = False
    with pytest.raises(RejectedError) as refused:
        make_deployment(revision=revision_request(variant=variant))
    assert set(refused.value.errors) == {"variant"}


def test_without_a_path_the_port_alone_is_probed() -> None:
    variant = RuntimeVariant(name="mine", title="Mine", command="run", port=9000, health_path="")
    variant.save()
    revision = make_deployment(revision=revision_request(variant=variant, command="")).revision
    assert revision is not None
    assert (revision.health_kind, revision.health_path) == (HealthKind.TCP, "")


def test_a_revision_never_changes() -> None:
    deployment = make_deployment()
    with pytest.raises(IntegrityError), transaction.atomic():
        Revision.objects.filter(deployment=deployment).update(command="other")
    creator = make_user()
    Revision.objects.filter(deployment=deployment).update(created_by=creator)  # as the removal of a user does


def test_activating_remembers_what_to_return_to() -> None:
    deployment = make_deployment()
    first, owner = deployment.revision, deployment.owner
    second = services.new_revision(deployment, revision_request(note="better"), actor=owner)
    row = Deployment.objects.get(pk=deployment.pk)
    assert (row.revision, row.previous_revision, second.number) == (second, first, 2)
    row = services.abort_rollout(row, actor=owner)
    assert (row.revision, row.previous_revision) == (first, second)


def test_a_revision_may_be_stored_without_being_activated() -> None:
    deployment = make_deployment()
    services.new_revision(deployment, revision_request(), actor=deployment.owner, activates=False)
    assert Deployment.objects.get(pk=deployment.pk).revision == deployment.revision
    with pytest.raises(RejectedError) as refused:
        services.abort_rollout(deployment, actor=deployment.owner)
    assert set(refused.value.errors) == {GENERAL}


def test_a_revision_of_another_deployment_is_refused() -> None:
    deployment, other = make_deployment(), make_deployment()
    assert other.revision is not None
    with pytest.raises(RejectedError) as refused:
        services.activate(deployment, other.revision, actor=deployment.owner)
    assert set(refused.value.errors) == {"revision"}


def test_a_revision_with_a_deleted_folder_cannot_return() -> None:
    owner, host = make_user(), make_host()
    folder = make_folder(owner=owner)
    _on_host(folder, host)
    request = revision_request(model_folder=MountRequest(folder=folder))
    deployment = make_deployment(owner, host=host, revision=request)
    services.new_revision(deployment, revision_request(), actor=owner)
    Folder.objects.filter(pk=folder.pk).delete()
    with pytest.raises(RejectedError) as refused:
        services.abort_rollout(deployment, actor=owner)
    assert "was deleted" in refused.value.errors["revision"]


def test_settings_change_and_say_so() -> None:
    deployment = make_deployment()
    row = services.change(deployment, {"is_public": True, "sticky": "header:X-User"}, actor=deployment.owner)
    assert (row.is_public, row.sticky_key, row.epoch) == (True, "x-user", 2)
    assert row.events.first().what == "Changed: public yes, sticky header:X-User."  # type: ignore[union-attr]


def test_origins_reach_the_proxies() -> None:
    deployment = make_deployment(allowed_origins=["https://page.example:8443", "http://[::1]:3000"])
    (service,) = service_routes.read([deployment.pk]).services
    assert service.allowed_origins == ("https://page.example:8443", "http://[::1]:3000")
    row = services.change(deployment, {"allowed_origins": []}, actor=deployment.owner)
    assert row.events.first().what == "Changed: allowed origins none."  # type: ignore[union-attr]
    assert service_routes.read([deployment.pk]).services[0].allowed_origins == ()


def test_another_group_replaces_all_replicas() -> None:
    deployment = make_deployment()
    other = make_host().group
    row = services.change(deployment, {"resource_group": other}, actor=deployment.owner)
    assert row.resource_group == other
    assert row.restarted_at is not None
    with pytest.raises(RejectedError) as refused:
        services.change(deployment, {"resource_group": make_group(open_to_all=False)}, actor=deployment.owner)
    assert set(refused.value.errors) == {"resource_group"}


def test_public_needs_the_policy() -> None:
    owner = make_user(policy=make_policy(allow_public_apps=False))
    with pytest.raises(RejectedError) as refused:
        make_deployment(owner, is_public=True)
    assert set(refused.value.errors) == {"is_public"}


def test_an_ended_deployment_takes_no_commands() -> None:
    deployment = make_deployment()
    owner = deployment.owner
    assert deployment.revision is not None
    ended = services.end(deployment, actor=owner)
    assert (ended.state, ended.replicas) == (DeploymentState.ENDED, 0)
    services.end(deployment, actor=owner)
    for command in (
        lambda: services.set_replicas(deployment, 2, actor=owner),
        lambda: services.restart(deployment, actor=owner),
        lambda: tokens.create_token(deployment, name="ci", actor=owner),
    ):
        with pytest.raises(RejectedError):
            command()


def test_what_others_do_is_in_the_audit_log() -> None:
    deployment, admin = make_deployment(), make_user(is_superuser=True)
    services.set_replicas(deployment, 3, actor=deployment.owner)
    assert not AuditEntry.objects.exists()
    services.set_replicas(deployment, 2, actor=admin)
    token = tokens.create_token(deployment, name="ci", actor=admin).token
    tokens.revoke_token(token, actor=admin)
    services.new_revision(deployment, revision_request(), actor=admin, activates=False)
    actions = {"scale", "add token", "revoke token", "add revision"}
    assert set(AuditEntry.objects.values_list("action", flat=True)) == actions


def test_a_token_is_stored_as_a_digest_and_revoked_once() -> None:
    deployment = make_deployment()
    token, secret = tokens.create_token(deployment, name="ci", actor=deployment.owner, rate_per_minute=60)
    assert secret.startswith("gpd_")
    assert len(secret) == 47
    assert secret not in str(vars(token))
    tokens.revoke_token(token, actor=deployment.owner)
    tokens.revoke_token(token, actor=deployment.owner)
    assert deployment.tokens.get().revoked_at is not None
    assert [event.what for event in deployment.events.all()][:2] == ["Revoked the token ci.", "Added the token ci."]


def test_bad_tokens_are_refused_at_their_field() -> None:
    deployment = make_deployment()
    for field, fields in (("name", {"name": " "}), ("rate_per_minute", {"name": "x", "rate_per_minute": -1})):
        with pytest.raises(RejectedError) as refused:
            tokens.create_token(deployment, actor=deployment.owner, **fields)
        assert set(refused.value.errors) == {field}


def test_names_of_requests_are_checked_before_the_database() -> None:
    request = replace(deployment_request(), name="x" * 300)
    with pytest.raises(RejectedError):
        services.create(make_user(), request)


def _on_host(folder: Folder, host: Any) -> None:
    HostRoot.objects.create(host=host, root=folder.root, is_present=True)
