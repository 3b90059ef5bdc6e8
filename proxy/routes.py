"""The routes to the endpoints and the revocations of cookies: a table in memory, filled by the control plane.

It is read for every request of the data plane, without any I/O; a route that is missing may be asked for.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field


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


ConnectionFilter = Callable[[Route, str, int], bool]  # matches route, login digest and user id of a connection
RevocationObserver = Callable[[ConnectionFilter], None]
RouteReader = Callable[[str], Awaitable[None]]  # reads the routes of a session into the table


class RouteTable:
    """Routes by label and by port, and revocations; observers of `on_revocation` abort the connections concerned.

    Anonymous connections have the login "" and the user 0.
    """

    def __init__(self) -> None:
        self._routes: dict[str, Route] = {}
        self._ports: dict[int, Route] = {}
        self._logins: dict[str, float] = {}
        self._users: dict[int, float] = {}
        self._observers: list[RevocationObserver] = []
        self._change_observers: list[Callable[[], None]] = []
        self._reader: RouteReader | None = None

    def __iter__(self) -> Iterator[Route]:
        return iter(list(self._routes.values()))

    def on_revocation(self, observer: RevocationObserver) -> None:
        """Call `observer` at every revocation, with a filter that matches the connections to abort."""
        self._observers.append(observer)

    def on_change(self, observer: Callable[[], None]) -> None:
        """Call `observer` whenever routes were replaced, by equal ones perhaps."""
        self._change_observers.append(observer)

    def read_by(self, reader: RouteReader | None) -> None:
        """Have `refresh` call `reader`; None: nothing fills this table any more."""
        self._reader = reader

    @property
    def has_source(self) -> bool:
        """Whether `refresh` can find a route that is not here yet."""
        return self._reader is not None

    async def refresh(self, label: str) -> None:
        """Read the routes of the label's session again: a message that one has changed may still be on its way."""
        if self._reader is not None:
            await self._reader(label.rpartition("--")[2])

    def get(self, label: str) -> Route | None:
        """Return the route with this label."""
        return self._routes.get(label)

    def at_port(self, port: int) -> Route | None:
        """Return the route with this `listen_port`."""
        return self._ports.get(port)

    def is_void(self, login: str, user: int, issued_at: float) -> bool:
        """Return whether a cookie of this login digest and user was revoked after `issued_at`, in Unix seconds."""
        return self._logins.get(login, 0.0) >= issued_at or self._users.get(user, 0.0) >= issued_at

    def replace(self, routes: Iterable[Route], *, session: str | None = None) -> None:
        """Replace the routes of one session or of all; abort connections of routes that are gone or have changed."""
        new = {route.label: route for route in routes}
        old = {route.label: route for route in self if session in (None, route.session)}
        gone = [route for label, route in old.items() if new.get(label) != route]
        for route in gone:
            del self._routes[route.label]
        self._routes |= new
        self._ports = {route.listen_port: route for route in self if route.listen_port}
        if gone:
            self._abort(lambda route, login, user: route in gone)
        for observer in self._change_observers:
            observer()

    def revoke_login(self, login: str, at: float) -> None:
        """Void the cookies of this login digest issued until `at`, in Unix seconds, and abort its connections."""
        if self._logins.get(login, 0.0) < at:
            self._logins[login] = at
            self._abort(lambda route, connection_login, user: connection_login == login)

    def revoke_user(self, user: int, at: float) -> None:
        """Void the cookies of this user issued until `at`, in Unix seconds, and abort their connections."""
        if self._users.get(user, 0.0) < at:
            self._users[user] = at
            self._abort(lambda route, login, connection_user: connection_user == user)

    def forget_revocations(self, until: float) -> None:
        """Drop the revocations made until then, in Unix seconds; all cookies that they void must have expired."""
        self._logins = {login: at for login, at in self._logins.items() if at > until}
        self._users = {user: at for user, at in self._users.items() if at > until}

    def _abort(self, matches: ConnectionFilter) -> None:
        for observer in self._observers:
            observer(matches)
