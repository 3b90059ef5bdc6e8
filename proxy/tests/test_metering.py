"""Tokens of models are counted from responses that pass unchanged, and monthly budgets of a service's tokens hold."""

import json
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import pytest

from proxy.balancing.metering import TokenMeter
from proxy.balancing.refusals import Refusal
from proxy.balancing.response_usage import END_BYTES, UsageReader, usage_reader
from proxy.budgets import SpentBudget, TokenUse, month_end
from proxy.counters import LocalCounters
from proxy.http.response_parser import BodyFraming, ResponseHead
from proxy.tests.app import COMPLETION
from proxy.tests.services import HOST, call, running_service
from proxy.tests.site import token
from proxy.tests.test_service_requests import ask, thinking
from proxy.tests.wire import connected, request

NOW = datetime(2026, 12, 15, 12, tzinfo=UTC).timestamp()
NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC).timestamp()
USED = TokenUse(prompt_tokens=7, completion_tokens=12)
USAGE = b'{"usage": {"prompt_tokens": 7, "completion_tokens": 12}}'


@pytest.mark.parametrize(
    ("body", "used"),
    [
        (USAGE, USED),
        (b'data: {"usage":{"input_tokens":7,"output_tokens":12}}\n\ndata: [DONE]\n\n', USED),
        (b'{"usage": {"prompt_tokens": 7, "total_tokens": 7}}', TokenUse(prompt_tokens=7)),
        (b'data: {"usage": {"prompt_tokens": 7, "completion_tokens": 3}}\n\ndata: ' + USAGE + b"\n\n", USED),
        (USAGE + b'\n{"usage": {"other": 1}} {"usage": null}', USED),
        (rb'{"content": "\"usage\": {\"prompt_tokens\": 1}"}', TokenUse()),
        (b'{"usage": {"prompt_tokens": -7, "completion_tokens": true}}', TokenUse()),
        (b'{"usage": {"prompt_tokens": 1e9, "completion_tokens": 1000000001}}', TokenUse()),
        (b'{"usage": {"prompt_tokens": 7', TokenUse()),
        (b'{"usage": ' + b'{"usage": ' * 3000, TokenUse()),
        (b'{"usage": {"a": ' + b"[" * 9000, TokenUse()),
        (b"\xff\xfe" + USAGE + b" " * (END_BYTES - 100), USED),
        (USAGE + b" " * 2 * END_BYTES, TokenUse()),
        (b"", TokenUse()),
    ],
)
def test_usage_is_found_at_the_end_of_a_body(body: bytes, used: TokenUse) -> None:
    for size in (1, 7, 10**6):
        reader = UsageReader(is_chunked=False)
        for at in range(0, len(body), size):
            reader.feed(body[at : at + size])
        assert reader.used() == used
        assert len(reader._end) <= 2 * END_BYTES


def test_usage_is_found_across_chunks() -> None:
    body = b"".join(b"%x;x=y\r\n%b\r\n" % (len(part), part) for part in (USAGE[:4], USAGE[4:17], USAGE[17:]))
    reader = UsageReader(is_chunked=True)
    reader.feed(body + b"0\r\n\r\n")
    assert reader.used() == USED


@pytest.mark.parametrize(
    ("status", "framing", "headers", "is_read"),
    [
        (200, BodyFraming.SIZED, {"Content-Type": "application/json"}, True),
        (200, BodyFraming.CHUNKED, {"content-type": "Text/Event-Stream; charset=utf-8"}, True),
        (200, BodyFraming.SIZED, {"Content-Type": "application/json", "Content-Encoding": "identity"}, True),
        (200, BodyFraming.SIZED, {"Content-Type": "application/json", "Content-Encoding": "gzip"}, False),
        (200, BodyFraming.SIZED, {"Content-Type": "text/plain"}, False),
        (200, BodyFraming.SIZED, {}, False),
        (400, BodyFraming.SIZED, {"Content-Type": "application/json"}, False),
        (200, BodyFraming.NONE, {"Content-Type": "application/json"}, False),
    ],
)
def test_only_what_may_say_it_is_read(
    status: int, framing: BodyFraming, headers: dict[str, str], *, is_read: bool
) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert (usage_reader(ResponseHead(status, b"", pairs, framing)) is not None) == is_read


def meter(at: float = NOW) -> tuple[TokenMeter, list[float]]:
    """Return a meter and its clock."""
    clock = [at]
    return TokenMeter(LocalCounters(), lambda: clock[0]), clock


def test_a_budget_is_spent_until_the_month_ends() -> None:
    counted, clock = meter()
    limited = token(monthly_requests=3)
    assert [counted.admit(limited) for _ in range(3)] == [None] * 3
    assert counted.admit(limited) == (Refusal.BUDGET, NEW_YEAR - NOW)
    counted.report(lambda uses: {})
    assert counted.admit(limited) == (Refusal.BUDGET, NEW_YEAR - NOW)
    clock[0] = NEW_YEAR
    assert counted.admit(limited) is None


