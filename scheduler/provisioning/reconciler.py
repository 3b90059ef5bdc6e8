"""Brings the hosts of pools, as the database and as their provider have them, in line with each other and with need.

Each step is safe to repeat, and what it decides is committed before it acts, so that a process may die anywhere: the
next one finds by the list of the provider, and the names in it, what has come of it. Requests to a provider run in no
transaction; one process at a time works on a pool.
"""

import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.db.models import Q
from django.utils.crypto import salted_hmac

from hostaccess import services as hostaccess
from hostaccess.models import HostAccess
from hostaccess.redis_users import RedisUsersUnavailableError
from hostaccess.roles import RolesUnavailableError
from resources import clock
from resources.elastic.host_types import COST_MILLI, shape_of
from resources.elastic.providers import HostRequest, ProvidedHost, ProvidedState, Provider, ProviderError
from resources.hosts import services as hosts
from resources.hosts.elastic_pools import FAILURES_NOTIFIED, SILENCE_NOTIFIED, pool_failing
from resources.models import COMING, END_BEFORE, OVER, ElasticHost, ElasticPool, ElasticState, Host, HostStatus
from scheduler.provisioning.demand import hosts_of_no_use, new_hosts
from scheduler.snapshot.elastic_hosts import join_time, live_hosts, problem_text, silence_text, unused_text
from sessions.drains import services as drains
from sessions.launching import services
from sessions.lifecycle import HOSTED, Reason, Status
from sessions.models import ACTIVE_CONVERSIONS, Conversion, Session

logger = logging.getLogger(__name__)

POOL_LOCK: Final = 0x4750454C  # "GPEL": advisory lock, of each pool, of who works on it; their death frees it
LISTED_WITHIN: Final = timedelta(minutes=2)  # a provider lists a host that it has agreed to make
THERE: Final = (ProvidedState.PENDING, ProvidedState.RUNNING)
SETTLED: Final = timedelta(seconds=10)  # after a cordon: a pass that did not know of it has ended
DRAIN_BEFORE: Final = timedelta(minutes=15)  # the provider takes a host back by itself: its sessions are warned
MAX_PAUSE: Final = timedelta(hours=1)
IDLE: Final = "Idle"
ENDS: Final = "Its provider takes it back"
UNUSED: Final = "No session that waits could start on it"
GONE: Final = "Its provider has it no more"
FILES_GONE: Final = "The host that had its files is gone: its provider has taken it back."


def pool_ids() -> list[int]:
    """Return the ids of the pools that may have anything to do."""
    has_any = Q(is_enabled=True) | ~Q(hosts=None) | ~Q(silent_since=None)
    pools = ElasticPool.objects.filter(has_any).distinct()
    return list(pools.order_by("group__name").values_list("pk", flat=True))


def reconcile_pool(pool_id: int) -> None:
    """Bring the hosts of a pool in line, unless another process works on it."""
    pool = ElasticPool.objects.select_related("group").filter(pk=pool_id).first()
    if pool is not None:
        with _worked_on(pool) as is_alone:
            if is_alone:
                _reconcile(pool)


