"""The services of `make up`, whose supervisor listens on a socket that its own user alone may open.

Request and response are a JSON object on one line each; a response is {"states": [...]}, {"lines": [...]}, {} or
{"error": text}.
"""

import json
import socket
from pathlib import Path
from typing import Any, Final

from operations.services.base import ServiceAction, ServiceControlError, ServiceState

CONNECT_SECONDS: Final = 2.0
ACTION_SECONDS: Final = 60.0  # a worker may take its grace to end
NEWLINE: Final = b"\n"


class SupervisorManager:
    """Asks the supervisor of `make up`."""

    title = "make up"

    def __init__(self, path: Path) -> None:
        self._path = path

    def is_running(self) -> bool:
        """Return whether a supervisor listens."""
        try:
            with self._connected():
                return True
        except ServiceControlError:
            return False

    def states(self) -> list[ServiceState]:
        """Return all services."""
        return [ServiceState.from_json(values) for values in self._ask(action="status")["states"]]

    def act(self, action: ServiceAction, name: str) -> None:
        """Start, stop or restart a service, and wait until that is done."""
        self._ask(action=action.value, service=name)

    def log(self, name: str, lines: int) -> list[str]:
        """Return the newest lines of its log."""
        found: list[str] = self._ask(action="log", service=name, lines=lines)["lines"]
        return found

    def _connected(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(CONNECT_SECONDS)
        try:
            client.connect(str(self._path))
        except OSError as error:
            client.close()
            raise ServiceControlError(f"`make up` does not run: {error}") from error
        return client

    def _ask(self, **request: Any) -> dict[str, Any]:
        with self._connected() as client:
            client.settimeout(ACTION_SECONDS)
            try:
                client.sendall(json.dumps(request).encode() + NEWLINE)
                answer: dict[str, Any] = json.loads(client.makefile("rb").readline())  # ValueError where it has ended
            except (OSError, ValueError) as error:
                raise ServiceControlError(f"the supervisor of `make up` does not respond: {error}") from error
        if "error" in answer:
            raise ServiceControlError(answer["error"])
        return answer
