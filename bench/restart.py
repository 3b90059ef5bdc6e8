"""`make bench-restart`: what users notice while each process is replaced; JSON as the last line.

Two hosts with containers, one reached through its gateway. In a terminal on each somebody types all the time and
connects again as the page does; beside them sessions are launched, seen to run and ended over and over. `usual` is as
long without a restart. A restart is a stop and a start, as systemd's; of `web` and `far-gateway` it is a reload, one
process after the other. For each:

terminal_gap_s:        longest time between two answers of the shell, for the terminal on either host
connections:           that the two terminals opened anew
longest_request_s:     of the API, until its response, the repetitions of a client included
repeated_requests:     that got no response, or 409, 502, 503 or 504
"""

import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.common import load as machine_load
from bench.sizes import size
from tests.fleet import ADMIN, Fleet, SessionLoad, SteadyClient
from tests.steady_terminal import SteadyTerminal
from tests.two_host_fleet import GROUPS, PROCESSES, two_host_fleet

SESSIONS: Final = size(4, 1)  # launched in each group from each restart on
RELOADED: Final = ("web", "far-gateway")
RESTARTED: Final = size(PROCESSES, ("web", "far-host", "far-gateway"))
LINES: Final = size(50, 3)  # typed in each terminal from each restart on


def main() -> None:
    """Measure, and print."""
    with tempfile.TemporaryDirectory(prefix="gp-bench-") as folder, two_host_fleet(Path(folder)) as fleet:
        client = SteadyClient(fleet.url, ADMIN, fleet.password(ADMIN))
        asked = [{"image": fleet.image, "memory": "256MiB", "resource_group": group} for group in GROUPS]
        sessions = [client.launch(**each) for each in asked]
        terminals = [SteadyTerminal(fleet.url, session, client.token) for session in sessions]
        acts: dict[str, Callable[[], None]] = {"usual": lambda: None}
        acts |= {name: partial(fleet.reload if name in RELOADED else fleet.restart, name) for name in RESTARTED}
        figures = {name: _measured(fleet, asked, terminals, act) for name, act in acts.items()}
        for terminal in terminals:
            terminal.finish()
        harmed = [pk for pk in sessions if client.get(f"sessions/{pk}/")["status"] != "RUNNING"]
    sys.stdout.write(json.dumps({**figures, "sessions_harmed": len(harmed), "load": machine_load()}) + "\n")


def _measured(
    fleet: Fleet, asked: list[dict[str, Any]], terminals: list[SteadyTerminal], act: Callable[[], None]
) -> dict[str, Any]:
    """Return what users notice while `act` is called and afterwards."""
    loads = [SessionLoad(fleet.url, ADMIN, fleet.password(ADMIN), {"cpu": 1, **each}, threads=1) for each in asked]
    for users in loads:
        users.wait_for(1)
    for terminal in terminals:
        terminal.wait_for(1)
        terminal.longest_gap_s = 0.0
    connections = sum(terminal.connections for terminal in terminals)
    act()
    for users in loads:
        users.wait_for(SESSIONS)
    for terminal in terminals:
        terminal.wait_for(LINES)
    for users in loads:
        users.finish()
    return {
        "terminal_gap_s": {group: round(each.longest_gap_s, 2) for group, each in zip(GROUPS, terminals, strict=True)},
        "connections": sum(terminal.connections for terminal in terminals) - connections,
        "longest_request_s": round(max(users.longest_outage_s for users in loads), 2),
        "repeated_requests": sum(users.repeated for users in loads),
        "sessions": sum(len(users.started) for users in loads),
    }


if __name__ == "__main__":
    main()
