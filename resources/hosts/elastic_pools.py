"""What administrators see of elastic pools: what has become of their hosts, and that one makes none."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Final, NamedTuple

from django.db.models import TextChoices
from django.dispatch import Signal

from resources.models import ElasticHost, ElasticPool, ElasticState

MAX_EVENTS: Final = 100  # that are shown
FAILURES_NOTIFIED: Final = 3  # hosts in a row that were of no use: then superadmins are told
SILENCE_NOTIFIED: Final = timedelta(minutes=10)  # so they are where the provider has not answered for that long
pool_failing: Final = Signal()  # with `pool`, `since` when, and the `problem`; perhaps again, with the same `since`


class PoolEventKind(TextChoices):
    """What has happened to a host of a pool."""

    ASKED_FOR = "ASKED_FOR", "asked for"
    CAME = "CAME", "came"
    GIVEN_BACK = "GIVEN_BACK", "given back"
    GIVEN_UP = "GIVEN_UP", "given up"


class PoolEvent(NamedTuple):
    """Something that has happened to a host of a pool."""

    at: datetime
    event: PoolEventKind
    host: ElasticHost
    reason: str = ""


def events_of(pool: ElasticPool) -> list[PoolEvent]:
    """Return what has happened to the hosts of a pool, the latest first; of hosts that are not forgotten yet."""
    hosts = pool.hosts.order_by("-created_at")[:MAX_EVENTS]
    events = [event for host in hosts for event in _events_of_host(host)]
    return sorted(events, key=attrgetter("at"), reverse=True)[:MAX_EVENTS]


def _events_of_host(host: ElasticHost) -> Iterator[PoolEvent]:
    yield PoolEvent(host.created_at, PoolEventKind.ASKED_FOR, host)
    if host.joined_at is not None:
        yield PoolEvent(host.joined_at, PoolEventKind.CAME, host)
    if host.ended_at is not None:
        kind = PoolEventKind.GIVEN_UP if host.state == ElasticState.FAILED else PoolEventKind.GIVEN_BACK
        yield PoolEvent(host.ended_at, kind, host, host.reason)
