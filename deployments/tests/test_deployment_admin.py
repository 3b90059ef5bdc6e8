"""Deployments in the administration: shown, ended, and never changed; runtime variants are edited."""

import pytest
from django.test import Client

from accounts.models import AuditEntry, User
from deployments.access import tokens
from deployments.models import Deployment, DeploymentEvent, DeploymentToken, Replica, Revision, RuntimeVariant
from deployments.tests.making import make_deployment, revision_request
from deployments.tests.serving import make_replica
from tests.factories import make_user

pytestmark = pytest.mark.django_db
ADMIN = "/admin/deployments"
SHOWN = (Deployment, Revision, Replica, DeploymentToken, DeploymentEvent)


@pytest.fixture
def admin(client: Client) -> User:
    superadmin = make_user(is_superuser=True)
    client.force_login(superadmin)
    return superadmin


def test_all_tables_are_shown_and_only_variants_change(client: Client, admin: User) -> None:
    deployment = make_deployment(revision=revision_request(environment={"KEY": "x"}))
    make_replica(deployment)
    secret = tokens.create_token(deployment, name="shop", actor=admin)
    for model in SHOWN:
        base, row = f"{ADMIN}/{model._meta.model_name}/", model.objects.first()
        assert row
        assert client.get(base).status_code == 200
        page = client.get(f"{base}{row.pk}/change/")
        assert page.status_code == 200
        assert 'name="_save"' not in page.content.decode()
        assert secret.token.digest not in page.content.decode()
        assert client.get(f"{base}add/").status_code == 403
        assert client.post(f"{base}{row.pk}/change/", {"name": "x"}).status_code == 403
        assert client.post(f"{base}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    variant = RuntimeVariant.objects.get(name="custom")
    fields = {"name": "custom", "title": "Own", "port": 9000, "health_path": "/up", "environment": "{}", "command": ""}
    assert client.post(f"{ADMIN}/runtimevariant/{variant.pk}/change/", fields).status_code == 302
    variant.refresh_from_db()
    assert (variant.title, variant.port, variant.is_enabled) == ("Own", 9000, False)


def test_superadmins_end_deployments_after_a_question(client: Client, admin: User) -> None:
    deployment = make_deployment()
    chosen = {"action": "end", "_selected_action": [deployment.pk]}
    asked = client.post(f"{ADMIN}/deployment/", chosen).content.decode()
    assert "This cannot be undone." in asked
    assert deployment.owner.email in asked
    assert not Deployment.objects.exclude(ended_at=None).exists()
    client.post(f"{ADMIN}/deployment/", chosen | {"confirmed": "yes"})
    assert Deployment.objects.exclude(ended_at=None).exists()
    assert AuditEntry.objects.filter(action="end", actor=admin).exists()
