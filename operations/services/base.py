"""What every manager of services offers."""

from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol

DEFAULT_LINES: Final = 200
MAX_LINES: Final = 2000  # of one request for a log


class ServiceAction(StrEnum):
    """What can be done with a service."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"


class ServiceStatus(StrEnum):
    """What a service does."""

    RUNNING = "running"
    STARTING = "starting"  # or waiting to be started again
    STOPPED = "stopped"
    FAILED = "failed"


class ServiceControlError(Exception):
    """The manager of the services cannot be asked, or refuses; the message has the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """A service as its manager describes it."""

    name: str
    status: ServiceStatus
    pid: int | None = None
    since: datetime | None = None  # of the present status
    restarts: int | None = None  # by the manager, since it began

    def as_json(self) -> dict[str, Any]:
        """Return the state as values of JSON."""
        return {**asdict(self), "since": self.since.isoformat() if self.since else None}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "ServiceState":
        """Return the state that `as_json` described."""
        since = values["since"]
        known = {"status": ServiceStatus(values["status"]), "since": datetime.fromisoformat(since) if since else None}
        return cls(**{**values, **known})


class ServiceManager(Protocol):
    """Runs the services of this machine. Every method may raise ServiceControlError, and may block for a while."""

    title: str

    def states(self) -> list[ServiceState]:
        """Return all services of the platform that are set up on this machine."""

    def act(self, action: ServiceAction, name: str) -> None:
        """Start, stop or restart a service; starting one that runs and stopping one that does not are no-ops."""

    def log(self, name: str, lines: int) -> list[str]:
        """Return the newest lines of its log, the oldest first."""
