"""What the number of a cluster's network determines: its addresses, and its device on each host. Pure."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Final

PREFIX_LENGTH: Final = 24  # of each network
PORT: Final = 14789  # UDP; of VXLAN between the platform's hosts, beside Swarm's 4789 and 8472 of Kubernetes' networks
OVERHEAD_BYTES: Final = {4: 50, 6: 70}  # of VXLAN, by the version of IP between hosts
DEVICES: Final = "gpc"  # how the names of devices on hosts begin
MEMBER_DEVICE: Final = "cluster0"  # in each member


@dataclass(frozen=True, slots=True)
class ClusterNetwork:
    """A network of 256 addresses that one cluster alone has, on all of its hosts."""

    addresses: IPv4Network

    @classmethod
    def of(cls, text: str) -> "ClusterNetwork":
        """Return the network that is written like 100.64.3.0/24. Raises ValueError."""
        addresses = IPv4Network(text)
        if addresses.prefixlen != PREFIX_LENGTH:
            raise ValueError(f"{text} is no network of {PREFIX_LENGTH} bits")
        return cls(addresses)

    @property
    def number(self) -> int:
        """What tells the networks apart: the 24 bits that all addresses have in common, as VXLAN's VNI has."""
        return int(self.addresses.network_address) >> 32 - PREFIX_LENGTH

    @property
    def device(self) -> str:
        """The name of the device on each host: at most 15 characters, as the kernel has it."""
        return f"{DEVICES}{self.number:06x}"

    def member(self, index: int) -> IPv4Address:
        """Return the address of a member, which are counted from 1. Raises ValueError for more than 254."""
        if not 0 < index < self.addresses.num_addresses - 1:
            raise ValueError(f"there is no member {index} in a network of {PREFIX_LENGTH} bits")
        return self.addresses[index]


def hardware_address(address: IPv4Address) -> str:
    """Return the hardware address of who has this address, so that nobody has to ask for it."""
    return ":".join(f"{byte:02x}" for byte in (0x02, 0, *address.packed))


def is_device(name: str) -> bool:
    """Return whether a device of a host is named as those of networks are."""
    return re.fullmatch(f"{DEVICES}[0-9a-f]{{6}}", name) is not None
