"""The files of a member of a cluster, below /etc/cluster: hostfile, key, and what lets `ssh sub1` ask nothing.

They lie in a folder of the attempt's, which the container has read-only. What must belong to the container's own user,
whoever that is, its entry script copies to a folder that it makes itself (`begin`).
"""

import platform
from pathlib import Path
from typing import Final

from fgpu.mounts import BUILD, BindMount
from hostworker.cluster_protocol import ClusterPlace

FOLDER: Final = "cluster"  # within the attempt's folder
TARGET: Final = "/etc/cluster"
OWN: Final = "/tmp/.cluster"  # noqa: S108  # in the container, of its own user alone
SSH_CONFIG_TARGET: Final = "/etc/ssh/ssh_config.d/00-cluster.conf"
SSH_PORT: Final = 2200  # of each member, where no host's is in its way
HOSTS_TARGET: Final = "/etc/hosts"
ALIAS: Final = "cluster"  # under which all members have one host key
READY: Final = "ready"
HOSTFILE: Final = "hostfile"
AS_ROOT: Final = "sshd-root.so"  # fgpu/sandbox/sshd_root.c
LIBRARY: Final = BUILD / "sandbox" / f"sshd-root-{platform.machine()}.so"

# Sourced by the entry script of the container. A command waits until the worker has found that all members answer. sshd
# as root needs a folder that packages leave to the system's start, and without capabilities the library.
BEGIN: Final = f"""\
if mkdir -p {OWN} && chmod 700 {OWN}; then
    (umask 077; cat {TARGET}/key >{OWN}/key; export -p >{OWN}/environment)
fi 2>/dev/null
if [ -s {OWN}/key ] && sshd=$(PATH="$PATH:/usr/sbin:/sbin" command -v sshd); then
    as_root=
    if [ "$(id -u)" = 0 ] && [ -r {TARGET}/{AS_ROOT} ] && mkdir -p /run/sshd; then as_root={TARGET}/{AS_ROOT}; fi
    LD_PRELOAD="$as_root" "$sshd" -f {TARGET}/sshd_config
fi
if [ $# -gt 0 ]; then
    code=143
    until [ -e {TARGET}/{READY} ]; do sleep 0.1 || sleep 1; done
    code=0
fi
"""
# What a login by SSH runs: with the variables of the member, which sshd itself does not pass on.
LOGIN: Final = f"""\
. {OWN}/environment
if [ -n "$SSH_ORIGINAL_COMMAND" ]; then exec "${{SHELL:-/bin/sh}}" -c "$SSH_ORIGINAL_COMMAND"; fi
exec "${{SHELL:-/bin/sh}}" -l
"""
LOOPBACK: Final = "127.0.0.1\tlocalhost\n::1\tlocalhost\n"
SSHD_CONFIG: Final = f"""\
Port @PORT@
ListenAddress @ADDRESS@
HostKey {OWN}/key
AuthorizedKeysFile {TARGET}/key.pub
ForceCommand /bin/sh {TARGET}/login
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PidFile none
PrintMotd no
MaxStartups 200
Subsystem sftp /usr/lib/openssh/sftp-server
"""
# All members have one key and one host key. A member may begin a moment later than this one.
SSH_CONFIG: Final = f"""\
Host @NAMES@
    IdentityFile {OWN}/key
    IdentitiesOnly yes
    HostKeyAlias {ALIAS}
    UserKnownHostsFile {TARGET}/known_hosts
    StrictHostKeyChecking yes
    ConnectionAttempts 60
"""


def write(folder: Path, place: ClusterPlace, gpus: int) -> tuple[BindMount, ...]:
    """Write the files of a member with so many GPUs into the attempt's folder, and return their mounts."""
    own = folder / FOLDER
    own.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # others on this host do not read the key
    files = {name: text.encode() for name, text in _texts(place, slots=max(gpus, 1)).items()}
    if LIBRARY.is_file():
        files[AS_ROOT] = LIBRARY.read_bytes()
    for name, content in files.items():
        (own / name).unlink(missing_ok=True)  # of a worker that died; nobody may write to it, its owner neither
        (own / name).write_bytes(content)
        (own / name).chmod(0o444)
    mounts = BindMount(own, TARGET), BindMount(own / "ssh_config", SSH_CONFIG_TARGET)
    # In a network of its own it has the file of its sandbox.
    return (*mounts, BindMount(own / "hosts", HOSTS_TARGET)) if place.host_network else mounts


def update_hostfile(folder: Path, place: ClusterPlace) -> None:
    """Have the member's hostfile name those that are present by now; a folder that is gone is success."""
    hostfile = folder / FOLDER / HOSTFILE
    if not hostfile.exists():
        return
    was = hostfile.read_text()
    text = _hostfile(place, slots=int(was.rpartition("=")[2]))
    if text != was:
        new = hostfile.with_suffix(".new")
        new.unlink(missing_ok=True)  # of a worker that died
        new.write_text(text)
        new.chmod(0o444)
        new.replace(hostfile)


def let_begin(folder: Path) -> None:
    """Have the member's command begin, which waits for the others; a folder that is gone is success."""
    if (own := folder / FOLDER).is_dir():
        (own / READY).touch()


def _texts(place: ClusterPlace, *, slots: int) -> dict[str, str]:
    ports = place.host_network.ssh_ports if place.host_network else (SSH_PORT,) * len(place.names)
    members = list(zip(place.names, place.addresses, ports, strict=True))
    sshd = SSHD_CONFIG.replace("@ADDRESS@", place.address).replace("@PORT@", str(ports[place.index - 1]))
    return {
        HOSTFILE: _hostfile(place, slots=slots),
        "key": place.private_key,
        "key.pub": f"{place.public_key}\n",
        "known_hosts": f"{ALIAS} {place.public_key}\n",
        "hosts": LOOPBACK + "".join(f"{address}\t{name}\n" for name, address, _ in members),
        "ssh_config": SSH_CONFIG.replace("@NAMES@", " ".join(place.names))
        + "".join(f"Host {name}\n    Port {port}\n" for name, _, port in members),
        "sshd_config": sshd,
        "begin": BEGIN,
        "login": LOGIN,
    }


def _hostfile(place: ClusterPlace, *, slots: int) -> str:
    return "".join(f"{name} slots={slots}\n" for name in place.present_names)
