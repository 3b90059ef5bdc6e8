"""This process's connection to the Docker Engine, and the network that its containers are on."""

import os
import threading
from collections.abc import Mapping
from typing import Any, Final

from docker.api import APIClient
from docker.errors import APIError, NotFound
from docker.transport import UnixHTTPAdapter

from hostworker.runtime.container_config import network_options
from hostworker.runtime.engine_requests import explanation, retry_on_conflict

REQUEST_TIMEOUT_SECONDS: Final = 60
POOLED_CONNECTIONS: Final = 32  # above this many requests at once, connections are opened and thrown away
LOCAL: Final = "unix://"


class _OneServerAdapter(UnixHTTPAdapter):
    """Keeps connections for all requests; the SDK's has them by URL, so that most requests would connect anew."""

    def get_connection(self, url: str | bytes, proxies: Mapping[str, str] | None = None) -> Any:
        """Return the connections to the engine."""
        return super().get_connection(self.socket_path, proxies)


class ProcessClient:
    """A client per process: connections are shared by the process's threads, never across a fork."""

    def __init__(self, engine_url: str, timeout_seconds: int = REQUEST_TIMEOUT_SECONDS) -> None:
        """`timeout_seconds` is how long the engine may be silent within a request."""
        self._engine_url = engine_url
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._connection: tuple[int, APIClient] | None = None  # process id and its client

    def __call__(self) -> APIClient:
        """Return this process's client, which connects when it is first used."""
        with self._lock:
            if self._connection is None or self._connection[0] != os.getpid():
                client = APIClient(
                    self._engine_url,
                    version="auto",
                    timeout=self._timeout_seconds,
                    max_pool_size=POOLED_CONNECTIONS,
                )
                if self._engine_url.startswith(LOCAL):
                    path = self._engine_url.removeprefix(LOCAL)
                    shared = _OneServerAdapter(path, self._timeout_seconds, max_pool_size=POOLED_CONNECTIONS)
                    client.get_adapter(client.base_url).close()
                    client.mount(client.base_url, shared)
                self._connection = (os.getpid(), client)
            return self._connection[1]


class BridgeNetwork:
    """The bridge that all sessions of a host are on, created where it is missing."""

    def __init__(self, client: ProcessClient, name: str) -> None:
        self.name = name
        self._client = client
        self._lock = threading.Lock()
        self._is_ensured = False

    def ensure(self) -> None:
        """Create the network unless this process has found or created it before."""
        if not self._is_ensured:
            self.ensure_anew()

    def ensure_anew(self) -> str:
        """Create the network if it is not there now, and return its name."""
        with self._lock:
            client = self._client()
            for _ in retry_on_conflict():
                try:
                    client.inspect_network(self.name)
                    break
                except NotFound:
                    _create(client, self.name)
            self._is_ensured = True
        return self.name

    def start(self, container_id: str) -> None:
        """Start a container that is on the network alone, after creating the network again where it is gone."""
        client = self._client()
        try:
            client.start(container_id)
        except NotFound as error:
            if "network" not in explanation(error).lower():
                raise
            self.ensure_anew()
            client.start(container_id)


def _create(client: APIClient, name: str) -> None:
    """Create the bridge; one that another worker creates at the same time is left to the caller to find."""
    try:
        client.create_network(name, driver="bridge", options=network_options(name), check_duplicate=True)
    except APIError as error:
        if not any(sign in explanation(error) for sign in ("already exists", "same bridge name", "already in use")):
            raise
