"""Services in the table, and which connections end when one is replaced."""

from collections.abc import Iterable

import pytest

from proxy.budgets import SpentBudget
from proxy.routes import ConnectionAccess, ConnectionFilter, RouteTable, Service
from proxy.site import LABEL
from proxy.tests.site import LOGIN, replica, route, service, token

ONE, TWO = replica(1).route, replica(2).route
BY_TOKEN = ConnectionAccess(ONE, token().login, 0, "chat--d1")
BY_COOKIE = ConnectionAccess(ONE, LOGIN, 7, "chat--d1")
ANONYMOUS = ConnectionAccess(ONE, "", 0, "chat--d1")
WAITING = ConnectionAccess(None, token().login, 0, "chat--d1")
AT_TWO = ConnectionAccess(TWO, token().login, 0, "chat--d1")
OF_ANOTHER = ConnectionAccess(ONE, token().login, 0, "other--d2")
OF_AN_APP = ConnectionAccess(ONE, LOGIN, 7)
ALL = {"token": BY_TOKEN, "cookie": BY_COOKIE, "anonymous": ANONYMOUS, "waiting": WAITING, "two": AT_TWO}
ALL |= {"another": OF_ANOTHER, "app": OF_AN_APP}
OF_THE_SERVICE = {"token", "cookie", "anonymous", "waiting", "two"}


def ended_by(old: Service, new: Iterable[Service], *, deployment: str | None = "d1") -> set[str]:
    """Return which of ALL end when the new services take the place of the old one."""
    table = RouteTable()
    table.replace_services([old])
    filters: list[ConnectionFilter] = []
    table.on_revocation(filters.append)
    table.replace_services(new, deployment=deployment)
    return {name for name, access in ALL.items() if any(matches(access) for matches in filters)}


def test_a_service_is_found_by_its_label_until_replaced() -> None:
    table = RouteTable()
    told: list[int] = []
    table.on_change(lambda: told.append(len(table.services)))
    table.replace_services([service(), service(label="other--d2", deployment="d2")])
    assert table.get_service("chat--d1") == service()
    table.replace_services([service(queue=5)], deployment="d1")
    changed = table.get_service("chat--d1")
    assert changed is not None
    assert changed.queue == 5
    table.replace_services([], deployment="d1")
    assert (table.get_service("chat--d1"), [each.label for each in table.services]) == (None, ["other--d2"])
    table.replace_services([])
    assert (table.services, told) == ([], [2, 2, 1, 0])


@pytest.mark.parametrize(
    ("changes", "ended"),
    [
        ({}, set()),
        ({"queue": 3, "concurrency": 1, "sticky": "cookie"}, set()),
        ({"replicas": (replica(1, takes_requests=False), replica(2, is_ready=False))}, set()),
        ({"replicas": (replica(1),)}, {"two"}),
        ({"replicas": (replica(1, port=1), replica(2))}, {"token", "cookie", "anonymous"}),
        ({"replicas": (replica(1), replica(2), replica(3))}, set()),
        ({"tokens": ()}, {"token", "waiting", "two"}),
        ({"tokens": (token(secret="another"),)}, {"token", "waiting", "two"}),
        ({"tokens": (token(expires_at=1.0),)}, {"token", "waiting", "two"}),
        ({"tokens": (token(rate=5), token(2, "another"))}, set()),
        ({"epoch": 2}, {"cookie", "anonymous"}),
    ],
)
def test_what_ends_with_a_change_of_the_service(changes: dict[str, object], ended: set[str]) -> None:
    assert ended_by(service(is_public=True), [service(is_public=True, **changes)]) == ended


def test_a_public_service_withdrawn_ends_anonymous_connections() -> None:
    assert ended_by(service(is_public=True), [service()]) == {"anonymous"}


def test_a_service_that_is_gone_ends_all_its_connections() -> None:
    assert ended_by(service(), []) == OF_THE_SERVICE
    assert ended_by(service(), [], deployment=None) == OF_THE_SERVICE
    assert ended_by(service(), [], deployment="d2") == set()


@pytest.mark.parametrize(
    ("change", "ended"),
    [
        ([ONE], set()),
        ([replica(1, is_ready=False).route], set()),
        ([replica(1, token="new").route], {"app"}),
        ([replica(1, port=1).route], {"app", "token", "cookie", "anonymous", "another"}),
        ([], {"app", "token", "cookie", "anonymous", "another"}),
    ],
)
def test_a_route_ends_a_services_connections_once_it_leads_elsewhere(change: list[object], ended: set[str]) -> None:
    table = RouteTable()
    table.replace([ONE, TWO, route()])
    filters: list[ConnectionFilter] = []
    table.on_revocation(filters.append)
    table.replace(change, session="r1")  # type: ignore[arg-type]
    assert {name for name, access in ALL.items() if any(matches(access) for matches in filters)} == ended


@pytest.mark.parametrize("label", ["chat--d1", "my-chat-2--abc", "jupyter--s1", f"{'a' * 20}--{'b' * 32}"])
def test_labels_of_apps_and_deployments(label: str) -> None:
    assert LABEL.fullmatch(label)


@pytest.mark.parametrize(
    "label", ["chat", "-chat--d1", "chat---d1", "a--b--c", "--d1", "chat--", f"{'a' * 21}--d1", "chat--d_1", "chat--D1"]
)
def test_what_is_no_label(label: str) -> None:
    assert not LABEL.fullmatch(label)


def test_a_replica_that_is_known_takes_requests_at_once() -> None:
    def taking(*known: tuple[str, str, int]) -> list[bool]:
        """Return which replicas take requests after these were said to, of sessions by deployment and attempt."""
        table = RouteTable()
        table.replace_services([service(replicas=(replica(1), replica(2, takes_requests=False)))])
        for deployment, session, attempt in known:
            table.have_taking(deployment, session, attempt)
        found = table.get_service("chat--d1")
        assert found is not None
        return [each.takes_requests for each in found.replicas]

    assert taking() == [True, False]
    assert taking(("d1", TWO.session, TWO.attempt)) == [True, True]
    others = (("d2", TWO.session, TWO.attempt), ("d1", TWO.session, TWO.attempt + 1), ("d1", "unknown", 0))
    assert taking(*others) == [True, False]


def test_what_a_token_has_spent_ends_nothing() -> None:
    spent = token(monthly_requests=9, spent=SpentBudget(5, 0, 1e9))
    table, asked = RouteTable(), list[ConnectionFilter]()
    table.replace_services([service(tokens=(token(monthly_requests=9),))])
    table.on_revocation(asked.append)  # who look through all connections
    table.replace_services([service(tokens=(spent,))])
    assert asked == []
    found = table.get_service("chat--d1")
    assert found is not None
    assert found.tokens[0].spent == spent.spent
