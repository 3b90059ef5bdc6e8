"""Containers whose init is systemd: Debians and Ubuntus on which the platform may be installed."""

import io
import os
import secrets
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import docker
from docker.api import APIClient

from resources.images.base import Bases, has_image
from resources.images.catalogue.inputs import network_arguments
from tests.containers import ENGINE_URL
from tests.execs import output_of

ROOT: Final = Path(__file__).resolve().parent.parent
# Redis has a user namespace of its own in Debian's unit, which containers do not have.
REDIS: Final = r"""mkdir /etc/systemd/system/redis-server.service.d && \
    printf '[Service]\nPrivateUsers=no\n' >/etc/systemd/system/redis-server.service.d/container.conf
"""
DEBIAN: Final = """
ARG BASE
FROM ${BASE}
"""
# Debian's debootstrap has neither a script by this name, but the one that all releases share, nor the archive's keys.
SCRIPT: Final = "/usr/share/debootstrap/scripts/gutsy"
ARCHIVE: Final = "http://archive.ubuntu.com/ubuntu"
KEYS: Final = "ubuntu-keyring_2023.11.28.1_all.deb"  # noble's own
KEYS_SHA256: Final = "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8"
NOBLE: Final = rf"""
ARG BASE
FROM ${{BASE}} AS made
RUN apt-get update -q && apt-get install -qy --no-install-recommends debootstrap gpgv && \
    /usr/lib/apt/apt-helper download-file {ARCHIVE}/pool/main/u/ubuntu-keyring/{KEYS} /{KEYS} SHA256:{KEYS_SHA256} && \
    dpkg-deb -x /{KEYS} /keys && \
    debootstrap --keyring=/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg --force-check-gpg --variant=minbase \
        --components=main,universe noble /ubuntu {ARCHIVE} {SCRIPT}
FROM scratch
COPY --from=made /ubuntu /
RUN printf 'deb {ARCHIVE} noble%s main universe\n' '' -updates -security >/etc/apt/sources.list
"""
INSTALL: Final = r"""
RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
        dbus systemd systemd-sysv"""
# Without the servers: it has their packages in apt's cache, for it has no network.
CACHE: Final = rf"""{INSTALL} iproute2 && \
    echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/container && \
    echo 'Binary::apt::APT::Keep-Downloaded-Packages "true";' >/etc/apt/apt.conf.d/99keep && \
    apt-get install -qy --no-install-recommends --download-only caddy curl debootstrap docker.io iptables nginx \
        polkitd postgresql python3 python3-apt redis-sentinel redis-server && \
    systemctl mask systemd-sysctl && {REDIS}"""  # which would set this machine's kernel
IMAGES: Final = {  # by tag, which is raised when the content changes
    # With the servers.
    "gptest/systemd:1": rf"""{DEBIAN}{INSTALL} postgresql python3 python3-venv redis-server && \
    groupadd --system docker && {REDIS}""",
    "gptest/fresh:7": DEBIAN + CACHE,
    "gptest/fresh-ubuntu:2": NOBLE + CACHE,
    # As a minimal Debian has just been installed, with no source of packages.
    "gptest/bare:1": rf"""{DEBIAN}{INSTALL} iproute2 && \
    echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/container && systemctl mask systemd-sysctl && \
    rm -rf /etc/apt/sources.list* /var/lib/apt/lists/* /var/cache/apt/archives/*.deb && \
    mkdir /etc/apt/sources.list.d && {REDIS}""",
    # What builds the package for Ubuntu.
    "gptest/ubuntu:2": rf"""{NOBLE}
RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
        ca-certificates git make python3 python3-venv""",
}
SERVERS, FRESH, FRESH_UBUNTU, BARE, UBUNTU = IMAGES
UNREACHED: Final = ("deb.debian.org", "archive.ubuntu.com")
# systemd gets a part of the unified hierarchy as all of it, in a mount namespace of its own. With this machine's
# /sys/fs/cgroup it would add hierarchies there, and the engine would hear of no lack of memory until the next reboot.
BEGIN: Final = """
mount -t cgroup2 cgroup2 /mnt && mkdir /mnt/$0 && echo $$ >/mnt/$0/cgroup.procs && umount /mnt &&
exec unshare --cgroup sh -c 'mount -t cgroup2 cgroup2 /sys/fs/cgroup && sh -euc "$0" && exec /sbin/init' "$1"
"""
# Where the controllers are in hierarchies of their own (cgroup v1), an engine in the machine sees these in place of
# systemd's, or no container could have limits. Mounts of the engine and of containerd reach each other as before.
LIMITS: Final = r"""
mkdir /run/cgroups && mount -t tmpfs cgroups /run/cgroups && mount --make-rshared /
for controller in $(sed -n 's/^[0-9]*:\([a-z,_]*\):.*/\1/p' /proc/self/cgroup); do
    mkdir /run/cgroups/$controller && mount -t cgroup -o $controller cgroup /run/cgroups/$controller
done
[ "$(ls /run/cgroups)" ] || exit 0
cat >/run/within <<'END'
exec unshare --mount --propagation unchanged sh -euc 'mount --make-private /sys/fs/cgroup
mount --rbind /run/cgroups /sys/fs/cgroup; exec "$@"' sh "$@"
END
within() {
    mkdir -p /run/systemd/system/$1.service.d
    printf '[Service]\nExecStart=\nExecStart=sh /run/within %s\n' "$2" >/run/systemd/system/$1.service.d/cgroups.conf
}
within docker 'dockerd -H fd:// --containerd=/run/containerd/containerd.sock'
within containerd /usr/bin/containerd
"""
CLEAR: Final = "mount -t cgroup2 cgroup2 /mnt && ! [ -d /mnt/$0 ] || find /mnt/$0 -depth -type d -exec rmdir {} +"


