"""What running containers write to their standard output, which the engine copies on its own account.

The engine spends some microseconds on each line, outside of the session's cgroup. Who writes too much is slowed down by
the engine's own means: it copies an output to its log and to whoever is attached alike, and waits for the slowest. So
this attaches to such a container and reads no faster than may be; its programs then wait as they write. Nothing of the
log is lost, and nothing is done to other containers.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from docker.api import APIClient

from engine.containers import container_name
from hostworker.runtime.docker.states import key_of
from hostworker.runtime.engine_requests import has_labels, ignore_missing, inspect, label_filter, translated
from hostworker.runtime_protocol import EngineUnreachableError, Key
from resources import procfs

logger = logging.getLogger(__name__)

MAX_LINES_PER_SECOND: Final = (
    5_000  # short lines of one container, one or two percent of a core; or 200 times as many bytes
)
BYTES_OF_LINE: Final = 200  # that cost as much as another line
TAIL_LINES: Final = 500  # of the log, of which the pace is taken
RECENT: Final = timedelta(seconds=15)  # age of the last line of an output that still comes
READ_BYTES: Final = 16 * 1024
WINDOW_SECONDS: Final = 5.0  # in which an output that comes at less than half of the pace is let go
STAMP_CHARACTERS: Final = 26  # of a time with microseconds


class DockerOutputs:
    """The outputs of one owner's containers on an engine of this machine; of others nothing is known.

    Implements HostOutputs.
    """

    def __init__(self, client: Callable[[], APIClient], owner: Mapping[str, str], *, is_here: bool) -> None:
        self._client = client
        self._owner = owner
        self._is_here = is_here
        self._lock = threading.Lock()  # guards what follows
        self._slowed: dict[Key, _SlowReader] = {}

    def flooding(self) -> set[Key]:
        """Return the running containers whose last lines came too fast, those slowed down left out."""
        if not self._is_here:
            return set()
        found = set()
        with translated(EngineUnreachableError):
            client = self._client()
            for each in client.containers(filters={"label": label_filter(self._owner), "status": ["running"]}):
                key = key_of(each["Labels"])
                if key is None or key in self._slowed:
                    continue
                with ignore_missing():
                    if pace_of(client.logs(each["Id"], tail=TAIL_LINES, timestamps=True)) > MAX_LINES_PER_SECOND:
                        found.add(key)
        return found

    def slow_down(self, session: str, attempt: int) -> None:
        """Read the output no faster than may be, until it comes slower by itself."""
        key = (session, attempt)
        with translated(EngineUnreachableError):
            container = inspect(self._client(), container_name(*key))
            if container is None or not has_labels(container, self._owner) or not container["State"]["Running"]:
                return
            attached = self._client().attach_socket(container["Id"], {"stdout": 1, "stderr": 1, "stream": 1})
        reader = _SlowReader(attached, int(container["State"]["Pid"]))
        with self._lock:
            self._slowed[key] = reader
        threading.Thread(target=self._read, args=(key, reader), name=f"output {session}", daemon=True).start()

    def slowed(self) -> set[Key]:
        with self._lock:
            return {key for key, reader in self._slowed.items() if reader.is_flooded}

    def release(self, session: str, attempt: int) -> None:
        """Let go of the output, as the container is to end."""
        with self._lock:
            reader = self._slowed.get((session, attempt))
        if reader:
            reader.close()

    def _read(self, key: Key, reader: "_SlowReader") -> None:
        try:
            reader.run()
        finally:
            reader.close()
            with self._lock:
                self._slowed.pop(key, None)


class _SlowReader:
    """Reads one container's output at MAX_LINES_PER_SECOND until it comes slower, or its main process has ended.

    The engine waits for what is left in the stream before it says that a container has ended, so this lets go at once.
    """

    def __init__(self, stream: Any, pid: int) -> None:
        """`stream` is what the SDK returns for an attached socket."""
        self.is_flooded = False
        self._stream = stream
        self._connection: socket.socket = stream._sock
        self._process = procfs.PROC / str(pid)
        self._closed = threading.Event()

    def run(self) -> None:
        """Return once there is nothing to slow down any more."""
        begun, cost = time.monotonic(), 0.0
        while not self._closed.is_set() and self._process.exists():
            read = self._read(begun + WINDOW_SECONDS - time.monotonic())
            if read is None:
                return
            cost += cost_of(read)
            if (pause := cost / MAX_LINES_PER_SECOND - (time.monotonic() - begun)) > 0:
                self._closed.wait(pause)
            seconds = time.monotonic() - begun
            if seconds >= WINDOW_SECONDS:
                self.is_flooded = cost > MAX_LINES_PER_SECOND * seconds / 2
                if not self.is_flooded:
                    return
                begun, cost = time.monotonic(), 0.0

    def close(self) -> None:
        """Let go of the output; safe to repeat."""
        self._closed.set()
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._stream.close()
        self._connection.close()

    def _read(self, timeout_seconds: float) -> bytes | None:
        """Return what came, nothing where none does in time; None at the end."""
        try:
            self._connection.settimeout(max(0.01, timeout_seconds))
            return self._connection.recv(READ_BYTES) or None
        except TimeoutError:
            return b""
        except OSError:  # closed
            return None


def cost_of(output: bytes) -> float:
    """Return what the engine's copying of an output costs, in short lines."""
    return output.count(b"\n") + len(output) / BYTES_OF_LINE


def pace_of(tail: bytes, now: datetime | None = None) -> float:
    """Return the cost per second of the last lines of a log, each with its time; 0 where they are few, or old.

    A session may write times of its own, but not before the engine's.
    """
    lines = tail.splitlines()
    if len(lines) < TAIL_LINES and len(tail) < MAX_LINES_PER_SECOND * BYTES_OF_LINE:
        return 0.0
    first, last = _time_of(lines[0]), _time_of(lines[-1])
    if first is None or last is None or last < (now or datetime.now(UTC)) - RECENT:
        return 0.0
    return cost_of(tail) / max((last - first).total_seconds(), 0.001)


def _time_of(line: bytes) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(line[:STAMP_CHARACTERS].decode()).replace(tzinfo=UTC)
    return None