@contextmanager
def _worked_on(pool: ElasticPool) -> Iterator[bool]:
    """Say whether no other process works on a pool, and keep others from it meanwhile."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [POOL_LOCK, pool.pk])
        is_alone: bool = cursor.fetchone()[0]
        try:
            yield is_alone
        finally:
            if is_alone:
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [POOL_LOCK, pool.pk])


def _reconcile(pool: ElasticPool) -> None:
    try:
        provider = pool.make_provider()
        listed = list(provider.list())
    except (ProviderError, ValidationError) as error:
        logger.warning("pool %s: its provider does not list its hosts: %s", pool, error)
        _note_silence(pool, _text_of(error))
        _forget_gone_hosts(pool)
        return
    _note_silence(pool, "")
    _delete_unknown(pool, listed, provider)
    rows = list(live_hosts(pool))
    idle = [row for row in rows if row.state == ElasticState.UP and row.idle_since is not None]
    useless = hosts_of_no_use(pool, idle, clock.now())
    for row in rows:
        _follow(pool, row, _listed_of(row, listed), clock.now(), is_useless=row.pk in useless)
    _ask_for_more(pool)
    has_refused = False  # then the others wait for the next look: each may take as long as its provider may
    for row in live_hosts(pool):
        if row.state in (ElasticState.REQUESTED, ElasticState.CREATING):
            has_refused = has_refused or not _create(pool, row, provider)
        elif row.state == ElasticState.DELETING:
            _delete(row, _listed_of(row, listed), provider)
    _forget_gone_hosts(pool)


def _listed_of(row: ElasticHost, listed: Sequence[ProvidedHost]) -> ProvidedHost | None:
    """Return what the provider says of a host: by its identifier once that is known, as there may be two by mistake."""
    found = [each for each in listed if each.host_name == row.name and row.identifier in ("", each.identifier)]
    return max(found, key=lambda each: each.state in THERE, default=None)


def _note_silence(pool: ElasticPool, problem: str) -> None:
    """Note since when the provider has not answered, and what it said last; "": it has answered.

    That of a disabled pool without hosts need not.
    """
    if not pool.is_enabled and not live_hosts(pool).exists():
        problem = ""
    if problem or pool.silent_since is not None:
        pool.silent_since, pool.silence = (pool.silent_since or clock.now()) if problem else None, problem[:300]
        pool.save(update_fields=["silent_since", "silence"])
    if pool.silent_since is not None and clock.now() - pool.silent_since > SILENCE_NOTIFIED:
        pool_failing.send(ElasticPool, pool=pool, since=pool.silent_since, problem=silence_text(pool))


def _text_of(error: Exception) -> str:
    return " ".join(error.messages) if isinstance(error, ValidationError) else str(error)


def _ask_for_more(pool: ElasticPool) -> None:
    """Store which hosts are to be made.

    One pool after the other, so that no budget is used twice, and who waits in several groups has one host made.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, 0)", [POOL_LOCK])  # no pool has this number
        now = clock.now()
        pool.refresh_from_db()
        numbers = ElasticHost.objects.filter(pool=pool).count()
        for kind in new_hosts(pool, list(live_hosts(pool)), now):
            numbers += 1
            ElasticHost.objects.create(
                pool=pool,
                name=f"{pool.prefix}{numbers}-{random.getrandbits(32):08x}",
                type_name=kind.name,
                cost_per_hour=f"{kind.cost_milli / COST_MILLI:.3f}",
                created_at=now,
                state_at=now,
                expected_at=now + join_time(pool, kind.name),
            )
            logger.info("pool %s: a host of type %s is wanted", pool, kind.name)


def _follow(
    pool: ElasticPool, row: ElasticHost, listed: ProvidedHost | None, now: datetime, *, is_useless: bool
) -> None:
    """Move a host on by what its provider says of it, and by whether it has joined and is in use."""
    is_over = listed is not None and listed.state in (ProvidedState.ENDED, ProvidedState.FAILED)
    is_missing = is_over or (listed is None and now - row.state_at > LISTED_WITHIN)
    reason = listed.reason if listed is not None else ""
    if listed is not None and listed.ends_at != row.ends_at:
        ElasticHost.objects.filter(pk=row.pk).update(ends_at=listed.ends_at)
        row.ends_at = listed.ends_at
    if row.state in COMING and row.expected_at is not None and row.expected_at < now:
        ElasticHost.objects.filter(pk=row.pk).update(expected_at=None)  # it is late, and nobody knows by how much
    if row.state == ElasticState.JOINING and listed is not None and reason[:300] != row.reason:
        ElasticHost.objects.filter(pk=row.pk).update(reason=reason[:300])  # what it waits for changes
        row.reason = reason[:300]
    if row.state == ElasticState.CREATING and listed is not None:
        row.move_to(ElasticState.JOINING, now, reason, identifier=listed.identifier)
    if row.state in COMING and now - row.created_at > pool.give_up_after:
        _give_up(pool, row, reason or "it has not joined in time", now)
    elif row.state == ElasticState.JOINING:
        _follow_joining(pool, row, now, reason or GONE.lower() if is_missing else "")
    elif listed is not None and listed.state == ProvidedState.ENDED:
        row.move_to(ElasticState.DELETING, now, reason or ENDS)  # as its provider had planned
    elif row.state in (ElasticState.UP, ElasticState.DRAINING):
        # One that is not listed, but works, stays: a list may be short by mistake.
        is_gone = is_over or (is_missing and (row.host is None or row.host.status == HostStatus.LOST))
        _follow_joined(pool, row, now, reason or GONE if is_gone else "", is_useless=is_useless)


def _follow_joining(pool: ElasticPool, row: ElasticHost, now: datetime, failure: str) -> None:
    host = Host.objects.filter(name=row.name, status=HostStatus.READY).first()
    if host is not None:
        row.move_to(ElasticState.UP, now, host=host, joined_at=now, idle_since=now)
        logger.info("pool %s: host %s is up after %s", pool, row, now - row.created_at)
    elif failure:
        _give_up(pool, row, failure, now)


