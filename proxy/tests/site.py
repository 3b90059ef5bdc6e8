"""A site for the tests of the data plane: its names, keys, cookies, and a control plane without a database."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

from proxy.authorization.authorizer import BrowserAuthorizer
from proxy.authorization.control_plane import ServiceFigures
from proxy.authorization.signing import Grant, Keys, digest
from proxy.budgets import SpentBudget, TokenUse, UsageKey
from proxy.routes import ReplicaRoute, Route, RouteTable, Service, ServiceToken
from proxy.site import Site

SITE = Site(platform_url="http://platform.localhost:8000", apps_domain="apps.localhost")
ELSEWHERE = Site(platform_url="http://platform.localhost:8000", apps_domain="elsewhere.localhost")
BY_PORT = Site(platform_url="http://127.0.0.1:8000", apps_domain="")
SUBNETS = (ip_network("127.0.0.0/8"),)
KEYS = Keys(["first:0123456789abcdef"])
GATEWAY_KEY = "a-key-of-one-host"
GATEWAY_KEYS = Keys([f"host:{GATEWAY_KEY}"])
LOGIN = digest("a login session")
HOST = "echo--s1.apps.localhost:8000"
ORIGIN = f"http://{HOST}"
SECRET = f"gpd_{'s' * 43}"


def route(**changes: object) -> Route:
    """Return a route to `echo--s1`, with changes."""
    fields = {"label": "echo--s1", "session": "s1", "owner": 7, "address": "127.0.0.1", "port": 8888, "epoch": 1}
    return Route(**(fields | changes))  # type: ignore[arg-type]


def replica(number: int, **changes: object) -> ReplicaRoute:
    """Return a replica in the session `r<number>`, with changes: of its route, too."""
    named = {"label": f"serve--r{number}", "session": f"r{number}"}
    takes_requests = bool(changes.pop("takes_requests", True))
    revision = int(str(changes.pop("revision", 0)))
    return ReplicaRoute(route=route(**(named | changes)), takes_requests=takes_requests, revision=revision)


def token(
    pk: int = 1, secret: str = SECRET, expires_at: float = float("inf"), rate: int = 0, **budgets: Any
) -> ServiceToken:
    """Return a token with this secret."""
    return ServiceToken(pk, digest(secret), expires_at, rate, **budgets)


def service(**changes: object) -> Service:
    """Return the service `chat--d1` of user 7 with two replicas and a token, with changes."""
    fields = {"label": "chat--d1", "deployment": "d1", "owner": 7, "epoch": 1}
    parts = {"tokens": (token(),), "replicas": (replica(1), replica(2))}
    return Service(**(fields | parts | changes))  # type: ignore[arg-type]


def grant(**changes: object) -> Grant:
    """Return user 7's grant for `echo--s1` for an hour, with changes."""
    now = time.time()
    times = {"issued_at": now, "expires_at": now + 3600}
    return Grant(**({"label": "echo--s1", "epoch": 1, "user": 7, "login": LOGIN} | times | changes))  # type: ignore[arg-type]


def cookie(**changes: object) -> str:
    """Return the cookie that the grant makes, as in a Cookie header."""
    return f"gp_app={grant(**changes).to_cookie(KEYS)}"


@dataclass
class FakeControlPlane:
    """Redeems the tickets of a test, each once; records the sessions in use."""

    tickets: dict[tuple[str, str, str], tuple[Grant, str]] = field(default_factory=dict)
    sessions_used: set[str] = field(default_factory=set)
    looks: list[str] = field(default_factory=list)  # labels
    figures: list[ServiceFigures] = field(default_factory=list)
    woken: list[str] = field(default_factory=list)  # deployments
    uses: dict[UsageKey, TokenUse] = field(default_factory=dict)
    spent: dict[int, SpentBudget] = field(default_factory=dict)

    async def redeem(self, ticket: str, label: str, state_digest: str) -> tuple[Grant, str] | None:
        """Return the grant and path of the ticket, once."""
        return self.tickets.pop((ticket, label, state_digest), None)

    async def look(self, label: str) -> None:
        """Record the label."""
        self.looks.append(label)

    def used(self, session: str) -> None:
        """Record the session."""
        self.sessions_used.add(session)

    def wake(self, deployment: str) -> None:
        """Record the deployment."""
        self.woken.append(deployment)

    def served(self, figures: Sequence[ServiceFigures]) -> None:
        """Keep the figures."""
        self.figures += figures

    def metered(self, uses: Mapping[UsageKey, TokenUse]) -> Mapping[int, SpentBudget]:
        """Add the uses up; return what the test says is spent."""
        for pk, use in uses.items():
            self.uses[pk] = self.uses.get(pk, TokenUse()).plus(use)
        return self.spent


def authorizer(*routes: Route, **options: object) -> BrowserAuthorizer:
    """Return an authorizer with these routes, or `echo--s1` alone."""
    table = RouteTable()
    table.replace(routes or [route()])
    given = {
        "site": SITE,
        "table": table,
        "keys": KEYS,
        "subnets": SUBNETS,
        "control_plane": FakeControlPlane(),
    } | options
    return BrowserAuthorizer(**given)  # type: ignore[arg-type]
