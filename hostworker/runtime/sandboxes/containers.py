"""Sandboxes as containers of the Docker Engine: their names, their configuration, and the requests about them."""

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from docker.api import APIClient
from docker.errors import APIError, ImageNotFound

from engine.containers import INSTALLATION_LABEL
from fgpu.mounts import BindMount
from hostworker.privileged.hostnames import SANDBOX_HOSTNAME
from hostworker.runtime.engine_requests import (
    BAD_REQUEST,
    CONFLICT,
    NOT_FOUND,
    has_labels,
    ignore_missing,
    inspect,
    label_filter,
)
from hostworker.runtime.gpu_access import NO_DEVICES
from hostworker.runtime.sandboxes import image as sandbox_image
from hostworker.runtime_protocol import Key, StartError

NAME_FILES: Final = ("hosts", "hostname", "resolv.conf")
SANDBOX_LABEL: Final = "gpuplatform.sandbox"
FREE: Final = "gp-sandbox-"  # + anything unique
USED: Final = "gp-net-"  # + the encrypted key
RETIRED: Final = "gp-retired-"
MEMORY: Final = 16 << 20  # bytes; the program needs some kilobytes, the engine's start of it some megabytes
PIDS_LIMIT: Final = 32  # one process; the engine's start of it has some threads


class Sandbox(NamedTuple):
    """A running sandbox, and the address that the container joining it has."""

    id: str
    address: str | None


def address_in(container: Mapping[str, Any]) -> str | None:
    """Return the IP address that the engine's view of a container shows; None where it has none now."""
    networks = (container.get("NetworkSettings") or {}).get("Networks") or {}
    return next((str(each["IPAddress"]) for each in networks.values() if each.get("IPAddress")), None)


def name_mounts(engine_root: str, sandbox: Sandbox | None) -> tuple[BindMount, ...]:
    """Return the files of names that the engine mounts in a container which joins the sandbox, but read-only.

    They lie in the engine's own folder, so that nothing would bound what root of a session writes to them. The engine
    demands this propagation of what is mounted from there.
    """
    if sandbox is None:
        return ()
    folder = Path(engine_root, "containers", sandbox.id)
    return tuple(BindMount(folder / name, f"/etc/{name}", propagation="rslave") for name in NAME_FILES)


def sandbox_name(key: Key, installation: str) -> str:
    """Return the engine-wide unique name of the sandbox that the attempt uses.

    The engine's name server tells the name to every other session for the asking, and who knows a session's id knows
    the address of its public apps. So the key is encrypted, deterministically (AES-SIV, RFC 5297), under the key of the
    installation, which only the engine is told.
    """
    text = f"{key[0]}-{key[1]}".encode()
    return USED + base64.b32encode(_cipher(installation).encrypt(text, None)).decode().lower().rstrip("=")


def key_in(name: str, installation: str) -> Key | None:
    """Return the attempt whose sandbox has this name, None if it is no sandbox in use."""
    if not name.startswith(USED):
        return None
    text = name.removeprefix(USED).upper()
    try:
        decrypted = _cipher(installation).decrypt(base64.b32decode(text + "=" * (-len(text) % 8)), None)
    except (ValueError, InvalidTag):
        return None
    session, _, attempt = decrypted.decode().rpartition("-")
    return session, int(attempt)


def _cipher(installation: str) -> AESSIV:
    return AESSIV(hashlib.sha256(f"sandbox names {installation}".encode()).digest())


def sandbox_config(
    owner: Mapping[str, str],
    network: str,
    hostname: str = SANDBOX_HOSTNAME,
    limits: Iterable[Mapping[str, object]] = (),
) -> dict[str, object]:
    """Return the body of the engine's create request; a session that joins has its host name from here."""
    return {
        "Image": sandbox_image.IMAGE,
        "Entrypoint": [sandbox_image.PROGRAM],
        "Hostname": hostname,
        "Labels": {**owner, SANDBOX_LABEL: "1"},
        "Env": [f"{name}={value}" for name, value in NO_DEVICES.items()],
        "HostConfig": {
            "NetworkMode": network,
            "Memory": MEMORY,
            "MemorySwap": MEMORY,
            "PidsLimit": PIDS_LIMIT,
            "Ulimits": list(limits),
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": True,
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "none"},
        },
    }


