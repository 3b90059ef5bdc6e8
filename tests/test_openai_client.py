"""OpenAI's own client for Python at the address of a deployment, through the data plane to a server of that API."""

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from openai.types.chat import ChatCompletionUserMessageParam

from deployments.access import tokens
from deployments.models import Deployment, TokenUsage
from deployments.tests.openai_server import MODEL, Seen, openai_server
from deployments.tests.served_here import SUBNETS, served_here
from deployments.usage import metering
from proxy.budgets import TokenUse
from tests.factories import make_host, make_user
from tests.live import LiveServer, serving
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.loopback]
HELLO: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "hello to you"}]


@pytest.fixture
def seen() -> Iterator[tuple[int, Seen]]:
    """The server, and what it gets."""
    with openai_server() as running:
        yield running


@pytest.fixture
def deployment(transactional_db: None, seen: tuple[int, Seen]) -> Deployment:
    """A deployment of that server."""
    return served_here(make_user(), make_host(), seen[0], name="chat")


@pytest.fixture
def web(deployment: Deployment, tmp_path: Path) -> Iterator[LiveServer]:
    """The web process of the replica's host."""
    host = deployment.replica_rows.get().session.host
    assert host
    with serving(tmp_path / "web.log", COMPUTE_SESSION_SUBNETS=SUBNETS, COMPUTE_HOST_NAME=host.name) as running:
        yield running


def client_of(web: LiveServer, deployment: Deployment, secret: str) -> openai.OpenAI:
    """Return the client with a token; the Host header says which deployment is meant, as DNS would lead there."""
    host = f"{deployment.label}.apps.localhost:{web.port}"
    return openai.OpenAI(
        base_url=f"{web.url}/v1", api_key=secret, default_headers={"Host": host}, timeout=SECONDS, max_retries=0
    )


def test_the_official_client_uses_a_deployment(web: LiveServer, deployment: Deployment, seen: tuple[int, Seen]) -> None:
    secret = tokens.create_token(deployment, name="shop", actor=deployment.owner).secret
    with client_of(web, deployment, secret) as client:
        assert [model.id for model in client.models.list()] == [MODEL]
        answer = client.chat.completions.create(model=MODEL, messages=HELLO)
        assert answer.choices[0].message.content == "hello to you"
        assert answer.usage
        assert answer.usage.total_tokens == 6
        parts = list(client.chat.completions.create(model=MODEL, messages=HELLO, stream=True))
        assert [part.choices[0].delta.content for part in parts if part.choices] == ["hello", " to", " you"]
        usage = parts[-1].usage
        assert usage
        assert usage.completion_tokens == 3
    assert secret not in str(seen[1].headers)
    until(lambda: used() == [(3, 6, 6)])


def used() -> list[tuple[int, int, int]]:
    """Return what each token has used."""
    return list(TokenUsage.objects.values_list("requests", "prompt_tokens", "completion_tokens"))


def test_the_official_client_is_told_that_a_budget_is_spent(web: LiveServer, deployment: Deployment) -> None:
    token, secret = tokens.create_token(deployment, name="shop", actor=deployment.owner, monthly_requests=2)
    with client_of(web, deployment, secret) as client:
        for _ in range(2):
            client.models.list()
        with pytest.raises(openai.RateLimitError) as refused:
            client.chat.completions.create(model=MODEL, messages=HELLO)
        assert refused.value.code == "insufficient_quota"
        assert "The budget of this token is spent" in refused.value.message
        tokens.change_limits(token, {"monthly_requests": 3}, actor=deployment.owner)
        until(lambda: answers(client))
        until(lambda: used() == [(3, 0, 0)])
        assert not answers(client)


def answers(client: openai.OpenAI) -> bool:
    """Return whether a request is answered, and not refused."""
    try:
        client.models.list()
    except openai.RateLimitError:
        return False
    return True


def test_a_budget_that_others_have_spent_is_spent(web: LiveServer, deployment: Deployment) -> None:
    token, secret = tokens.create_token(deployment, name="shop", actor=deployment.owner, monthly_tokens=10)
    with client_of(web, deployment, secret) as client:
        until(lambda: answers(client))
        metering.store({token.pk: TokenUse(1, 5, 5)})  # as another process does, which tells this one
        until(lambda: not answers(client))


def test_the_official_client_is_refused_with_a_wrong_token(web: LiveServer, deployment: Deployment) -> None:
    with client_of(web, deployment, f"gpd_{'w' * 43}") as client, pytest.raises(openai.AuthenticationError):
        client.models.list()
