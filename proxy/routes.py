"""The routes to endpoints, the services of replicas, and revocations: a table in memory, filled by the control plane.

It is read for every request of the data plane, without any I/O; a route that is missing may be asked for.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from proxy.budgets import UNKNOWN, SpentBudget


@dataclass(frozen=True, slots=True)
class AppCondition:
    """What the host has last found of an app."""

    state: str = "ready"  # starting, ready, loopback, exited or failed
    title: str = ""  # of the app
    detail: str = ""  # what is missing, as a sentence for its owner
    output: str = ""  # its last lines, for its owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where one endpoint is reached, or will be. Connections of equal routes are interchangeable."""

    label: str  # first part of its host name, as jupyter--<session>
    session: str
    owner: int  # user id
    address: str  # of the container, on its host
    port: int
    epoch: int  # a cookie of another epoch is void
    is_public: bool = False
    token: str = ""  # sent to the app in `Authorization: token`; empty: the browser's own header is forwarded
    gateway: str = ""  # http://host:port of the gateway of its host; empty: the container is on this machine
    gateway_key: str = ""  # which that gateway knows
    listen_port: int | None = None  # of this endpoint alone, beside the host name or in its place
    is_ready: bool = field(default=True, compare=False)  # requests are forwarded; those under way go on if it is not
    condition: AppCondition = field(default=AppCondition(), compare=False)
    attempt: int = 0  # of the session: a later one is another container

    @property
    def place(self) -> tuple[str, str, str, int, str]:
        """What it leads to: connections go on while that is the same."""
        return self.label, self.session, self.address, self.port, self.gateway

    def is_attempt(self, session: str, attempt: int) -> bool:
        """Return whether it leads to the container of this attempt of the session."""
        return (self.session, self.attempt) == (session, attempt)


@dataclass(frozen=True, slots=True)
class ServiceToken:
    """A secret that opens one service."""

    pk: int
    digest: str  # hex SHA-256 of the secret
    expires_at: float  # Unix seconds, infinite for none
    rate: int  # requests a minute, 0: not limited
    monthly_requests: int = 0  # budget of a calendar month, 0: none
    monthly_tokens: int = 0  # the same in tokens of models
    spent: SpentBudget = field(default=UNKNOWN, compare=False)  # when it was read

    @property
    def has_budget(self) -> bool:
        """Whether it may be spent."""
        return bool(self.monthly_requests or self.monthly_tokens)

    @property
    def login(self) -> str:
        """What stands for it where a browser has the digest of its login; no digest is written so."""
        return f"token {self.pk}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRoute:
    """One of the equal servers of a service. It is reached only while the table has the same route."""

    route: Route  # of the replica's endpoint
    takes_requests: bool  # False: it drains or is not healthy; what is under way goes on
    revision: int = 0  # number of what it runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Replicas behind one address, among which requests are spread."""

    label: str  # <name>--<deployment id>, first part of its host name
    deployment: str  # id
    owner: int  # user id
    epoch: int  # a cookie of another epoch is void
    is_public: bool = False
    tokens: tuple[ServiceToken, ...] = ()
    replicas: tuple[ReplicaRoute, ...] = ()
    sticky: str = ""  # "", "cookie", or the name of a request header in lower case
    concurrency: int = 0  # outstanding requests of a replica at most, over the processes of a server; 0: not bounded
    queue: int = 100  # requests that wait for a replica at most, in each process
    condition: AppCondition = AppCondition()  # what is said while no replica takes requests
    wakes: bool = False  # requests that find no replica wake one
    wake_seconds: int = 0  # that they wait for it at most; browsers are shown a page that waits
    allowed_origins: tuple[str, ...] = ()  # whose pages may use it, in lower case; "*" for all
    weights: tuple[tuple[int, int], ...] = ()  # (revision, percent of requests), 100 in all; (): replicas are equal
    listen_port: int | None = None  # of this service alone, where apps are told apart by port
    hosts: tuple[str, ...] = ()  # names of its own beside that of its label, in lower case and without a port