class SystemdMachine:
    """A running container."""

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

    def archive(self, path: str) -> bytes:
        """Return a file or folder as an archive of tar."""
        return b"".join(self._client.get_archive(self._name, path)[0])

    def unpack(self, archive: bytes, folder: str) -> None:
        """Write what an archive has into a folder."""
        assert self._client.put_archive(self._name, folder, archive)


@contextmanager
def systemd_machine() -> Iterator[SystemdMachine]:
    """Start a machine with servers; the platform's sources are at /src, the packages of this Python at /packages."""
    packages = sysconfig.get_path("purelib")
    with _machine(SERVERS, cap_add=["SYS_ADMIN"], binds=[f"{ROOT}:/src:ro", f"{packages}:/packages:ro"]) as machine:
        yield machine


@contextmanager
def fresh_machine(folder: Path, network: str, image: str = FRESH) -> Iterator[SystemdMachine]:
    """Start a machine without servers, on which Docker may run; at /folder it has this one."""
    volumes = ["/var/lib/containerd", "/var/lib/docker"]
    options = {
        "cap_add": ["ALL"],
        "cap_drop": ["SYS_RESOURCE"],
        "network_mode": network,
        "extra_hosts": dict.fromkeys(UNREACHED, "192.0.2.1"),  # without a route, where names would be asked for in vain
        "binds": [f"{folder}:/folder:ro"],
    }
    with _machine(image, volumes, **options) as machine:
        yield machine


@contextmanager
def closed_network() -> Iterator[str]:
    """Have a network of machines alone; yield its name."""
    name = f"gptest-{secrets.token_hex(4)}"
    with closing(docker.DockerClient(ENGINE_URL)) as engine:
        network = engine.networks.create(name, internal=True)
        try:
            yield name
        finally:
            network.remove()


@contextmanager
def _machine(image: str, volumes: Sequence[str] = (), **options: Any) -> Iterator[SystemdMachine]:
    """Start a machine, with the image built first where it is missing, which takes minutes; remove it at the end.

    With volumes it has an engine of its own, which writes to /proc/sys.
    """
    ensure_image(image)
    name = f"gptest-systemd-{secrets.token_hex(4)}"
    with closing(APIClient(ENGINE_URL, version="auto", timeout=600)) as client:
        config = client.create_host_config(
            security_opt=["seccomp=unconfined", "apparmor=unconfined"],
            tmpfs={"/run": "", "/run/lock": "", "/tmp": "exec"},
            **options,
        )
        if volumes:
            config |= {"MaskedPaths": [], "ReadonlyPaths": []}  # as `systempaths=unconfined` of Docker's command
        init = ["sh", "-c", BEGIN, name, LIMITS if volumes else "true"]
        client.create_container(
            image, init, name=name, environment={"container": "docker"}, volumes=list(volumes), host_config=config
        )
        try:
            client.start(name)
            yield SystemdMachine(client, name)
        finally:
            client.remove_container(name, force=True, v=True)
            with closing(docker.DockerClient(ENGINE_URL)) as engine:
                engine.containers.run(
                    image,
                    ["sh", "-c", CLEAR, name],
                    cap_add=["SYS_ADMIN"],
                    security_opt=["seccomp=unconfined", "apparmor=unconfined"],
                    remove=True,
                )


def ensure_image(tag: str) -> None:
    """Build the image of this tag of IMAGES where it is missing, which takes minutes."""
    with closing(docker.DockerClient(ENGINE_URL, timeout=600)) as engine:
        if not has_image(engine, tag):
            base = Bases(engine, refresh=False, report=lambda _: None).reference("bookworm")
            arguments = {"BASE": base} | network_arguments(os.environ)
            file = io.BytesIO(IMAGES[tag].encode())
            engine.images.build(fileobj=file, tag=tag, buildargs=arguments, network_mode="host", rm=True)
