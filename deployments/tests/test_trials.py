"""Tokens of the page on which a deployment is tried."""

from datetime import timedelta

import pytest

from accounts.models import AuditEntry
from deployments import services
from deployments.access import tokens, trials
from deployments.models import DeploymentToken, TokenUsage
from deployments.tests.making import make_deployment
from deployments.usage import metering
from endpoints.routing import service_routes
from proxy.authorization.signing import digest
from proxy.budgets import TokenUse
from resources import clock
from sessions.errors import GENERAL, RejectedError
from tests.factories import make_project, make_user

pytestmark = pytest.mark.django_db


def test_a_new_token_takes_the_place_of_the_last() -> None:
    deployment = make_deployment()
    owner, member = deployment.owner, make_user()
    kept = tokens.create_token(deployment, name=trials.NAME, actor=owner).token
    others = trials.trial_token(deployment, actor=member).token
    first = trials.trial_token(deployment, actor=owner)
    second = trials.trial_token(deployment, actor=owner)
    assert set(deployment.tokens.values_list("pk", flat=True)) == {kept.pk, others.pk, second.token.pk}
    (service,) = service_routes.read([deployment.pk]).services
    opening = {token.digest: token.expires_at for token in service.tokens}
    assert digest(first.secret) not in opening
    expires_at = second.token.created_at + timedelta(hours=1)
    assert opening[digest(second.secret)] == expires_at.timestamp()


def test_expired_ones_are_not_listed_and_stay_counted() -> None:
    deployment, member = make_deployment(), make_user()
    first = trials.trial_token(deployment, actor=member).token
    metering.store({first.pk: TokenUse(requests=3)})
    second = trials.trial_token(deployment, actor=member).token
    metering.store({second.pk: TokenUse(requests=2)})
    assert list(deployment.tokens.listed()) == [second]
    assert sum(TokenUsage.objects.values_list("requests", flat=True)) == 5
    DeploymentToken.objects.update(expires_at=clock.now())
    other = trials.trial_token(deployment, actor=deployment.owner).token
    assert list(deployment.tokens.listed()) == [other]
    assert sum(TokenUsage.objects.values_list("requests", flat=True)) == 5


def test_they_take_no_place_of_other_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.access.tokens.MAX_TOKENS", 1)
    deployment = make_deployment()
    trials.trial_token(deployment, actor=deployment.owner)
    tokens.create_token(deployment, name="shop", actor=deployment.owner)
    trials.trial_token(deployment, actor=deployment.owner)
    with pytest.raises(RejectedError):
        tokens.create_token(deployment, name="shop", actor=deployment.owner)


def test_those_of_others_are_in_the_audit_log() -> None:
    deployment, admin = make_deployment(), make_user(is_superuser=True)
    trials.trial_token(deployment, actor=deployment.owner)
    assert not AuditEntry.objects.filter(action="add token").exists()
    trials.trial_token(deployment, actor=admin)
    assert AuditEntry.objects.get(action="add token").actor == admin


def test_they_end_with_the_access_of_their_user() -> None:
    owner, member = make_user(), make_user()
    project = make_project(owner, member)
    deployment = make_deployment(owner, project=project)
    trials.trial_token(deployment, actor=member)
    trials.trial_token(deployment, actor=owner)
    kept = tokens.create_token(deployment, name="shop", actor=member).token
    project.memberships.get(user=member).delete()
    assert {token.created_by for token in deployment.tokens.listed().exclude(pk=kept.pk)} == {owner}
    owner.is_active = False
    owner.save()
    assert list(DeploymentToken.objects.valid()) == [kept]


def test_an_ended_deployment_has_none() -> None:
    deployment = make_deployment()
    services.end(deployment, actor=deployment.owner)
    with pytest.raises(RejectedError) as refused:
        trials.trial_token(deployment, actor=deployment.owner)
    assert set(refused.value.errors) == {GENERAL}
