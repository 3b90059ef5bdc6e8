"""Provide the Debian base image of builds: pulled from a registry, or made with debootstrap without one."""

import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import requests
from django.conf import settings
from docker import DockerClient
from docker.errors import DockerException, ImageNotFound

logger = logging.getLogger(__name__)

PROBE_SECONDS: Final = 5  # a registry that has not answered by then is taken for unreachable
DEBOOTSTRAP_SECONDS: Final = 1800
MIRROR: Final = "http://deb.debian.org/debian"
SECURITY_MIRROR: Final = "http://deb.debian.org/debian-security"
# What the slim images of Debian leave out too; apt recreates the caches, the engine /dev.
_LEFT_OUT: Final = (
    *("./dev/*", "./var/cache/apt/*", "./var/lib/apt/lists/*", "./var/log/*"),
    *("./usr/share/info/*", "./usr/share/locale/*", "./usr/share/man/*"),
)

Report = Callable[[str], None]


class BaseImageError(Exception):
    """No base image is available; the message has the cause and what to do."""


class Bases:
    """The Debian bases of one engine; each is provided once in the life of this object."""

    def __init__(self, engine: DockerClient, *, refresh: bool, report: Report) -> None:
        """Use `engine`; with `refresh` renew the bases that are there; `report` gets sentences."""
        self._engine, self._refresh, self._report = engine, refresh, report
        self._provided: dict[str, str] = {}

    def reference(self, suite: str) -> str:
        """Return the image of a Debian release, fetching or making it if needed. Raise BaseImageError."""
        if suite not in self._provided:
            self._provided[suite] = self._provide(suite)
        return self._provided[suite]

    def _provide(self, suite: str) -> str:
        official, own = f"debian:{suite}-slim", f"gpuplatform/base:{suite}"
        local = next((reference for reference in (official, own) if has_image(self._engine, reference)), None)
        if local and not self._refresh:
            return local
        if self._pull(official):
            return official
        if os.geteuid() == 0 and shutil.which("debootstrap"):
            self._bootstrap(suite, own)
            return own
        if local:
            return local
        raise BaseImageError(
            f"no registry answers for {official}, and it takes root and debootstrap to make it here: run `make images` "
            "as root (apt-get install debootstrap), or bring the image from elsewhere "
            f"(docker save {official}, docker load)"
        )

    def _pull(self, reference: str) -> bool:
        self._report(f"asking the registry for {reference}")
        if not registry_responds(reference):
            return False
        repository, _, tag = reference.rpartition(":")
        self._report(f"pulling {reference}")
        try:
            raise_for_error(self._engine.api.pull(repository, tag=tag, stream=True, decode=True))
        except (DockerException, requests.RequestException) as error:
            self._report(f"the pull failed: {error}")
            return False
        return True

    def _bootstrap(self, suite: str, reference: str) -> None:
        self._report(f"no registry answers: making {reference} with debootstrap, about a minute")
        with tempfile.TemporaryDirectory(prefix="gpuplatform-base-", dir="/var/tmp") as folder:
            root = Path(folder, "root")
            # In a mount namespace of its own, so that no mount of /proc outlives it, however it ends.
            command = ["unshare", "--mount", "debootstrap", "--variant=minbase", suite, str(root), MIRROR]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=DEBOOTSTRAP_SECONDS, check=False)
            except subprocess.TimeoutExpired:
                raise BaseImageError(f"debootstrap {suite} took more than {DEBOOTSTRAP_SECONDS} s") from None
            if done.returncode:
                tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
                raise BaseImageError(f"{' '.join(command[2:])} failed:\n{tail}")
            Path(root, "etc/apt/sources.list").write_text(_sources(suite))
            self._import(root, reference)

    def _import(self, root: Path, reference: str) -> None:
        repository, _, tag = reference.rpartition(":")
        excludes = [f"--exclude={pattern}" for pattern in _LEFT_OUT]
        command = ["tar", "--create", "--numeric-owner", *excludes, "--directory", str(root), "."]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as tar:
            self._engine.api.import_image_from_stream(
                tar.stdout, repository=repository, tag=tag, changes=['CMD ["bash"]']
            )
        if tar.returncode:
            raise BaseImageError(f"tar of {root} ended with {tar.returncode}")


def has_image(engine: DockerClient, reference: str) -> bool:
    """Return whether the engine has this image."""
    try:
        engine.images.get(reference)
    except ImageNotFound:
        return False
    return True


def registry_responds(reference: str) -> bool:
    """Return within seconds whether the engine can reach the registry of `reference` and the image is there."""
    probe = DockerClient(base_url=settings.COMPUTE_DOCKER_URL, timeout=PROBE_SECONDS)
    try:
        probe.images.get_registry_data(reference)
    except (DockerException, requests.RequestException) as error:
        logger.debug("no answer for %s: %s", reference, error)
        return False
    finally:
        probe.close()
    return True


def raise_for_error(events: Iterable[dict[str, object]]) -> None:
    """Read an engine's stream of events to its end; raise DockerException when one is an error."""
    for event in events:
        if "error" in event:
            raise DockerException(str(event["error"]))


def _sources(suite: str) -> str:
    return (
        f"deb {MIRROR} {suite} main\ndeb {MIRROR} {suite}-updates main\ndeb {SECURITY_MIRROR} {suite}-security main\n"
    )
