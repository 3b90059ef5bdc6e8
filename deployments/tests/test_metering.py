"""What tokens use is added up by month, and budgets are known to be spent by every process."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta

import pytest
from django.db import Error, IntegrityError, connection

from deployments.access import tokens
from deployments.models import Deployment, DeploymentToken, TokenUsage
from deployments.tests.making import make_deployment
from deployments.usage import metering
from endpoints import served
from endpoints.data_plane import DatabaseControlPlane
from endpoints.routing import service_routes
from proxy.budgets import SpentBudget, TokenUse, UsageKey, month_end
from resources import clock
from sessions import notify
from sessions.errors import RejectedError
from tests.wait import until

pytestmark = pytest.mark.django_db

DECEMBER = datetime(2026, 12, 5, tzinfo=UTC)


def make_token(deployment: Deployment | None = None, **limits: int) -> DeploymentToken:
    """Return a token with these limits."""
    deployment = deployment or make_deployment()
    return tokens.create_token(deployment, name="ci", actor=deployment.owner, expires_at=None, **limits).token


def sums() -> list[tuple[date, int, int, int]]:
    """Return all that is stored."""
    return list(TokenUsage.objects.values_list("month", "requests", "prompt_tokens", "completion_tokens"))


def test_uses_add_up_by_month(monkeypatch: pytest.MonkeyPatch) -> None:
    token = make_token()
    for at in (DECEMBER, DECEMBER + timedelta(days=1), DECEMBER + timedelta(days=31)):
        monkeypatch.setattr(clock, "now", lambda at=at: at)
        assert metering.store({token.pk: TokenUse(2, 10, 30), 10**9: TokenUse(1)}) == {}
    assert sums() == [(date(2027, 1, 1), 2, 10, 30), (date(2026, 12, 1), 4, 20, 60)]


def test_what_has_no_token_adds_up_by_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", lambda: DECEMBER)
    token = make_token(monthly_requests=10)
    uses: dict[UsageKey, TokenUse] = {
        token.deployment_id: TokenUse(2, 10, 30),
        token.pk: TokenUse(1),
        "gone" * 4: TokenUse(1),
    }
    for _ in range(2):
        assert set(metering.store(uses)) == {token.pk}
    assert TokenUsage.objects.of(token.deployment).count() == 2
    assert sums() == [(date(2026, 12, 1), 4, 20, 60), (date(2026, 12, 1), 2, 0, 0)]
    with pytest.raises(IntegrityError):
        TokenUsage.objects.update(deployment=token.deployment)  # of one or the other


def test_what_is_spent_of_budgets_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", lambda: DECEMBER)
    token, until = make_token(monthly_requests=10), month_end(DECEMBER.timestamp())
    assert metering.store({token.pk: TokenUse(2, 10, 30)}) == {token.pk: SpentBudget(2, 40, until)}
    assert metering.store({token.pk: TokenUse(-1)}) == {token.pk: SpentBudget(1, 40, until)}


@pytest.mark.django_db(transaction=True)
def test_processes_that_store_together_lose_nothing() -> None:
    first = make_token(monthly_requests=10**6)
    second = make_token(first.deployment)

    def store(number: int) -> None:
        order = (first.pk, second.pk) if number % 2 else (second.pk, first.pk)
        metering.store(dict.fromkeys(order, TokenUse(1, 2, 3)))
        connection.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(store, range(40)))
    assert {row[1:] for row in sums()} == {(40, 80, 120)}


def test_a_service_knows_what_its_tokens_have_spent() -> None:
    token = make_token(monthly_requests=10)
    metering.store({token.pk: TokenUse(4, 1, 1)})
    [service] = service_routes.read().services
    [shown] = service.tokens
    assert (shown.monthly_requests, shown.spent.requests, shown.spent.tokens) == (10, 4, 2)
    TokenUsage.objects.update(month=date(2020, 1, 1))
    [service] = service_routes.read().services
    assert service.tokens[0].spent.requests == 0


@pytest.mark.django_db(transaction=True)
def test_proxies_are_told_that_a_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, told = make_token(monthly_requests=3), make_token(monthly_tokens=70), list[object]()
    monkeypatch.setattr(notify, "publish_to_proxies", told.append)
    for _ in range(5):
        metering.store({first.pk: TokenUse(1)})
    for _ in range(3):
        metering.store({second.pk: TokenUse(1, 20, 20)})
    assert told == [{"deployment": first.deployment_id}, {"deployment": second.deployment_id}]


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with nothing that waits."""
    monkeypatch.setattr(served, "_ledger", served.UseLedger())
    monkeypatch.setattr(served, "_noted", {})


@pytest.mark.usefixtures("ledger")
@pytest.mark.django_db(transaction=True)
def test_what_a_process_has_told_is_spent_at_once() -> None:
    token, control_plane = make_token(monthly_requests=9), DatabaseControlPlane()
    control_plane.metered({token.pk: TokenUse(2)})
    until(lambda: control_plane.metered({}))
    metering.store({token.pk: TokenUse(3)})  # by another process
    assert control_plane.metered({token.pk: TokenUse(1)})[token.pk].requests == 3
    until(lambda: control_plane.metered({})[token.pk].requests == 6)
    token.refresh_from_db()
    assert token.last_used_at


@pytest.mark.usefixtures("ledger")
@pytest.mark.django_db(transaction=True)
def test_uses_are_kept_while_they_cannot_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    token, store = make_token(), metering.store
    failures: list[object] = []

    def fails(uses: object) -> dict[int, SpentBudget]:
        failures.append(uses)
        raise Error("no database")

    monkeypatch.setattr(metering, "store", fails)
    served.meter({token.pk: TokenUse(2)})
    until(lambda: failures)
    monkeypatch.setattr(metering, "store", store)
    served.meter({token.pk: TokenUse(1)})
    until(lambda: [row[1] for row in sums()] == [3])


@pytest.mark.parametrize(
    "limits", [{"monthly_requests": -1}, {"monthly_tokens": 10**15 + 1}, {"rate_per_minute": 1_000_001}]
)
def test_wrong_limits_are_refused_at_their_field(limits: dict[str, int]) -> None:
    token = make_token()
    for act in _acts(token, limits):
        with pytest.raises(RejectedError) as refused:
            act()
        assert set(refused.value.errors) == set(limits)


def _acts(token: DeploymentToken, limits: dict[str, int]) -> list[Callable[[], object]]:
    owner = token.deployment.owner
    return [
        lambda: tokens.create_token(token.deployment, name="x", actor=owner, expires_at=None, **limits),
        lambda: tokens.change_limits(token, limits, actor=owner),
    ]


def test_limits_of_a_token_change_at_once() -> None:
    token = make_token(monthly_requests=10)
    tokens.change_limits(token, {"monthly_requests": 20}, actor=token.deployment.owner)
    assert service_routes.read().services[0].tokens[0].monthly_requests == 20
    tokens.change_limits(token, {"monthly_requests": 20}, actor=token.deployment.owner)
    told = [event.what for event in token.deployment.events.all()]
    assert told.count("Changed the limits of the token ci.") == 1
    tokens.revoke_token(token, actor=token.deployment.owner)
    with pytest.raises(RejectedError):
        tokens.change_limits(token, {"monthly_requests": 30}, actor=token.deployment.owner)
