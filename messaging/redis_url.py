"""Parses the URL of Redis: of one server, or of the Sentinels that know which server is the primary.

    redis://user:password@host:6379/0
    unix:///path/to/socket
    redis+sentinel://user:password@host1:26379,host2:26379,host3:26379/service/0

User and password are those of the Redis servers. Sentinels that demand their own are given them in the query, as
`sentinel_username` and `sentinel_password`. `rediss://` and `rediss+sentinel://` mean TLS, with certificates verified,
to Sentinels too; `ssl_ca_certs` in the query names a file with the authorities, else they are those of the system.
"""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlencode, urlsplit

SCHEME: Final = "redis+sentinel"
TLS_SCHEME: Final = "rediss+sentinel"
SENTINEL_PORT: Final = 26379
SENTINEL_SECONDS: Final = 1.0  # for each Sentinel to connect, and to respond: one that is down delays the next one
CREDENTIALS: Final = {"sentinel_username", "sentinel_password"}
QUERY: Final = {SCHEME: CREDENTIALS, TLS_SCHEME: CREDENTIALS | {"ssl_ca_certs"}}
VERIFIED: Final = "ssl_cert_reqs=required"
SHAPE: Final = f"{SCHEME}://user:password@host1:{SENTINEL_PORT},host2:{SENTINEL_PORT}/service/0"


class RedisUrlError(ValueError):
    """The URL cannot be used; the message says why, and has no password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentinelAddress:
    """What a `redis+sentinel://` or `rediss+sentinel://` URL says."""

    sentinels: tuple[tuple[str, int], ...]
    service: str
    database: int
    username: str | None
    password: str | None
    sentinel_username: str | None
    sentinel_password: str | None
    is_tls: bool
    ssl_ca_certs: str | None

    def server_options(self) -> dict[str, Any]:
        """Return the arguments of connections to Redis servers: who we are, the database, and TLS."""
        return {"username": self.username, "password": self.password, "db": self.database, **self._tls_options()}

    def sentinel_options(self) -> dict[str, Any]:
        """Return the arguments of connections to Sentinels."""
        seconds = {"socket_timeout": SENTINEL_SECONDS, "socket_connect_timeout": SENTINEL_SECONDS}
        return {
            "username": self.sentinel_username,
            "password": self.sentinel_password,
            **seconds,
            **self._tls_options(),
        }

    def _tls_options(self) -> dict[str, Any]:
        return {"ssl": True, "ssl_ca_certs": self.ssl_ca_certs} if self.is_tls else {}


def sentinel_address(url: str) -> SentinelAddress | None:
    """Return what the URL says of Sentinels; None where it is that of a server. Raises RedisUrlError."""
    scheme, netloc, parts = _split(url)
    if scheme not in QUERY:
        return None
    who, _, hosts = netloc.rpartition("@")
    user, _, password = who.partition(":")
    service, _, database = parts.path.strip("/").partition("/")
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    if not hosts or not service or not (database or "0").isdecimal():
        raise RedisUrlError(f"the URL of Sentinels has the form {SHAPE}")
    if unknown := set(query) - QUERY[scheme]:
        raise RedisUrlError(f"the URL of Sentinels takes no {', '.join(sorted(unknown))}")
    return SentinelAddress(
        sentinels=tuple(_host_and_port(each) for each in hosts.split(",")),
        service=unquote(service),
        database=int(database or 0),
        username=unquote(user) or None,
        password=unquote(password) or None,
        sentinel_username=query.get("sentinel_username"),
        sentinel_password=query.get("sentinel_password"),
        is_tls=scheme == TLS_SCHEME,
        ssl_ca_certs=query.get("ssl_ca_certs"),
    )


def broker_url(url: str) -> str:
    """Return the URL as Celery has it: of a socket, or of each Sentinel with the credentials of Redis.

    Celery verifies no certificate unless the URL says so.
    """
    address = sentinel_address(url)
    if address is None:
        if url.startswith("rediss:") and "ssl_cert_reqs=" not in url:
            url += f"{'&' if '?' in url else '?'}{VERIFIED}"
        return url.replace("unix://", "redis+socket://", 1)
    who = f"{quote(address.username or '', safe='')}:{quote(address.password, safe='')}@" if address.password else ""
    query = f"?{VERIFIED}" if address.is_tls else ""
    if address.ssl_ca_certs:
        query += "&" + urlencode({"ssl_ca_certs": address.ssl_ca_certs})
    servers = (f"{_bracketed(host)}:{port}/{address.database}{query}" for host, port in address.sentinels)
    return ";".join(f"sentinel://{who}{server}" for server in servers)


def broker_options(url: str) -> dict[str, Any]:
    """Return what Celery's transport must know besides `broker_url`. Raises RedisUrlError."""
    address = sentinel_address(url)
    return {"master_name": address.service, "sentinel_kwargs": address.sentinel_options()} if address else {}


def url_for(url: str, user: str, password: str, address: str = "") -> str:
    """Return the URL of the same Redis for another user, at another address (hosts and ports) where one is given."""
    scheme, netloc, own = _split(url)
    credentials = f"{quote(user, safe='')}:{quote(password, safe='')}@"
    if scheme == "unix":
        return f"unix://{credentials}{own.path}"
    query = f"?{own.query}" if own.query else ""
    return f"{scheme}://{credentials}{address or netloc.rpartition('@')[2]}{own.path}{query}"


def _split(url: str) -> tuple[str, str, SplitResult]:
    """Return scheme, authority, and the rest split: `urlsplit` refuses an IPv6 address that is not the first host."""
    scheme, _, rest = url.partition("://")
    netloc, slash, path = rest.partition("/")
    return scheme, netloc, urlsplit(slash + path)


def _host_and_port(text: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host:
        raise RedisUrlError(f"{text!r} is no host and port; the URL of Sentinels has the form {SHAPE}")
    return host, port or SENTINEL_PORT


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
