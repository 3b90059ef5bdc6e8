"""Hosts' connections to PostgreSQL by which others have to wait, and their ends.

What a host may do with its rows it may do in transactions without end, under locks that others need, and no right
forbids advisory locks. So connections that keep others waiting are ended, as those of a host that was broken into, or
whose machine has stopped in the middle.
"""

import logging
import threading
import time
from datetime import timedelta
from typing import Any, Final

from django.db import Error, connection

from accounts import audit
from accounts.models import AuditEntry
from hostaccess.models import HostAccess
from hostaccess.roles import role_prefix
from resources import clock

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 5.0
OPEN: Final = timedelta(seconds=60)  # a transaction of a host
BLOCKED: Final = timedelta(seconds=10)  # somebody else, by a lock of a host
MAX_ADVISORY_LOCKS: Final = 100  # of one connection, which takes one at a time
# Classes of advisory locks that hosts hold outside transactions: CONTAINER_LOCK and CONVERSION_LOCK of hostworker.
OWN_CLASSES: Final = [0x434F4E54, 0x434F4E56]
ACTION: Final = "end connections"
AUDIT_PAUSE: Final = timedelta(hours=1)  # between two entries about one host
END: Final = """
    WITH stalled AS MATERIALIZED (
        SELECT usename, pid, CASE
            WHEN xact_start < clock_timestamp() - %(open)s THEN 'its transaction does not end'
            WHEN EXISTS (
                SELECT FROM pg_locks wanted JOIN pg_stat_activity other ON other.pid = wanted.pid
                WHERE NOT wanted.granted AND wanted.waitstart <= clock_timestamp() - %(blocked)s
                AND other.usename != host.usename AND host.pid = ANY (pg_blocking_pids(wanted.pid))
            ) AND NOT EXISTS (
                SELECT FROM pg_stat_activity holder
                WHERE holder.pid = ANY (pg_blocking_pids(host.pid)) AND holder.usename != host.usename
            ) THEN 'others wait for its locks'
            WHEN (
                SELECT count(*) > %(most)s
                    OR count(*) FILTER (WHERE objsubid != 2 OR classid::bigint != ALL (%(classes)s)) > 0
                    AND (host.state = 'idle' OR host.xact_start <= clock_timestamp() - %(blocked)s)
                FROM pg_locks held WHERE held.pid = host.pid AND held.locktype = 'advisory'
            ) THEN 'it holds locks that are not its own'
        END AS reason
        FROM pg_stat_activity host WHERE starts_with(usename, %(prefix)s)
    )
    SELECT usename, reason FROM stalled
    WHERE CASE WHEN reason IS NOT NULL THEN pg_terminate_backend(pid) END  -- in this order
"""


def end_stalled(blocked: timedelta = BLOCKED, open_for: timedelta = OPEN) -> dict[str, str]:
    """End the connections of hosts that hold others up; return why, by the name of the host."""
    values: dict[str, Any] = {
        "prefix": role_prefix(),
        "open": open_for,
        "blocked": blocked,
        "most": MAX_ADVISORY_LOCKS,
        "classes": OWN_CLASSES,
    }
    with connection.cursor() as cursor:
        cursor.execute(END, values)
        ended = dict(cursor.fetchall())
    reasons = {}
    for access in HostAccess.objects.filter(role__in=ended):
        reason = reasons[access.name] = ended[access.role]
        logger.warning("host %s: connections to PostgreSQL were ended: %s", access.name, reason)
        _record(access, reason)
    return reasons


def keep() -> None:
    """Look again and again, by a thread, until this process ends: tasks of the scheduler may wait themselves."""

    def go_on() -> None:
        while True:
            time.sleep(CHECK_SECONDS)
            try:
                end_stalled()
            except Error as error:
                logger.warning("the connections of hosts could not be looked at: %s", error)
            finally:
                connection.close()

    threading.Thread(target=go_on, name="connections of hosts", daemon=True).start()


def _record(access: HostAccess, reason: str) -> None:
    """Add an entry to the audit log, unless there was one of late."""
    _, key = audit.key_of(access)
    entries = AuditEntry.objects.filter(action=ACTION, object_id=key, at__gt=clock.now() - AUDIT_PAUSE)
    if not entries.exists():
        audit.record(None, ACTION, access, {"reason": (None, reason)})
