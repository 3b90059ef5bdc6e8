"""The devices of clusters' networks: one on the host for each network, and one in the namespace of each member.

The host's is a VXLAN whose table says which member is on which other host; it learns nothing from packets. A member's
is a macvlan on top of it: what goes to a member of the same host does not leave it, nothing passes through the host's
packet filter, and it is gone with the member's namespace, or with the host's device. Every operation brings about what
it is told, is safe to repeat, and goes on where an earlier one died.
"""

import fcntl
import json
import os
import socket
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Any, Final

from hostworker.privileged.base import ContainerFiles, PrivilegesError
from hostworker.privileged.cluster_network import rules
from hostworker.privileged.cluster_network.network import (
    DEVICES,
    MEMBER_DEVICE,
    OVERHEAD_BYTES,
    PORT,
    PREFIX_LENGTH,
    ClusterNetwork,
    hardware_address,
    is_device,
)
from hostworker.privileged.cluster_network.rules import HostAddress
from hostworker.privileged.firewall import FOLDERS
from hostworker.privileged.hostnames import is_process_of
from resources import procfs

LOCK: Final = Path("/run/gpuplatform-clusters.lock")  # of root alone; for all workers of the machine
RUN_SECONDS: Final = 15
# In a network namespace that nothing is left of.
ATTEMPT: Final = f"""
ip link add {DEVICES} type vxlan id 1 dstport {PORT} nolearning &&
ip link add link {DEVICES} name {MEMBER_DEVICE} type macvlan mode bridge && bridge fdb show dev {DEVICES}
"""


def problem() -> str:
    """Return why this host can have no networks of clusters, or "" where it can."""
    try:
        _run(["unshare", "--net", "sh", "-c", ATTEMPT])
        if not _devices() and _is_port_taken():  # a device has it for the kernel
            return f"another program on this machine has UDP port {PORT}"
    except PrivilegesError as error:
        return str(error)
    return ""


def _is_port_taken() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # beside others who try
        try:
            probe.bind(("", PORT))
        except OSError:
            return True
    return False


def hold(network: ClusterNetwork, local: HostAddress, elsewhere: Mapping[IPv4Address, HostAddress], owner: str) -> None:
    """Have the network's device on this host, whose address is `local`, with the members `elsewhere` by their host.

    `owner` is the installation, which the device's alias names. Raises PrivilegesError, also where the device is that
    of another one, and FirewallError before a packet comes in that no rule keeps out.
    """
    with _alone():
        shown = _devices().get(network.device)
        if shown and not _is_of(owner, shown):
            raise PrivilegesError(f"{network.device} is a network of another installation on this machine")
        if shown and not _is_as_wanted(shown, network, local):
            _run(["ip", "link", "delete", network.device])
            shown = None
        if shown is None:
            _create(network, local)
        if changes := _table_changes(network, elsewhere):
            _run(["bridge", "-batch", "-"], changes)
        rules.hold(_peers())
        # Without addresses of its own, or the host's stack would give it one of IPv6.
        settings = (f"alias {owner}", "addrgenmode none", "up")
        _run(["ip", "-batch", "-"], "".join(f"link set {network.device} {each}\n" for each in settings))


def join(container: ContainerFiles, network: ClusterNetwork, names: Sequence[str], index: int) -> None:
    """Have the container in the network as its member `index`, who finds the others by name.

    `names` are those of all members that there may be, the first one's first. Raises PrivilegesError.
    """
    address = network.member(index)
    others = [network.member(number) for number, _ in enumerate(names, start=1) if number != index]
    with namespace_of(container) as namespace:
        inside = ["nsenter", f"--net={namespace}"]
        has_device = f"{MEMBER_DEVICE}:" in procfs.text(f"{container.pid}/net/dev")
        if not (has_device and _has_joined(inside, address)):
            if has_device:
                _run([*inside, "ip", "link", "delete", MEMBER_DEVICE])
            device = ["link", network.device, "name", MEMBER_DEVICE, "address", hardware_address(address)]
            _run(["ip", "link", "add", *device, "netns", namespace, "type", "macvlan", "mode", "bridge"])
            _run([*inside, "ip", "-batch", "-"], _member_setup(address, others))
    _write_names(container.hosts_path, network, names)


def keep(own: Collection[ClusterNetwork], owner: str) -> None:
    """Remove the networks of this host and installation, but for its `own`; their members lose their devices.

    Have the packet filter's rules in place, which every host needs: sessions are not to send to others' networks.
    """
    wanted = {each.device for each in own}
    with _alone():
        for device, shown in _devices().items():
            if device not in wanted and _is_of(owner, shown):
                _run(["ip", "link", "delete", device])
        rules.hold(_peers())


def _create(network: ClusterNetwork, local: HostAddress) -> None:
    """Make the host's device, which is not up yet."""
    mtu = _mtu(local) - OVERHEAD_BYTES[local.version]
    options = ["id", str(network.number), "dstport", str(PORT), "local", str(local), "nolearning"]
    _run(["ip", "link", "add", network.device, "mtu", str(mtu), "type", "vxlan", *options])