def _follow_joined(pool: ElasticPool, row: ElasticHost, now: datetime, failure: str, *, is_useless: bool) -> None:
    """Move on a host that has joined: it is lost, or ends soon, or is in use, or idle, or of no use."""
    host = row.host
    if host is None or failure or _is_lost(host, now):
        row.move_to(ElasticState.DELETING, now, failure or "It is silent", has_failed=True)
        return
    is_used = _is_in_use(host)
    if is_used != (row.idle_since is None):
        row.idle_since = None if is_used else now
        ElasticHost.objects.filter(pk=row.pk).update(idle_since=row.idle_since)
    if is_used and pool.failures:
        _note_success(pool)
    if row.state == ElasticState.UP and row.ends_at is not None and row.ends_at - _notice(row) < now:
        drains.drain(host, end_at=row.ends_at - END_BEFORE, reason=ENDS, actor=None)
        row.move_to(ElasticState.DRAINING, now, ENDS)
    elif row.state == ElasticState.UP and _is_spare(pool, row, now):
        drains.drain(host, end_at=None, reason=IDLE, actor=None)
        row.move_to(ElasticState.DRAINING, now, IDLE)
    elif row.state == ElasticState.UP and not is_used and is_useless:
        drains.drain(host, end_at=None, reason=UNUSED, actor=None)
        row.move_to(ElasticState.DRAINING, now, UNUSED)
        _note_failure(pool, row, now)
    elif row.state == ElasticState.DRAINING and now - row.state_at > SETTLED:
        _follow_draining(pool, row, host, now, is_used=is_used)


def _notice(row: ElasticHost) -> timedelta:
    """Return how long before its end a host is drained: a short-lived one is of use for half of its time."""
    assert row.ends_at
    assert row.joined_at
    return min(DRAIN_BEFORE, (row.ends_at - row.joined_at) / 2)


def _follow_draining(pool: ElasticPool, row: ElasticHost, host: Host, now: datetime, *, is_used: bool) -> None:
    if not is_used:
        row.move_to(ElasticState.DELETING, now, row.reason)
    elif row.reason in (IDLE, UNUSED):  # a pass was faster
        hosts.cordon(Host.objects.filter(pk=host.pk), cordoned=False)
        row.move_to(ElasticState.UP, now)


def _is_lost(host: Host, now: datetime) -> bool:
    grace = host.group.host_loss_grace
    return host.status == HostStatus.LOST and host.lost_at is not None and now - host.lost_at > grace


def _is_in_use(host: Host) -> bool:
    """Return whether something is on a host that would be lost with it."""
    return (
        Session.objects.filter(host=host, status__in=HOSTED).exists()
        or host.parked_sessions.filter(ended_at=None).exists()
        or Conversion.objects.filter(host=host, state__in=ACTIVE_CONVERSIONS).exists()
    )


def _is_spare(pool: ElasticPool, row: ElasticHost, now: datetime) -> bool:
    """Return whether a host has been idle for long enough, and is not one of those that the pool has without need."""
    if row.idle_since is None or now - row.idle_since < pool.cool_down:
        return False
    staying = live_hosts(pool).exclude(state__in=(ElasticState.DRAINING, ElasticState.DELETING))
    return not pool.is_enabled or staying.count() > pool.min_hosts


def _give_up(pool: ElasticPool, row: ElasticHost, reason: str, now: datetime) -> None:
    """Have a host that did not come deleted, and none asked for until a pause has passed."""
    if row.move_to(ElasticState.DELETING, now, reason, has_failed=True):
        _note_failure(pool, row, now)


def _note_failure(pool: ElasticPool, row: ElasticHost, now: datetime) -> None:
    """Have the pool pause: twice as long after each host in a row that was of no use, with jitter."""
    with transaction.atomic():
        locked = ElasticPool.objects.select_for_update().get(pk=pool.pk)
        if locked.retry_at is not None and locked.retry_at > now:
            return  # hosts that were asked for together are one failure
        pause = min(locked.back_off * 2 ** min(locked.failures, 10), MAX_PAUSE) * random.uniform(1, 1.25)  # noqa: S311
        retry_at = now + pause
        if row.joined_at is None:
            problem = problem_text(row.created_at, row.reason, retry_at)
        else:
            problem = unused_text(row.joined_at, retry_at)
        failures = min(locked.failures + 1, 1000)
        ElasticPool.objects.filter(pk=pool.pk).update(failures=failures, problem=problem[:300], retry_at=retry_at)
        if failures == FAILURES_NOTIFIED:
            pool_failing.send(ElasticPool, pool=pool, since=now, problem=problem)
    pool.refresh_from_db()
    logger.warning("pool %s: host %s: %s", pool, row, pool.problem)