class ConnectionAccess(NamedTuple):
    """What a connection is used for now. Anonymous connections have the login "" and the user 0."""

    route: Route | None  # None: it waits for a replica
    login: str  # digest of the login session or share link, or `ServiceToken.login`
    user: int  # id
    service: str = ""  # label, "" for an endpoint's own address
    host: str = ""  # that of `Service.hosts` by which it came, "" for any other address


ConnectionFilter = Callable[[ConnectionAccess], bool]  # whether a connection must end
RevocationObserver = Callable[[ConnectionFilter], None]
RouteReader = Callable[[str], Awaitable[None]]  # reads the routes of a session, or a deployment, into the table


class Revocations:
    """Which logins and users have lost their access, and since when."""

    def __init__(self, abort: Callable[[ConnectionFilter], None]) -> None:
        """`abort` ends the connections that match a filter."""
        self._abort = abort
        self._logins: dict[str, float] = {}
        self._users: dict[int, float] = {}

    def is_void(self, login: str, user: int, issued_at: float) -> bool:
        """Return whether a cookie of this login digest and user was revoked after `issued_at`, in Unix seconds."""
        return self._logins.get(login, 0.0) >= issued_at or self._users.get(user, 0.0) >= issued_at

    def revoke_login(self, login: str, at: float) -> None:
        """Void the cookies of this login digest issued until `at`, in Unix seconds, and abort its connections."""
        if self._logins.get(login, 0.0) < at:
            self._logins[login] = at
            self._abort(lambda access: access.login == login)

    def revoke_user(self, user: int, at: float) -> None:
        """Void the cookies of this user issued until `at`, in Unix seconds, and abort their connections."""
        if self._users.get(user, 0.0) < at:
            self._users[user] = at
            self._abort(lambda access: access.user == user)

    def forget(self, until: float) -> None:
        """Drop the revocations made until then, in Unix seconds; all cookies that they void must have expired."""
        self._logins = {login: at for login, at in self._logins.items() if at > until}
        self._users = {user: at for user, at in self._users.items() if at > until}


