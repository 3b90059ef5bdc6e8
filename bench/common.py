"""What the benchmarks of starts share: a user of a running platform, and the same container on the bare engine."""

import json
import os
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import docker
import psycopg

import bench.apps_ready  # noqa: F401  # before what imports models
from engine.containers import HOST_LABEL, container_name
from hostworker.privileged.hostnames import SANDBOX_HOSTNAME
from hostworker.runtime.container_config import container_config
from hostworker.runtime.sandboxes.containers import FREE, SANDBOX_LABEL
from hostworker.runtime_protocol import ContainerSpec
from operations import embedded
from resources.amounts.units import GIB, MIB
from tests.platform import Platform

EVERY_SECONDS = 0.002
NETWORK = "gpuplatform"
SHAPE = {"cpu": 1, "memory": GIB, "shared_memory": 64 * MIB, "fgpu": "2"}  # the whole GPU, so that the next one waits


class ApiUser:
    """Speaks the API as a user would, and watches the sessions in the database."""

    def __init__(self, platform: Platform, email: str = "user@example.org") -> None:
        self._url = f"{platform.url}/api/v1"
        self._headers = {"Content-Type": "application/json"}
        self._watch = psycopg.connect(embedded.database_url(platform.var_dir), autocommit=True)
        token = self.post("/auth/token/", {"email": email, "password": platform.passwords[email]})["token"]
        self._headers["Authorization"] = f"Token {token}"
        self._image = self.get("/images/")["results"][0]["reference"]

    @property
    def image(self) -> str:
        """Reference of the image that is launched, here and on the bare engine."""
        return str(self._image)

    def get(self, path: str) -> Any:
        """Return the answer to a GET."""
        return self._send("GET", path, None)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Return the answer to a POST."""
        return self._send("POST", path, body)

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        """Return the answer to a PATCH."""
        return self._send("PATCH", path, body)

    def submit(self) -> str:
        """Return the id of a new session."""
        (session,) = self.post("/sessions/", {"image": self._image, **SHAPE})
        return str(session["id"])

    def terminate(self, session: str) -> None:
        """Ask for the end of the session."""
        self.post(f"/sessions/{session}/terminate/", {})

    def wait(self, session: str, status: str, every_seconds: float = EVERY_SECONDS) -> None:
        """Return when the session has the status; asking often costs the machine what the platform could use."""
        deadline = time.monotonic() + 60
        query = "SELECT 1 FROM compute_session WHERE id = %s AND status = %s"
        while not self._watch.execute(query, (session, status)).fetchone():
            if time.monotonic() > deadline:
                raise TimeoutError(f"session {session} did not become {status}")
            time.sleep(every_seconds)

    def close(self) -> None:
        """Close the connection to the database."""
        self._watch.close()

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, self._headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())


class BareEngine:
    """The same container without the platform, on the host's own network."""

    def __init__(self, image: str, host: str, sandboxes: int, engine_url: str | None = None) -> None:
        """`sandboxes` is how many the platform keeps ready."""
        self._client = docker.APIClient(engine_url, version="auto")
        # A label value of its own: the reconciler must not take these containers for orphans.
        self._image, self._owner = image, {HOST_LABEL: f"{host}-bare"}
        self._marks = [f"{HOST_LABEL}={host}", SANDBOX_LABEL]
        self._sandboxes = sandboxes
        self._number = 0

    def settle(self) -> None:
        """Return when the platform leaves the engine alone: its sandboxes are ready, and used ones are removed."""
        deadline = time.monotonic() + 60
        while not self._is_settled():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the platform did not get {self._sandboxes} sandboxes ready")
            time.sleep(EVERY_SECONDS * 10)

    def has_sandbox(self, session: str) -> bool:
        """Return whether the session's container joined a sandbox that was ready, not one made for it."""
        container = self._client.inspect_container(container_name(session, 1))
        return bool(container["Config"]["Hostname"] == SANDBOX_HOSTNAME)

    def launch(self) -> str:
        """Create and start; return the container's name."""
        self._number += 1
        spec = ContainerSpec(
            session=f"bench{time.time_ns()}",
            attempt=self._number,
            image=self._image,
            cpu=1,
            memory_bytes=GIB,
            shared_memory_bytes=64 * MIB,
            hostname="bench",
        )
        name = container_name(spec.session, spec.attempt)
        self._client.create_container_from_config(container_config(spec, self._owner, NETWORK), name)
        self._client.start(name)
        return name

    def make_network(self, name: str) -> None:
        """Create a network that nothing joins."""
        self._client.create_network(name, check_duplicate=True)

    def remove_network(self, name: str) -> None:
        """Remove it."""
        self._client.remove_network(name)

    def end(self, name: str) -> None:
        """Stop and remove."""
        self._client.stop(name, timeout=5)
        self._client.remove_container(name)

    def _is_settled(self) -> bool:
        """Return whether there are as many free sandboxes as should be, and nothing is left of an ended session."""
        listed = self._client.containers(all=True, filters={"label": self._marks})
        ours = self._client.containers(all=True, filters={"label": self._marks[:1]})
        joined = {each["HostConfig"]["NetworkMode"].removeprefix("container:") for each in ours}
        free = [each for each in listed if each["Names"][0].startswith(f"/{FREE}")]
        used = [each for each in listed if each["Id"] in joined]
        is_ready = len(free) == self._sandboxes and len(listed) == len(free) + len(used)
        return is_ready and all(each["State"] == "running" for each in ours)


def timed(act: Callable[[], object]) -> float:
    """Return how many milliseconds `act` takes."""
    started = time.perf_counter()
    act()
    return (time.perf_counter() - started) * 1000


def load() -> list[float]:
    """Return the machine's load averages over 1, 5 and 15 minutes, without which no figure means anything."""
    return [round(average, 1) for average in os.getloadavg()]
