"""The services of systemd: the units of deploy/systemd, and PostgreSQL and Redis where they are units of this machine.

https://www.freedesktop.org/software/systemd/man/latest/systemctl.html
"""

import shutil
import subprocess
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from operations.services.base import ServiceAction, ServiceControlError, ServiceState, ServiceStatus

PREFIX: Final = "gpuplatform-"
SUFFIX: Final = ".service"
SERVERS: Final = {"postgresql": "postgresql.service", "redis": "redis-server.service"}  # {name: unit}
# Debian's postgresql.service is active whatever becomes of the servers: each cluster is a unit of its own, such as
# postgresql@15-main, which starts and stops with it.
CLUSTERS: Final = "postgresql@"
PROPERTIES: Final = "Id,LoadState,UnitFileState,ActiveState,MainPID,NRestarts,StateChangeTimestamp"
STATUSES: Final = {
    "active": ServiceStatus.RUNNING,
    "reloading": ServiceStatus.RUNNING,
    "activating": ServiceStatus.STARTING,
    "deactivating": ServiceStatus.STARTING,
    "failed": ServiceStatus.FAILED,
}
SECONDS: Final = 60.0
JOURNAL_GROUP: Final = "systemd-journal"  # whose members may read all of the journal
NO_ENTRIES: Final = "-- No entries --"


class SystemdManager:
    """Asks systemd by its own programs."""

    title = "systemd"

    def is_running(self) -> bool:
        """Return whether systemd runs this machine and knows units of the platform."""
        if not Path("/run/systemd/system").is_dir() or not shutil.which("systemctl"):
            return False
        return any(state.name not in SERVERS for state in self.states())

    def states(self) -> list[ServiceState]:
        """Return the services that are enabled or run; units that are only installed are none."""
        patterns = (f"{PREFIX}*", *SERVERS.values(), f"{CLUSTERS}*{SUFFIX}")
        # A pattern finds no stopped unit without --all.
        text = _run("systemctl", "show", "--all", f"--property={PROPERTIES}", "--timestamp=unix", *patterns)
        found = {state.name: state for state in map(_state, _by_weight(units_of(text)))}
        return sorted(found.values(), key=lambda state: state.name)

    def act(self, action: ServiceAction, name: str) -> None:
        """Start, stop or restart a service; polkit decides whether this user may (docs/operations.md)."""
        _run("systemctl", "--no-ask-password", action.value, self._unit(name))

    def log(self, name: str, lines: int) -> list[str]:
        """Return the newest lines of its journal. Raises ServiceControlError where this user may not read it."""
        units = [f"--unit={self._unit(name)}"]
        if units == [f"--unit={SERVERS['postgresql']}"]:
            units.insert(0, f"--unit={CLUSTERS}*{SUFFIX}")
        text = _run("journalctl", "--no-pager", "--output=cat", f"--lines={lines}", *units)
        found = [line for line in text.splitlines() if line != NO_ENTRIES]
        # The status is 0 whether it may be read or not, and a hint is given in other formats alone.
        if not found and JOURNAL_GROUP in _done("journalctl", "--no-pager", "--lines=1", *units).stderr:
            raise ServiceControlError(f"this user may not read all of the journal: add it to the group {JOURNAL_GROUP}")
        return found

    def _unit(self, name: str) -> str:
        """Return the unit of a service. Raises ServiceControlError for one that is not the platform's."""
        if name not in {state.name for state in self.states()}:
            raise ServiceControlError(f"there is no service {name!r}")
        return SERVERS.get(name, f"{PREFIX}{name}{SUFFIX}")


def units_of(text: str) -> Iterator[dict[str, str]]:
    """Yield the properties of each unit that `systemctl show` has printed."""
    for block in text.split("\n\n"):
        if unit := dict(line.split("=", 1) for line in block.splitlines() if "=" in line):
            yield unit


def _is_set_up(unit: dict[str, str]) -> bool:
    if unit.get("LoadState") != "loaded" or not unit.get("Id", "").endswith(SUFFIX):
        return False
    return unit.get("UnitFileState") == "enabled" or unit.get("ActiveState") not in ("inactive", None)


def _by_weight(units: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Return the units that are set up; of those with one name, that which counts is the last."""
    found = [unit for unit in units if _is_set_up(unit)]
    return sorted(found, key=lambda unit: (unit["Id"].startswith(CLUSTERS), unit["ActiveState"] == "failed"))


def _state(unit: dict[str, str]) -> ServiceState:
    unit_names = {name: server for server, name in SERVERS.items()}
    since, pid = unit.get("StateChangeTimestamp", "").removeprefix("@"), int(unit.get("MainPID", "0") or 0)
    name = unit_names.get(unit["Id"], unit["Id"].removeprefix(PREFIX).removesuffix(SUFFIX))
    return ServiceState(
        name="postgresql" if name.startswith(CLUSTERS) else name,
        status=STATUSES.get(unit["ActiveState"], ServiceStatus.STOPPED),
        pid=pid or None,
        since=datetime.fromtimestamp(int(since), UTC) if since.isdecimal() else None,
        restarts=int(unit.get("NRestarts", "0") or 0),
    )


def _run(*command: str) -> str:
    return _done(*command).stdout


def _done(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    except subprocess.CalledProcessError as error:
        raise ServiceControlError(error.stderr.strip()[-500:] or f"{command[0]} failed") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServiceControlError(str(error)) from error