class SandboxContainers:
    """The engine's requests about the sandboxes of one installation and host; they raise what the SDK raises."""

    def __init__(
        self, client: Callable[[], APIClient], owner: Mapping[str, str], ensure_network: Callable[[], str]
    ) -> None:
        """`ensure_network` creates the network where it is missing and returns its name."""
        self._client = client
        self._owner = dict(owner)
        self._ensure_network = ensure_network

    def name_for(self, key: Key) -> str:
        """Return the name of the attempt's sandbox."""
        return sandbox_name(key, self._owner[INSTALLATION_LABEL])

    def used(self) -> list[tuple[Key, dict[str, Any]]]:
        """Return the attempts that have a sandbox, with what the engine lists of it."""
        installation = self._owner[INSTALLATION_LABEL]
        listed = ((key_in(name, installation), sandbox) for name, sandbox in self.list_by_name().items())
        return [(key, sandbox) for key, sandbox in listed if key]

    def create(self, name: str, hostname: str, limits: Iterable[Mapping[str, object]] = ()) -> str:
        """Return the id of a new container, which does not run yet; its image is made where it is missing."""
        client, config = self._client(), sandbox_config(self._owner, self._ensure_network(), hostname, limits)
        try:
            return str(client.create_container_from_config(config, name)["Id"])
        except ImageNotFound:
            client.import_image_from_data(
                sandbox_image.layer(), repository=sandbox_image.REPOSITORY, tag=sandbox_image.TAG
            )
            return str(client.create_container_from_config(config, name)["Id"])

    def start(self, container_id: str) -> dict[str, Any]:
        """Start the container and return the engine's inspection of it. Raises StartError where it ended at once."""
        self._client().start(container_id)
        inspected: dict[str, Any] = self._client().inspect_container(container_id)
        if not inspected["State"]["Running"]:  # as where another worker, which ends, removes it
            raise StartError("A sandbox ended as soon as it was made.")
        return inspected

    def is_running(self, container_id: str) -> bool:
        """Return whether the container is there and runs."""
        inspected = inspect(self._client(), container_id)
        return bool(inspected and inspected["State"]["Running"])

    def rename(self, name: str, key: Key) -> None:
        """Give the free sandbox to the attempt; the engine does this for one caller alone."""
        self._client().rename(name, self.name_for(key))

    def restart(self, key: Key) -> bool:
        """Start the attempt's sandbox again where it has died; return whether that was the case."""
        sandbox = self.find(key)
        if sandbox is None or sandbox["State"]["Running"]:
            return False
        self._client().start(sandbox["Id"])
        return True

    def retire(self, name: str) -> None:
        """Remove a free sandbox, unless another worker has taken it meanwhile: only one of them can rename it."""
        retired = name.replace(FREE, RETIRED)
        try:
            self._client().rename(name, retired)
        except APIError as error:
            if error.status_code in (NOT_FOUND, CONFLICT, BAD_REQUEST):  # another is at it; 400: it has that name now
                return
            raise
        self.remove(retired)

    def remove(self, container: str) -> None:
        """Remove the container, by its id or name, running or not; already gone is success."""
        with ignore_missing():
            self._client().remove_container(container, v=True, force=True)

    def find(self, key: Key) -> dict[str, Any] | None:
        """Return the engine's inspection of the attempt's sandbox, None where it has none of ours."""
        sandbox = inspect(self._client(), self.name_for(key))
        return sandbox if sandbox and has_labels(sandbox, {**self._owner, SANDBOX_LABEL: "1"}) else None

    def list_by_name(self) -> dict[str, dict[str, Any]]:
        """Return what the engine lists of our sandboxes, in any state, by name."""
        labels = label_filter({**self._owner, SANDBOX_LABEL: "1"})
        listed = self._client().containers(all=True, filters={"label": labels})
        return {name.lstrip("/"): sandbox for sandbox in listed for name in sandbox["Names"][:1]}
