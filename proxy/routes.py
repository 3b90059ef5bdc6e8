"""Where each app of each session is, and what makes a cookie for it void: a table in memory, filled from outside.

Read on every request of the data plane; no look-up leaves the process.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The way to one endpoint. Equal routes need no new connections."""

    label: str  # of its host name, as jupyter--<session>
    session: str
    owner: int  # id of the user
    address: str  # of the container, on its host
    port: int
    epoch: int  # a cookie of another epoch is void
    is_public: bool = False
    token: str = ""  # what `Authorization: token` carries to the app; empty: the browser's own header passes
    gateway: str = ""  # http://host:port of the gateway of its host; empty: the container is on this machine
    listen_port: int | None = None  # a port of its own, beside the host name or in its place


ConnectionFilter = Callable[[Route, str, int], bool]  # whether a connection's route, login digest and user id are meant
RevocationObserver = Callable[[ConnectionFilter], None]


class RouteTable:
    """The routes by label and by port, with what was revoked; the observers of `on_cut` end the connections meant.

    Anonymous connections have the login "" and the user 0.
    """

    def __init__(self) -> None:
        self._routes: dict[str, Route] = {}
        self._ports: dict[int, Route] = {}
        self._logins: dict[str, float] = {}
        self._users: dict[int, float] = {}
        self._observers: list[RevocationObserver] = []
        self._readers: list[Callable[[], None]] = []

    def __iter__(self) -> Iterator[Route]:
        return iter(list(self._routes.values()))

    def on_cut(self, observer: RevocationObserver) -> None:
        """Have `observer` called with every test that connections must not pass."""
        self._observers.append(observer)

    def on_change(self, reader: Callable[[], None]) -> None:
        """Have `reader` called after every change of the routes, or what may be one."""
        self._readers.append(reader)

    def get(self, label: str) -> Route | None:
        """Return the route with this label."""
        return self._routes.get(label)

    def at_port(self, port: int) -> Route | None:
        """Return the route that has this port to itself."""
        return self._ports.get(port)

    def is_void(self, login: str, user: int, issued_at: float) -> bool:
        """Return whether a cookie of this login digest and user, issued then (Unix seconds), was revoked since."""
        return self._logins.get(login, 0.0) >= issued_at or self._users.get(user, 0.0) >= issued_at

    def replace(self, routes: Iterable[Route], *, session: str | None = None) -> None:
        """Have just these routes, of one session or of all; connections of those that went or changed are cut."""
        new = {route.label: route for route in routes}
        old = {route.label: route for route in self if session in (None, route.session)}
        gone = [route for label, route in old.items() if new.get(label) != route]
        for route in gone:
            del self._routes[route.label]
        self._routes |= new
        self._ports = {route.listen_port: route for route in self if route.listen_port}
        if gone:
            self._cut(lambda route, login, user: route in gone)
        for reader in self._readers:
            reader()

    def revoke_login(self, login: str, at: float) -> None:
        """Void the cookies of this login digest that were issued until `at` (Unix seconds), and cut its connections."""
        if self._logins.get(login, 0.0) < at:
            self._logins[login] = at
            self._cut(lambda route, its_login, user: its_login == login)

    def revoke_user(self, user: int, at: float) -> None:
        """Void the cookies of this user that were issued until `at` (Unix seconds), and cut their connections."""
        if self._users.get(user, 0.0) < at:
            self._users[user] = at
            self._cut(lambda route, login, its_user: its_user == user)

    def forget_revocations(self, until: float) -> None:
        """Forget what was revoked until then (Unix seconds), when every cookie that it could void has expired."""
        self._logins = {login: at for login, at in self._logins.items() if at > until}
        self._users = {user: at for user, at in self._users.items() if at > until}

    def _cut(self, holds: ConnectionFilter) -> None:
        for observer in self._observers:
            observer(holds)