class RouteTable:
    """Routes, services and revocations; observers of `on_revocation` abort the connections concerned."""

    def __init__(self) -> None:
        self.revocations = Revocations(self._abort)
        self._routes: dict[str, Route] = {}
        self._services: dict[str, Service] = {}
        self._ports: dict[int, Route | Service] = {}
        self._hosts: dict[bytes, Service] = {}
        self._observers: list[RevocationObserver] = []
        self._change_observers: list[Callable[[], None]] = []
        self.reader: RouteReader | None = None  # which `refresh` calls; None: nothing fills this table any more
        self.version = 0  # how often routes or services were replaced

    def __iter__(self) -> Iterator[Route]:
        return iter(list(self._routes.values()))

    def on_revocation(self, observer: RevocationObserver) -> None:
        """Call `observer` at every revocation, with a filter that matches the connections to abort."""
        self._observers.append(observer)

    def on_change(self, observer: Callable[[], None]) -> None:
        """Call `observer` whenever routes or services were replaced, by equal ones perhaps."""
        self._change_observers.append(observer)

    async def refresh(self, label: str) -> None:
        """Read the label's session or deployment again: a message that one has changed may still be on its way."""
        if self.reader is not None:
            await self.reader(label.rpartition("--")[2])

    def get(self, label: str) -> Route | None:
        """Return the route with this label."""
        return self._routes.get(label)

    def at_port(self, port: int) -> Route | Service | None:
        """Return the route or service with this `listen_port`."""
        return self._ports.get(port)

    def at_host(self, name: bytes) -> Service | None:
        """Return the service with this name of its own, in lower case and without a port."""
        return self._hosts.get(name)

    @property
    def listen_ports(self) -> set[int]:
        """The ports of single routes and services."""
        return set(self._ports)

    def get_service(self, label: str) -> Service | None:
        """Return the service with this label."""
        return self._services.get(label)

    def find(self, label: str) -> Route | Service | None:
        """Return the route or service with this label."""
        return self._routes.get(label) or self._services.get(label)

    @property
    def services(self) -> list[Service]:
        """All services."""
        return list(self._services.values())

    def replicas_of(self, service: Service) -> list[ReplicaRoute]:
        """Return the service's replicas that take requests and that are reached as the service says."""
        taking = (each for each in service.replicas if each.takes_requests and each.route.is_ready)
        return [each for each in taking if self._routes.get(each.route.label) == each.route]

    def replace(self, routes: Iterable[Route], *, session: str | None = None) -> None:
        """Replace the routes of one session or of all; abort connections of routes that are gone or have changed.

        Those of services end only if the route leads elsewhere.
        """
        new = {route.label: route for route in routes}
        old = {route.label: route for route in self if session in (None, route.session)}
        gone = [route for label, route in old.items() if new.get(label) != route]
        left = {route.place for route in gone} - {route.place for route in new.values()}
        for route in gone:
            del self._routes[route.label]
        self._routes |= new
        self._index_ports()
        if gone:
            self._abort(lambda access: _is_at(access, left) if access.service else access.route in gone)
        self._tell_change()

    def replace_services(self, services: Iterable[Service], *, deployment: str | None = None) -> None:
        """Replace the service of one deployment or all services; abort what is under way without access or replica.

        A replica that no longer takes requests keeps its connections.
        """
        new = {service.label: service for service in services}
        old = [service for service in self.services if deployment in (None, service.deployment)]
        changed = [service for service in old if new.get(service.label) != service]
        for service in old:
            del self._services[service.label]
        self._services |= new
        self._hosts = {host.encode(): service for service in self.services for host in service.hosts}
        self._index_ports()
        for service in changed:
            self._abort(_ended(service, new.get(service.label)))
        self._tell_change()

    def have_taking(self, deployment: str, session: str, attempt: int) -> None:
        """Have a replica take requests, if it is known; until its service is replaced again."""
        for service in self.services:
            if service.deployment == deployment:
                replicas = tuple(
                    replace(each, takes_requests=each.takes_requests or each.route.is_attempt(session, attempt))
                    for each in service.replicas
                )
                self.replace_services([replace(service, replicas=replicas)], deployment=deployment)

    def _index_ports(self) -> None:
        self._ports = {each.listen_port: each for each in (*self, *self.services) if each.listen_port}

    def _abort(self, matches: ConnectionFilter) -> None:
        for observer in self._observers:
            observer(matches)

    def _tell_change(self) -> None:
        self.version += 1
        for observer in self._change_observers:
            observer()


def _is_at(access: ConnectionAccess, places: set[tuple[str, str, str, int, str]]) -> bool:
    """Return whether the connection leads to one of these places."""
    return access.route is not None and access.route.place in places


def _ended(old: Service, new: Service | None) -> ConnectionFilter:
    """Return a filter of the connections that end when a service is replaced by this one, or is gone."""
    if new is None:
        return lambda access: access.service == old.label
    left = {each.route.place for each in old.replicas} - {each.route.place for each in new.replicas}
    valid = {(token.pk, token.digest, token.expires_at) for token in new.tokens}
    tokens = {token.login for token in old.tokens}
    ended = {token.login for token in old.tokens if (token.pk, token.digest, token.expires_at) not in valid}
    hosts = set(old.hosts) - set(new.hosts)
    is_new_epoch, is_withdrawn = new.epoch != old.epoch, old.is_public and not new.is_public

    def matches(access: ConnectionAccess) -> bool:
        if access.service != old.label:
            return False
        has_lost_access = (
            access.login in ended
            or access.host in hosts
            or (is_new_epoch and access.login not in tokens)
            or (is_withdrawn and not access.login)
        )
        return has_lost_access or _is_at(access, left)

    return matches
