"""Keeps sessions away from their host's own services: packet filter rules on the bridge that their containers are on.

A container reaches whatever its host binds to all interfaces, by the bridge's own address, and what a cloud tells the
host at addresses of its own. Both are dropped here; answers to what the host itself began pass, and so does everything
that goes on to other machines. Where the host's resource group denies private networks, these are dropped as well, by a
chain of the host worker's own: several workers may share an engine and its bridge. The rules name the bridge, so they
hold before it exists; nothing but a denial that is taken back is removed.
"""

import hashlib
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from typing import Final

LOCK_SECONDS: Final = "5"  # the engine changes rules as well
RUN_SECONDS: Final = 15
RESOLVER_FILES: Final = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))
METADATA_IPV4: Final = (
    IPv4Network("169.254.0.0/16"),  # link-local; in it most clouds' metadata, at 169.254.169.254
    IPv4Network("168.63.129.16/32"),  # Azure's agent, and its name server
    IPv4Network("100.100.100.200/32"),  # Alibaba Cloud's metadata
)
PRIVATE_IPV4: Final = (  # beside link-local addresses, which METADATA_IPV4 has
    IPv4Network("10.0.0.0/8"),  # RFC 1918
    IPv4Network("172.16.0.0/12"),
    IPv4Network("192.168.0.0/16"),
    IPv4Network("100.64.0.0/10"),  # RFC 6598: behind a carrier's NAT; overlay networks use it too
)
PRIVATE_IPV6: Final = (IPv6Network("fc00::/7"),)  # RFC 4193: unique local; METADATA_IPV6 has link-local addresses
DNS: Final = 53
REPLIES: Final = "-m conntrack --ctstate RELATED,ESTABLISHED -j RETURN"
REPLIES_TO_HOST: Final = "-m conntrack --ctdir REPLY -j RETURN"  # unlike REPLIES, no connection that a container began
NEIGHBOURS: Final = range(133, 137)  # the ICMPv6 messages without which an address cannot even be found
METADATA_IPV6: Final = ("fe80::/10", "fd00:ec2::254/128", "fd20:ce::254/128")  # Amazon's and Google's
FOLDERS: Final = "/usr/local/sbin:/usr/sbin:/sbin"  # where the tools are, also for those who have not these on PATH
OWN: Final = "GP-"  # how our chains begin
WORKER_DIGITS: Final = 8  # of a hash in a chain's name, of which the kernel takes 28 characters


class FirewallError(Exception):
    """The rules could not be brought about; the message says why."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of ours, and the chain of the system from which it is entered by what matches."""

    name: str
    parent: str
    match: str  # as `iptables -S` writes it, as the rules are
    rules: tuple[str, ...]  # without `-A <name>`; without any, the chain is removed

    @property
    def jump(self) -> str:
        """The rule by which it is entered."""
        return f"{self.match} -j {self.name}"


class Firewall:
    """The rules for one bridge; `nameservers` are those that the host asks, which its containers may ask too.

    With `deny_private`, containers reach no private networks but these name servers, whatever is said for other workers
    of the same bridge. `worker` names the host worker, uniquely on this machine.
    """

    def __init__(
        self,
        device: str,
        nameservers: Callable[[], Iterable[str]] | None = None,
        *,
        worker: str = "",
        deny_private: bool = False,
    ) -> None:
        self._device = device
        self._denial = f"{OWN}{hashlib.sha256(worker.encode()).hexdigest()[:WORKER_DIGITS]}-{device}"
        self._deny_private = deny_private
        self._nameservers = nameservers or nameservers_of_host

    def hold(self) -> None:
        """Have the rules in place, before all others; changes nothing where they are. Raises FirewallError."""
        hold_chains("iptables", self._chains(forward_chain("iptables")))
        if has_ipv6():
            hold_chains("ip6tables", self._chains_ipv6())

    def _chains(self, forward: str) -> list[Chain]:
        resolvers = [address for text in self._nameservers() if isinstance(address := ip_address(text), IPv4Address)]
        to_host = [rule for address in resolvers if _is_of_host(address) for rule in _dns_rules(address)]
        to_cloud = [rule for address in resolvers if _is_metadata(address) for rule in _dns_rules(address)]
        metadata = [f"-d {network} -j DROP" for network in METADATA_IPV4]
        bridge = f"-i {self._device}"
        return [
            Chain(f"{OWN}IN-{self._device}", "INPUT", bridge, (REPLIES, *to_host, "-j DROP")),
            Chain(f"{OWN}FWD-{self._device}", forward, bridge, (*to_cloud, *metadata)),
            Chain(self._denial, forward, bridge, self._private(PRIVATE_IPV4, resolvers)),
        ]

    def _chains_ipv6(self) -> list[Chain]:
        found = [f"-p ipv6-icmp -m icmp6 --icmpv6-type {number} -j RETURN" for number in NEIGHBOURS]
        metadata = [f"-d {target} -j DROP" for target in METADATA_IPV6]
        bridge = f"-i {self._device}"
        resolvers = [address for text in self._nameservers() if isinstance(address := ip_address(text), IPv6Address)]
        return [
            Chain(f"{OWN}IN-{self._device}", "INPUT", bridge, (REPLIES, *found, "-j DROP")),
            Chain(f"{OWN}FWD-{self._device}", "FORWARD", bridge, tuple(metadata)),
            Chain(self._denial, "FORWARD", bridge, self._private(PRIVATE_IPV6, resolvers)),
        ]

    def _private(
        self, networks: Iterable[IPv4Network | IPv6Network], resolvers: Iterable[IPv4Address | IPv6Address]
    ) -> tuple[str, ...]:
        """Return the rules that let name servers in private networks be asked, and deny the rest of these, if at all.

        A connection that was open as the rules came is cut too: of connections that containers began, nothing passes.
        """
        if not self._deny_private:
            return ()
        asked = [address for address in resolvers if any(address in network for network in networks)]
        names = [rule for address in asked for rule in _dns_rules(address)]
        return (*names, REPLIES_TO_HOST, *(f"-d {network} -j DROP" for network in networks))