def _member_setup(address: IPv4Address, others: Sequence[IPv4Address]) -> str:
    """Return the lines for `ip` that set a member's device up; that it is up says that all of them were done."""
    known = [
        f"neigh replace {other} lladdr {hardware_address(other)} nud permanent dev {MEMBER_DEVICE}\n"
        for other in others
    ]
    return (
        f"link set {MEMBER_DEVICE} addrgenmode none\n"
        f"addr add {address}/{PREFIX_LENGTH} dev {MEMBER_DEVICE}\n"
        f"{''.join(known)}link set {MEMBER_DEVICE} up\n"
    )


def _table_changes(network: ClusterNetwork, elsewhere: Mapping[IPv4Address, HostAddress]) -> str:
    """Return the lines for `bridge` that make the device's table what is wanted."""
    wanted = {hardware_address(member): str(host) for member, host in elsewhere.items()}
    shown = {each["mac"]: each["dst"] for each in _tables() if each["ifname"] == network.device}
    gone = [f"fdb delete {mac} dev {network.device} dst {shown[mac]}\n" for mac in shown if mac not in wanted]
    new = [
        f"fdb replace {mac} dev {network.device} dst {host}\n" for mac, host in wanted.items() if shown.get(mac) != host
    ]
    return "".join([*gone, *new])


def _peers() -> set[HostAddress]:
    """Return the hosts that this one's devices send to."""
    return {ip_address(each["dst"]) for each in _tables()}


def _tables() -> list[dict[str, Any]]:
    """Return what `bridge` shows of the tables of all networks on this host."""
    found: list[dict[str, Any]] = json.loads(_run(["bridge", "-json", "fdb", "show"]) or "[]")
    return [each for each in found if "dst" in each and is_device(each["ifname"])]


def _devices() -> dict[str, dict[str, Any]]:
    """Return what `ip` shows of the devices of all networks on this host, by name."""
    shown = json.loads(_run(["ip", "-json", "-details", "link", "show", "type", "vxlan"]) or "[]")
    return {each["ifname"]: each for each in shown if is_device(each.get("ifname", ""))}


def _is_of(owner: str, shown: Mapping[str, Any]) -> bool:
    """Return whether a device is of this installation; one without an alias is of a worker that died as it made it."""
    return bool(shown.get("ifalias", owner) == owner)


def _is_as_wanted(shown: Mapping[str, Any], network: ClusterNetwork, local: HostAddress) -> bool:
    made = shown["linkinfo"]["info_data"]
    return (made["id"], made["port"], made.get("local", made.get("local6"))) == (network.number, PORT, str(local))


def _has_joined(inside: Sequence[str], address: IPv4Address) -> bool:
    """Return whether the namespace has a member's device that is up, with this address."""
    shown = json.loads(_run([*inside, "ip", "-json", "address", "show", "up"]) or "[]")
    found = [each for each in shown if each.get("ifname") == MEMBER_DEVICE]
    return [each["local"] for one in found for each in one["addr_info"]] == [str(address)]


def _mtu(local: HostAddress) -> int:
    """Return how large packets of the host's device with this address may be. Raises PrivilegesError."""
    for device in json.loads(_run(["ip", "-json", "address", "show"])):
        if any(each.get("local") == str(local) for each in device.get("addr_info", ())):
            return int(device["mtu"])
    raise PrivilegesError(f"{local} is no address of this host")


def _write_names(path: Path, network: ClusterNetwork, names: Sequence[str]) -> None:
    """Have all members in a container's /etc/hosts, and itself by the address that the others know."""
    loopback = [line for line in path.read_text().splitlines() if line.startswith(("127.", "::1", "f"))]
    members = [f"{network.member(number)}\t{name}" for number, name in enumerate(names, start=1)]
    text = "".join(f"{line}\n" for line in [*loopback, *members])
    if text != path.read_text():
        path.write_text(text)  # in place: the container has this very file mounted


@contextmanager
def namespace_of(container: ContainerFiles) -> Iterator[str]:
    """Give the path of the container's network namespace, for this process and those that it starts."""
    descriptor = os.open(f"/proc/{container.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Looked at after opening: a process id may have passed on to another meanwhile.
        if not is_process_of(container):
            raise PrivilegesError("The container has ended.")
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        os.close(descriptor)


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the machine's lock: what is wanted of the packet filter is read off all networks of all workers."""
    with LOCK.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(words: Sequence[str], given: str = "") -> str:
    """Return the output of a program. Raises PrivilegesError with what it says where it fails."""
    try:
        done = subprocess.run(
            words, input=given, capture_output=True, text=True, timeout=RUN_SECONDS, check=False, env=_environment()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PrivilegesError(f"{words[0]} cannot be run: {error}") from error
    if done.returncode:
        raise PrivilegesError(f"{' '.join(words[:3])} failed: {' '.join(done.stderr.split()) or done.returncode}")
    return done.stdout


def _environment() -> dict[str, str]:
    """Return the environment in which administrators' programs are found."""
    return {"PATH": f"{os.environ.get('PATH', os.defpath)}:{FOLDERS}"}
