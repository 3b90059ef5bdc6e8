"""What the platform needs of a host for clusters: the part of the Runtime protocol that networks of members take."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNetwork:
    """The ports of a cluster's members in the networks of their hosts, where they have none of their own."""

    ssh_ports: tuple[int, ...]  # of each member
    program_ports: tuple[int, ...]  # on which programs of members find each other


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlace:
    """A container's place in the network of its cluster, and the key by which members log in to each other."""

    cluster: str  # id
    network: str  # such as 100.64.3.0/24
    names: tuple[str, ...]  # of all members that there may be
    addresses: tuple[str, ...]  # by which these reach each other
    hosts: tuple[str, ...]  # addresses of their hosts; "" of a member that has none now
    index: int  # of this one, from 1
    host_network: HostNetwork | None = None  # in place of the network
    min_size: int | None = None  # of an elastic cluster: with how many members it starts
    private_key: str = field(default="", repr=False)
    public_key: str = ""

    @property
    def name(self) -> str:
        """The container's own host name."""
        return self.names[self.index - 1]

    @property
    def address(self) -> str:
        """The container's own address, to the others."""
        return self.addresses[self.index - 1]

    @property
    def host(self) -> str:
        """The address of this host."""
        return self.hosts[self.index - 1]

    @property
    def elsewhere(self) -> dict[str, str]:
        """{address of a member on another host: that host's}."""
        pairs = zip(self.addresses, self.hosts, strict=True)
        return {member: host for member, host in pairs if host not in ("", self.host)}

    @property
    def present(self) -> list[int]:
        """The indexes of the members that have a host now."""
        return [index for index, host in enumerate(self.hosts, start=1) if host]

    @property
    def others(self) -> list[int]:
        """The indexes of the other ones of these."""
        return [index for index in self.present if index != self.index]

    @property
    def present_names(self) -> list[str]:
        """The names of the members that have a host now."""
        return [self.names[index - 1] for index in self.present]

    @property
    def rank(self) -> int:
        """The container's place among them, from 0."""
        return self.present.index(self.index)


class ClusterControl(Protocol):
    """Puts containers into the networks of their clusters on this host."""

    def join(self, session: str, attempt: int, place: ClusterPlace) -> None:
        """Have the container, created or running, in the network of its cluster; so already is success.

        Its hostfile has the members that are present.

        Raises StartError.
        """

    def silent(self, session: str, attempt: int, place: ClusterPlace) -> list[str]:
        """Return the names of the other members that do not answer to the container; all where it does not run."""

    def let_begin(self, session: str, attempt: int) -> None:
        """Have the container's command begin, which waits until this is called."""

    def keep(self, networks: Collection[str]) -> None:
        """Remove the installation's networks on this host, but for these."""
