"""What a process has served for deployments reaches Redis and the tokens, without holding it up."""

import pytest

from deployments import figures
from deployments.access import tokens
from deployments.models import DeploymentToken, TokenUsage
from deployments.tests.making import make_deployment
from endpoints import served
from endpoints.data_plane import DatabaseControlPlane
from proxy.authorization.control_plane import ServiceFigures
from proxy.budgets import TokenUse
from sessions import notify
from tests.wait import until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _nothing_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_noted", {})


def test_figures_and_the_use_of_tokens_are_recorded() -> None:
    deployment = make_deployment()
    token = tokens.create_token(deployment, name="ci", actor=deployment.owner).token
    report = ServiceFigures(deployment=deployment.pk, session="r1", requests=3)
    DatabaseControlPlane().served([report])
    DatabaseControlPlane().metered({token.pk: TokenUse(requests=3)})
    until(lambda: DeploymentToken.objects.get().last_used_at)
    assert sum(each.requests for each in figures.minutes(deployment.pk, 2)) == 3


def test_a_token_in_use_is_noted_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[set[int]] = []
    monkeypatch.setattr(tokens, "note_use", lambda pks: noted.append(set(pks)))
    for _ in range(3):
        served._note_use({7})
    assert noted == [{7}]
    monkeypatch.setattr(served, "NOTE_USE_SECONDS", 0.0)
    served._note_use({7})
    assert noted == [{7}, {7}]


def test_nothing_is_raised_without_redis(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise OSError("no Redis")

    monkeypatch.setattr(figures, "proxies_redis", fails)
    served.record([ServiceFigures(deployment="d" * 16, session="r1", requests=1)])
    until(lambda: "could not be recorded: no Redis" in caplog.text)
    monkeypatch.setattr(figures, "proxies_redis", notify.proxies_redis)
    served.record([])


def test_uses_are_stored_whatever_becomes_of_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(process: str, reports: object) -> None:
        raise RuntimeError(process)

    deployment = make_deployment()
    token = tokens.create_token(deployment, name="ci", actor=deployment.owner).token
    monkeypatch.setattr(figures, "store", fails)
    served.meter({token.pk: TokenUse(requests=3)})
    until(lambda: TokenUsage.objects.filter(token=token, requests=3).exists(), seconds=5)
