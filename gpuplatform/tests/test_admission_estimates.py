"""Whose a request is and what it will cost, as the admission guesses before Django has looked."""

import pytest

from gpuplatform.serving.admission.costs import MAX_SHAPES, RequestCosts, shape_of
from gpuplatform.serving.admission.principals import MAX_CREDENTIALS, VALID_SECONDS, Principals
from proxy.http.asgi import Scope


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def scope_with(cookie: str = "", token: str = "", address: str = "192.0.2.1") -> Scope:
    """Return the event of a request with a login's cookie or a token."""
    headers = [(b"cookie", f"theme=dark; gp_session={cookie}".encode())] if cookie else []
    headers += [(b"authorization", f"Token {token}".encode())] if token else []
    return {"headers": headers, "client": (address, 40000)}


def test_a_credential_counts_as_its_user_once_confirmed() -> None:
    principals = Principals()
    for known in (scope_with(cookie="a"), scope_with(token="b")):
        assert principals.principal_of(known) == "address 192.0.2.1"
        principals.learn(known, 7)
        assert principals.principal_of(known) == "user 7"
    assert principals.principal_of(scope_with(cookie="forged")) == "address 192.0.2.1"


def test_a_credential_that_is_nobodys_counts_as_the_address() -> None:
    principals = Principals()
    principals.learn(scope_with(cookie="a"), 7)
    principals.learn(scope_with(cookie="a"), None)
    assert principals.principal_of(scope_with(cookie="a")) == "address 192.0.2.1"
    principals.learn(scope_with(), 7)
    assert principals.principal_of(scope_with()) == "address 192.0.2.1"


def test_confirmations_lapse_and_are_bounded() -> None:
    clock = Clock()
    principals = Principals(clock)
    principals.learn(scope_with(cookie="a"), 7)
    clock.now += VALID_SECONDS
    assert principals.principal_of(scope_with(cookie="a")) == "address 192.0.2.1"
    principals.learn(scope_with(cookie="a"), 7)
    for number in range(MAX_CREDENTIALS):
        principals.learn(scope_with(cookie=f"b{number}"), number)
    assert principals.principal_of(scope_with(cookie="a")) == "address 192.0.2.1"
    assert principals.principal_of(scope_with(cookie="b5")) == "user 5"


def test_addresses_of_one_network_count_as_one() -> None:
    principals = Principals()
    first, second = (principals.principal_of(scope_with(address=each)) for each in ("2001:db8::1", "2001:db8::2"))
    assert first == second


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/", "/*"),
        ("/sessions/", "/sessions"),
        ("/sessions/rz7xjpuvmcg2hjds/logs/", "/sessions/*/logs"),
        ("/api/v1/sessions/12/", "/api/v1/sessions/*"),
        ("/" + "a/" * 20, "/" + "/".join("a" * 8)),
    ],
)
def test_ids_in_paths_are_one_shape(path: str, shape: str) -> None:
    assert shape_of(path) == shape


def test_the_first_request_of_a_path_counts_until_the_second() -> None:
    costs = RequestCosts(cpu_time=lambda: 0.0)
    estimates = []
    for seconds in (2.0, 0.1, 0.1):
        costs.begin()
        costs.end("GET", "/sessions/", seconds, is_saturated=False)
        estimates.append(costs.estimate_seconds("GET", "/sessions/"))
    assert estimates == pytest.approx([2.0, 0.1, 0.1])


def test_the_cost_of_a_path_is_learned() -> None:
    costs = RequestCosts(cpu_time=lambda: 0.0)
    for path, seconds in (("/folders/12/", 2.0), ("/sessions/", 0.1)):
        costs.begin()
        costs.end("GET", path, seconds, is_saturated=False)
    assert costs.estimate_seconds("GET", "/folders/13/") == 2.0
    assert costs.estimate_seconds("GET", "/sessions/") == pytest.approx(0.1)
    assert costs.estimate_seconds("POST", "/sessions/") < 1


def test_a_process_without_its_cores_to_itself_is_slower() -> None:
    cpu, clock = Clock(), Clock()
    costs = RequestCosts(cpu, clock)
    for _ in range(100):
        costs.begin()
        cpu.now, clock.now = cpu.now + 0.1, clock.now + 0.4
        costs.end("GET", "/", 0.1, is_saturated=True)
    assert costs.slowdown == pytest.approx(4.0, rel=0.01)


def test_shapes_that_strangers_invent_are_bounded() -> None:
    costs = RequestCosts(cpu_time=lambda: 0.0)
    for number in range(2 * MAX_SHAPES):
        costs.begin()
        costs.end("GET", "/" + "".join(chr(97 + int(digit)) for digit in str(number)), 1.0, is_saturated=False)
    assert len(costs._thread_seconds) == MAX_SHAPES