def hold_chains(tool: str, chains: Sequence[Chain]) -> None:
    """Bring the chains about in one transaction, so that there is no moment without them. Raises FirewallError."""
    rules = _run(tool, "-S").splitlines()
    wrong = [chain for chain in chains if not _is_in_place(chain, rules)]
    if not wrong:
        return
    lines = ["*filter", *(f":{chain.name} - [0:0]" for chain in wrong)]
    for chain in wrong:
        lines += [f"-A {chain.name} {rule}" for rule in chain.rules]
        lines += [rule.replace("-A", "-D", 1) for rule in rules if rule.endswith(f" {chain.jump}")]
        lines.append(f"-I {chain.parent} 1 {chain.jump}" if chain.rules else f"-X {chain.name}")
    _run(f"{tool}-restore", "--noflush", given="\n".join([*lines, "COMMIT", ""]))


def _is_in_place(chain: Chain, rules: Sequence[str]) -> bool:
    """Return whether the chain is as it should be, and nothing but chains of ours is entered before it."""
    if not chain.rules:
        return f"-N {chain.name}" not in rules
    if [rule for rule in rules if rule.startswith(f"-A {chain.name} ")] != [
        f"-A {chain.name} {rule}" for rule in chain.rules
    ]:
        return False
    entered = [rule for rule in rules if rule.startswith(f"-A {chain.parent} ")]
    jump = f"-A {chain.parent} {chain.jump}"
    first = next((rule for rule in entered if f" -j {OWN}" not in rule or rule == jump), "")
    return first == jump


def has_ipv6() -> bool:
    """Return whether rules of IPv6 can be kept here, and are to be."""
    return Path("/proc/sys/net/ipv6").exists() and _program("ip6tables") is not None


def problem() -> str:
    """Return why this process cannot keep rules on this machine, or "" where it can."""
    if os.geteuid() != 0:
        return "the worker does not run as root"
    if _program("iptables") is None or _program("iptables-restore") is None:
        return "iptables is missing"
    try:
        _run("iptables", "-S", "INPUT")
    except FirewallError as failure:
        return str(failure)
    return ""


def nameservers_of_host() -> list[str]:
    """Return the addresses of the name servers that the engine hands its containers' questions on to."""
    found: dict[str, None] = {}
    for path in RESOLVER_FILES:
        if not path.exists():
            continue
        for line in path.read_text().splitlines():
            words = line.split()
            if len(words) > 1 and words[0] == "nameserver":
                found[words[1].partition("%")[0]] = None
    return list(found)


def _dns_rules(address: IPv4Address | IPv6Address) -> list[str]:
    target = f"{address}/{address.max_prefixlen}"
    return [f"-d {target} -p {kind} -m {kind} --dport {DNS} -j RETURN" for kind in ("udp", "tcp")]


def _is_metadata(address: IPv4Address) -> bool:
    return any(address in network for network in METADATA_IPV4)


def _is_of_host(address: IPv4Address) -> bool:
    """Return whether the address is one of this machine's that others can reach."""
    if address.is_loopback:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def forward_chain(tool: str) -> str:
    """Return the chain for what is passed on: the engine's own for such rules, where it has made it."""
    return "DOCKER-USER" if "-N DOCKER-USER" in _run(tool, "-S").splitlines() else "FORWARD"


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{FOLDERS}")


def _run(tool: str, *arguments: str, given: str = "") -> str:
    path = _program(tool)
    if path is None:
        raise FirewallError(f"{tool} is missing")
    try:
        done = subprocess.run(
            [path, "-w", LOCK_SECONDS, *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FirewallError(f"{tool} cannot be run: {error}") from error
    if done.returncode:
        raise FirewallError(f"{tool} failed: {' '.join(done.stderr.split()) or done.returncode}")
    return done.stdout
