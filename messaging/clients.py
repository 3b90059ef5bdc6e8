"""Clients of Redis by its URL. Behind Sentinels each connection that is made goes to the primary of that moment."""

import functools
import socket
from collections.abc import Iterator
from typing import Any, Final

import redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.asyncio.sentinel import SentinelConnectionPool as AsyncSentinelPool
from redis.sentinel import Sentinel, SentinelConnectionPool

from messaging.redis_url import SentinelAddress, sentinel_address

# A machine that is gone sends no end of its connections: those that wait for messages find out by these alone.
KEEPALIVE: Final[dict[str, Any]] = {
    "socket_keepalive": True,
    "socket_keepalive_options": {
        socket.TCP_KEEPIDLE: 5,
        socket.TCP_KEEPINTVL: 2,
        socket.TCP_KEEPCNT: 3,
        socket.TCP_USER_TIMEOUT: 8000,  # milliseconds
    },
}


class _OwnSentinelsPool(AsyncSentinelPool):
    """A pool that closes its connections to Sentinels with itself; they belong to its event loop."""

    async def aclose(self) -> None:
        """Close all connections."""
        await super().aclose()
        for sentinel in self.sentinel_manager.sentinels:
            await sentinel.aclose()


class PrimaryPool:
    """Makes the pool of Django's cache, which asks a class for it."""

    @staticmethod
    def from_url(url: str, **options: Any) -> redis.ConnectionPool:
        """Return a pool with connections to the server, or to the primary that Sentinels name. Raises RedisUrlError."""
        address = sentinel_address(url)
        if address is None:
            return redis.ConnectionPool.from_url(url, **options)
        sentinels, options = _sentinels(address), _options(address, options)
        return SentinelConnectionPool(address.service, sentinels, **options)  # type: ignore[no-untyped-call]


def client(url: str, **options: Any) -> redis.Redis:
    """Return a client, which owns its connections. `options` are those of redis.Redis. Raises RedisUrlError."""
    address = sentinel_address(url)
    if address is None:
        return redis.Redis.from_url(url, **options)
    return redis.Redis.from_pool(PrimaryPool.from_url(url, **options))


def async_client(url: str, **options: Any) -> AsyncRedis:
    """Return a client for one event loop, which owns its connections. Raises RedisUrlError."""
    address = sentinel_address(url)
    if address is None:
        return AsyncRedis.from_url(url, **options)
    sentinels = AsyncSentinel(  # type: ignore[no-untyped-call]  # as all of redis-py's Sentinel
        address.sentinels, sentinel_kwargs=address.sentinel_options()
    )
    pool = _OwnSentinelsPool(address.service, sentinels, **_options(address, options))  # type: ignore[no-untyped-call]
    return AsyncRedis.from_pool(pool)


def channel_host(url: str, **options: Any) -> dict[str, Any]:
    """Return the entry of CHANNEL_LAYERS' `hosts`. Raises RedisUrlError."""
    address = sentinel_address(url)
    if address is None:
        return {"address": url, **options}
    return {
        "master_name": address.service,
        "sentinels": list(address.sentinels),
        "sentinel_kwargs": address.sentinel_options(),
        **_options(address, options),
    }


def server_clients(url: str, **options: Any) -> Iterator[redis.Redis]:
    """Yield a client for each server that could be or become the primary, the primary first, and close each.

    Replicas that do not respond are the caller's to bear with. Raises RedisError where no primary is known.
    """
    address = sentinel_address(url)
    with client(url, **options) as primary:
        yield primary
    if address is None:
        return
    replicas = _sentinels(address).discover_slaves(address.service)  # type: ignore[no-untyped-call]
    for host, port in replicas:
        with redis.Redis(host=host, port=port, **_options(address, options)) as replica:
            yield replica


def primary_of(url: str) -> str:
    """Return host and port of the primary that Sentinels name; "" for the URL of a server. Raises RedisError."""
    address = sentinel_address(url)
    if address is None:
        return ""
    host, port = _sentinels(address).discover_master(address.service)  # type: ignore[no-untyped-call]
    return f"{host}:{port}"


def _options(address: SentinelAddress, options: dict[str, Any]) -> dict[str, Any]:
    return {**KEEPALIVE, **address.server_options(), **options}


@functools.cache
def _sentinels(address: SentinelAddress) -> Sentinel:
    """Return this process's client of the Sentinels, which remembers the one that responded last."""
    options = address.sentinel_options()
    return Sentinel(address.sentinels, sentinel_kwargs=options)  # type: ignore[no-untyped-call]
