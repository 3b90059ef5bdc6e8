"""Packet filter rules that keep all but a cluster's own hosts out of its network.

VXLAN authenticates nobody: whoever reaches the port with a network's number is in that network. So a host takes packets
from those hosts alone that a device of its own sends to; and nobody on a host sends to the port but its kernel: neither
containers nor programs, of whatever user. What a device has for no member goes no further: it is nothing to the host.
"""

from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from hostworker.privileged.cluster_network.network import DEVICES, PORT
from hostworker.privileged.firewall import OWN, Chain, forward_chain, has_ipv6, hold_chains

HostAddress = IPv4Address | IPv6Address

TO_PORT: Final = f"-p udp -m udp --dport {PORT}"
FROM_DEVICES: Final = f"-i {DEVICES}+"
FROM_PROGRAMS: Final = "-m owner --uid-owner 0-4294967294 -j DROP"  # what the kernel itself sends is of no user
DROP: Final = ("-j DROP",)


def hold(peers: Collection[HostAddress]) -> None:
    """Have the rules in place; changes nothing where they are. Raises FirewallError."""
    hold_chains("iptables", _chains(forward_chain("iptables"), [peer for peer in peers if peer.version == 4]))
    if has_ipv6():
        hold_chains("ip6tables", _chains("FORWARD", [peer for peer in peers if peer.version == 6]))


def _chains(forward: str, peers: Collection[HostAddress]) -> list[Chain]:
    from_peers = [f"-s {peer}/{peer.max_prefixlen} -j RETURN" for peer in sorted(peers, key=int)]
    return [
        Chain(f"{OWN}IN-clusters", "INPUT", TO_PORT, (*from_peers, *DROP)),
        Chain(f"{OWN}OUT-clusters", "OUTPUT", TO_PORT, (FROM_PROGRAMS,)),
        Chain(f"{OWN}FWD-clusters", forward, TO_PORT, DROP),
        Chain(f"{OWN}IN-stray", "INPUT", FROM_DEVICES, DROP),
        Chain(f"{OWN}FWD-stray", forward, FROM_DEVICES, DROP),
    ]