def test_what_others_have_spent_counts() -> None:
    counted, _ = meter()
    limited = token(monthly_requests=10, spent=SpentBudget(8, 0, NEW_YEAR))
    assert counted.admit(limited) is None
    counted.report(lambda uses: {1: SpentBudget(9, 0, NEW_YEAR)})
    assert counted.admit(limited) is None
    assert counted.admit(limited) == (Refusal.BUDGET, NEW_YEAR - NOW)


def test_what_is_counted_here_is_not_counted_twice() -> None:
    counted, _ = meter()
    assert counted.admit(token(monthly_requests=3)) is None
    stored = token(monthly_requests=3, spent=SpentBudget(1, 0, NEW_YEAR))  # it was read meanwhile
    assert [counted.admit(stored) for _ in range(2)] == [None, None]
    assert counted.admit(stored) == (Refusal.BUDGET, NEW_YEAR - NOW)


def test_a_request_that_was_refused_is_given_back() -> None:
    counted, _ = meter()
    limited = token(monthly_requests=1)
    assert counted.admit(limited) is None
    counted.give_back(limited.pk, Refusal.NO_REPLICA)
    assert counted.admit(limited) is None
    counted.give_back(limited.pk, Refusal.BUDGET)
    assert counted.admit(limited) == (Refusal.BUDGET, NEW_YEAR - NOW)


def test_a_budget_of_a_models_tokens_is_spent() -> None:
    counted, _ = meter()
    limited = token(monthly_tokens=20)
    assert counted.admit(limited) is None
    counted.add(limited.pk, USED)
    assert counted.admit(limited) is None
    counted.add(limited.pk, USED)
    assert counted.admit(limited) == (Refusal.BUDGET, NEW_YEAR - NOW)
    told: list[object] = []
    counted.report(lambda uses: told.append(dict(uses)) or {})  # type: ignore[func-returns-value]
    assert told == [{1: TokenUse(2, 14, 24)}]


def test_a_month_ends_in_utc() -> None:
    assert month_end(NOW) == NEW_YEAR
    assert month_end(NEW_YEAR) == datetime(2027, 2, 1, tzinfo=UTC).timestamp()
    assert month_end(NEW_YEAR - 1) == NEW_YEAR


@pytest.mark.loopback
@pytest.mark.parametrize("is_far", [False, True])
async def test_a_stream_is_counted_and_passes_unchanged(*, is_far: bool) -> None:
    async with running_service(1, is_far=is_far) as running, connected(running.port) as client:
        await client.send(call("POST", "/v1/chat/completions", b"{}"))
        await client.head()
        passed = [chunk async for chunk in client.chunks()]
        assert tuple(passed) == COMPLETION
        running.plane._sweep()
        assert running.control_plane.uses == {1: TokenUse(1, 7, 12)}
        (figures,) = running.control_plane.figures
        assert (figures.prompt_tokens, figures.completion_tokens) == (7, 12)


@pytest.mark.loopback
async def test_what_comes_without_a_token_is_counted() -> None:
    async with running_service(1, is_public=True) as running:
        anybody = request("POST", "/v1/chat/completions", b"{}", HOST)
        assert [(await ask(running, each)).status for each in (anybody, anybody, call())] == [200] * 3
        running.change_replica(1, takes_requests=False)
        assert (await ask(running, anybody)).status == 503
        running.plane._sweep()
        deployment = running.table.get_service("chat--d1").deployment  # type: ignore[union-attr]
        assert running.control_plane.uses == {deployment: TokenUse(2, 14, 24), 1: TokenUse(requests=1)}


@pytest.mark.loopback
async def test_a_spent_budget_says_so_as_openai_does() -> None:
    async with running_service(1, tokens=(token(monthly_requests=1),)) as running:
        assert (await ask(running, call())).status == 200
        refused = await ask(running, call("POST", "/v1/chat/completions"))
        said = json.loads(refused.body)
        assert (refused.status, said["title"]) == (429, "The budget of this token is spent")
        assert (said["error"]["code"], said["error"]["type"]) == ("insufficient_quota", "insufficient_quota")
        assert int(refused.all("retry-after")[0]) > 0
        assert "error" not in json.loads((await ask(running, call())).body)
        assert len(running.apps[0].requests) == 1
        running.plane._sweep()
        assert running.control_plane.uses == {1: TokenUse(requests=1)}


@pytest.mark.loopback
async def test_what_reaches_no_replica_costs_no_budget() -> None:
    limited = (token(monthly_requests=2),)
    async with running_service(1, tokens=limited, concurrency=1, queue=0) as running, AsyncExitStack() as stack:
        first = await thinking(stack, running)
        for _ in range(3):
            assert json.loads((await ask(running, call())).body)["title"] == "All replicas are busy"
        first.reset()
        await running.apps[0].until(lambda: running.apps[0].connections == 0)
        assert (await ask(running, call())).status == 200
