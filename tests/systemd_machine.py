"""A container whose init is systemd, with PostgreSQL and Redis: a Debian on which the platform may be installed."""

import io
import os
import secrets
import sysconfig
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import docker
from docker.api import APIClient

from resources.images.base import Bases, has_image
from resources.images.catalogue.inputs import network_arguments
from tests.containers import ENGINE_URL
from tests.execs import output_of

ROOT: Final = Path(__file__).resolve().parent.parent
IMAGE: Final = "gptest/systemd:1"  # raise the tag when the content changes
# Redis has a user namespace of its own in Debian's unit, which containers do not have.
DOCKERFILE: Final = r"""
ARG BASE
FROM ${BASE}
RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
        dbus postgresql python3 python3-venv redis-server systemd systemd-sysv && \
    groupadd --system docker && mkdir /etc/systemd/system/redis-server.service.d && \
    printf '[Service]\nPrivateUsers=no\n' >/etc/systemd/system/redis-server.service.d/container.conf
"""
# systemd gets a part of the unified hierarchy as all of it, in a mount namespace of its own. With this machine's
# /sys/fs/cgroup it would add hierarchies there, and the engine would hear of no lack of memory until the next reboot.
BEGIN: Final = """
mount -t cgroup2 cgroup2 /mnt && mkdir /mnt/$0 && echo $$ >/mnt/$0/cgroup.procs && umount /mnt &&
exec unshare --cgroup sh -c 'mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec /sbin/init'
"""
CLEAR: Final = "mount -t cgroup2 cgroup2 /mnt && ! [ -d /mnt/$0 ] || find /mnt/$0 -depth -type d -exec rmdir {} +"


class SystemdMachine:
    """A running container; the sources of the platform are at /src, the packages of this Python at /packages."""

    def __init__(self, client: APIClient, name: str) -> None:
        self._client = client
        self._name = name

    def run(self, command: str) -> str:
        """Return the output of a shell command. Raises AssertionError where it fails."""
        code, output = output_of(self._client, self._name, f"set -e\n{command}")
        assert code == 0, output[-3000:]
        return output

    def succeeds(self, command: str) -> bool:
        """Return whether a shell command does."""
        return output_of(self._client, self._name, command)[0] == 0


@contextmanager
def systemd_machine() -> Iterator[SystemdMachine]:
    """Start a machine, with the image built first where it is missing, which takes minutes; remove it at the end."""
    _ensure_image()
    name, packages = f"gptest-systemd-{secrets.token_hex(4)}", sysconfig.get_path("purelib")
    with closing(APIClient(ENGINE_URL, version="auto", timeout=120)) as client:
        config = client.create_host_config(
            cap_add=["SYS_ADMIN"],
            security_opt=["seccomp=unconfined", "apparmor=unconfined"],
            tmpfs={"/run": "", "/run/lock": "", "/tmp": "exec"},
            binds=[f"{ROOT}:/src:ro", f"{packages}:/packages:ro"],
        )
        init = ["sh", "-c", BEGIN, name]
        client.create_container(IMAGE, init, name=name, environment={"container": "docker"}, host_config=config)
        try:
            client.start(name)
            yield SystemdMachine(client, name)
        finally:
            client.remove_container(name, force=True, v=True)
            with closing(docker.DockerClient(ENGINE_URL)) as engine:
                engine.containers.run(
                    IMAGE,
                    ["sh", "-c", CLEAR, name],
                    cap_add=["SYS_ADMIN"],
                    security_opt=["seccomp=unconfined", "apparmor=unconfined"],
                    remove=True,
                )


def _ensure_image() -> None:
    with closing(docker.DockerClient(ENGINE_URL, timeout=600)) as engine:
        if not has_image(engine, IMAGE):
            base = Bases(engine, refresh=False, report=lambda _: None).reference("bookworm")
            arguments = {"BASE": base} | network_arguments(os.environ)
            file = io.BytesIO(DOCKERFILE.encode())
            engine.images.build(fileobj=file, tag=IMAGE, buildargs=arguments, network_mode="host", rm=True)
