"""`make bench-failover`: how long a failover of Redis, and of PostgreSQL, holds up users; JSON as the last line.

Servers and load are those of tests/test_failover.py: sessions are launched, seen to run and ended over and over.
What a failover is noticed after, and who promotes the standby, is the cluster manager's: here Redis Sentinel after
`down_after_s`, and PostgreSQL at once.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.common import load as machine_load
from bench.sizes import size
from tests.failover import DOWN_AFTER_MILLISECONDS, failover_servers
from tests.fleet import ADMIN, LAUNCH, Fleet, SessionLoad, in_memory_fleet

SESSIONS = size(12, 2)  # launched before, and after each failover


def main() -> None:
    """Measure, and print."""
    with tempfile.TemporaryDirectory(prefix="gp-bench-") as folder, failover_servers() as servers:
        Path(folder).chmod(0o755)
        with in_memory_fleet(Path(folder), **servers.environment()) as fleet:
            figures: dict[str, Any] = {"usual": _measured(fleet, lambda: None)}
            figures["redis"] = _measured(fleet, servers.redis.kill_primary)
            figures["redis"]["down_after_s"] = DOWN_AFTER_MILLISECONDS / 1000
            figures["database"] = _measured(fleet, servers.database.fail_over)
    figures["load"] = machine_load()
    sys.stdout.write(json.dumps(figures) + "\n")


def _measured(fleet: Fleet, fail: Callable[[], None]) -> dict[str, Any]:
    """Return what users notice while `fail` is called and afterwards."""
    users = SessionLoad(fleet.url, ADMIN, fleet.password(ADMIN), LAUNCH)
    users.wait_for(3)
    began = time.monotonic()
    fail()
    users.wait_for(SESSIONS)
    elapsed = time.monotonic() - began
    users.finish()
    return {
        "sessions": len(users.started),
        "longest_request_s": round(users.longest_outage_s, 2),
        "longest_start_s": round(users.longest_start_s, 2),
        "repeated_requests": users.repeated,
        "until_twelve_more_sessions_s": round(elapsed, 2),
    }


if __name__ == "__main__":
    main()
