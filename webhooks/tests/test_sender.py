"""Requests go to addresses that were checked, once, and end in time."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from webhooks.delivery import sender
from webhooks.delivery.deliveries import MAX_AT_ONCE
from webhooks.delivery.sender import SendOutcome, WebhookSender
from webhooks.destinations import networks_of
from webhooks.tests.receivers import FakeSender, Receiver, receiving

pytestmark = pytest.mark.loopback

LOOPBACK = networks_of(["127.0.0.0/8"])


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def sent_to(url: str, networks: Any = LOOPBACK) -> SendOutcome:
    with WebhookSender(networks) as sending:
        return sending.post(url, {"webhook-id": "msg_1"}, '{"type": "ü"}').result()


def test_a_message_arrives_and_its_response_is_stored(receiver: Receiver) -> None:
    receiver.status, receiver.response = 200, b"thanks " + b"x" * 100_000
    outcome = sent_to(receiver.url)
    assert (outcome.status, outcome.is_success, outcome.problem) == (200, True, "")
    assert outcome.response.startswith("thanks x")
    assert len(outcome.response) == sender.MAX_RESPONSE_BYTES
    ((headers, body),) = receiver.received
    assert (headers["webhook-id"], body) == ("msg_1", '{"type": "ü"}')


def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    receiver.status, receiver.headers = 307, {"Location": receiver.url}
    outcome = sent_to(receiver.url)
    assert (outcome.status, outcome.is_success, len(receiver.received)) == (307, False, 1)


def test_a_receiver_may_ask_for_time(receiver: Receiver) -> None:
    receiver.status, receiver.headers = 503, {"Retry-After": "120"}
    assert sent_to(receiver.url).retry_after_seconds == 120
    receiver.headers = {"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}
    assert sent_to(receiver.url).retry_after_seconds == 0


def test_addresses_that_are_not_allowed_are_not_dialled(receiver: Receiver) -> None:
    outcome = sent_to(receiver.url, ())
    assert (outcome.status, "sends nothing" in outcome.problem) == (None, True)
    assert not receiver.received


def test_the_address_that_was_checked_is_dialled(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [["127.0.0.2"], ["127.0.0.1"]]  # to the first and all later questions: a rebinding name
    asked: list[str] = []

    async def resolve(self: object, host: str, port: int, **kwargs: object) -> Any:
        asked.append(host)
        found = answers[min(len(asked), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)
    port = receiver.url.rpartition(":")[2]
    networks = networks_of(["127.0.0.2/32"])  # where nothing listens
    assert sent_to(f"http://rebinding.example:{port}", networks).problem.startswith("No connection")
    assert asked[0] == "rebinding.example"
    assert not receiver.received
    answers[:] = [["127.0.0.1"]]
    assert "sends nothing" in sent_to(f"http://rebinding.example:{port}", networks).problem
    assert not receiver.received


def test_a_receiver_that_says_nothing_is_given_up(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "TIMEOUT_SECONDS", 0.2)
    receiver.held = threading.Event()
    assert "longer than" in sent_to(receiver.url).problem


def test_names_without_an_answer_hold_up_nobody_else(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve, is_over = socket.getaddrinfo, threading.Event()

    def resolve_some(host: str, *arguments: Any, **options: Any) -> Any:
        if host == "silent.example":
            is_over.wait()
            raise socket.gaierror
        return resolve(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_some)
    with WebhookSender(LOOPBACK) as sending:
        waiting = [sending.post("http://silent.example/", {}, "") for _ in range(MAX_AT_ONCE)]
        try:
            assert sending.post(receiver.url, {"webhook-id": "msg_1"}, "").result().is_success
        finally:
            is_over.set()
        assert {future.result().is_success for future in waiting} == {False}


def test_failures_are_outcomes() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # nobody else gets the port meanwhile
        assert sent_to(f"http://127.0.0.1:{silent.getsockname()[1]}/").problem.startswith("No connection")
    assert sent_to("http://127.0.0.1:1\x00/").problem


def test_the_end_cancels_what_is_under_way(receiver: Receiver) -> None:
    receiver.held = threading.Event()
    with WebhookSender(LOOPBACK) as sending:
        future = sending.post(receiver.url, {}, "")
    assert future.cancelled()


@pytest.mark.parametrize("make", [lambda: WebhookSender(LOOPBACK), FakeSender], ids=["real", "fake"])
def test_both_senders_have_the_same_outcome(make: Any, receiver: Receiver) -> None:
    with make() as sending:
        outcome = sending.post(receiver.url, {"webhook-id": "msg_1"}, "{}").result()
    assert (outcome.status, outcome.is_success) == (204, True)