def _note_success(pool: ElasticPool) -> None:
    ElasticPool.objects.filter(pk=pool.pk).update(failures=0, problem="", retry_at=None)
    pool.refresh_from_db()


def _create(pool: ElasticPool, row: ElasticHost, provider: Provider) -> bool:
    """Ask the provider for a host, with a token by which it joins; perhaps once more, after a process died.

    Return False if it refused or did not answer.
    """
    kind = pool.host_type(row.type_name)
    now = clock.now()
    if kind is None:
        row.move_to(ElasticState.DELETING, now, "The pool has no such type any more", has_failed=True)
        return True
    if row.state == ElasticState.REQUESTED and not row.move_to(ElasticState.CREATING, now):
        return True
    try:
        request = HostRequest(
            name=row.name,
            group=pool.group.name,
            shape=shape_of(kind),
            join_token=_invite(pool, row),
            join_address=settings.COMPUTE_PUBLIC_URL,
        )
        identifier = provider.create(request)
    except (ProviderError, RolesUnavailableError, ValidationError) as error:
        _give_up(pool, row, _text_of(error), clock.now())
        return False
    row.move_to(ElasticState.JOINING, clock.now(), identifier=identifier)
    return True


def _invite(pool: ElasticPool, row: ElasticHost) -> str:
    """Let a host join, and return its token: the same one each time, as it may have been sent by a process that died.

    A host that has joined by it is not let in again.
    """
    token = salted_hmac("gpuplatform.elastic_host", row.name, algorithm="sha256").hexdigest()
    if not HostAccess.objects.filter(name=row.name, joined_at__isnull=False).exists():
        hostaccess.add(row.name, pool.group.name, pool.give_up_after, token)
    return token


def _delete(row: ElasticHost, listed: ProvidedHost | None, provider: Provider) -> None:
    """Give a host back, and take its credentials; what fails is tried again by the next look."""
    identifier = row.identifier or (listed.identifier if listed is not None else "")
    try:
        if identifier:
            provider.delete(identifier)
        hostaccess.revoke(row.name)
    except (ProviderError, RolesUnavailableError, RedisUsersUnavailableError) as error:
        logger.warning("host %s could not be given back yet: %s", row, error)
        return
    state = ElasticState.FAILED if row.has_failed else ElasticState.ENDED
    now = clock.now()
    row.move_to(state, now, row.reason, ended_at=now, host=Host.objects.filter(name=row.name).first())
    logger.info("host %s: given back: %s", row, row.reason)


def _delete_unknown(pool: ElasticPool, listed: Sequence[ProvidedHost], provider: Provider) -> None:
    """Delete what the provider has under our names, but for hosts that are wanted: a process died, or it came late."""
    known: Mapping[str, str] = dict(live_hosts(pool).values_list("name", "identifier"))
    for each in listed:
        is_there = each.state != ProvidedState.ENDED and each.is_left  # one that has failed may be paid for
        is_second = known.get(each.host_name or "", each.identifier) not in ("", each.identifier)
        if is_there and (each.host_name not in known or is_second):
            logger.warning("pool %s: %s is not wanted and is deleted", pool, each.host_name)
            try:
                provider.delete(each.identifier)
            except ProviderError as error:
                logger.warning("pool %s: %s could not be deleted yet: %s", pool, each.host_name, error)


def _forget_gone_hosts(pool: ElasticPool) -> None:
    """Delete the hosts that were given back, once nothing of them is left: they will never come again.

    What is parked there, or waits to be resumed, has lost its files.
    """
    for host in Host.objects.filter(elastic_host__pool=pool, elastic_host__state__in=OVER):
        for session in host.parked_sessions.filter(status__in=(Status.PARKED, Status.PENDING)):
            services.end(session, Reason.FILES_LOST, FILES_GONE)
        if not _is_in_use(host):
            with transaction.atomic():
                Session.objects.filter(host=host).exclude(status__in=HOSTED).update(host=None)
                host.parked_sessions.update(parked_on=None)
                Host.objects.filter(pk=host.pk).delete()
