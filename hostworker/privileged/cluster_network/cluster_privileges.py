"""The operations on networks of clusters that need root on the host."""

from collections.abc import Collection, Mapping, Sequence
from ipaddress import IPv4Address, ip_address

from hostworker.privileged.base import ContainerFiles
from hostworker.privileged.cluster_network import devices, reachability
from hostworker.privileged.cluster_network.network import ClusterNetwork


class ClusterPrivileges:
    """Root on this host for networks of clusters."""

    def clusters_problem(self) -> str:
        """Return why no members of clusters can have a network on this host, or "" where they can."""
        return devices.problem()

    def hold_cluster(self, network: str, local: str, elsewhere: Mapping[str, str], owner: str) -> None:
        """Have a cluster's network on this host, whose address is `local`; {address of a member elsewhere: its host's}.

        `owner` is the installation. Changes nothing where it is so already. Raises FirewallError.
        """
        table = {IPv4Address(member): ip_address(host) for member, host in elsewhere.items()}
        devices.hold(ClusterNetwork.of(network), ip_address(local), table, owner)

    def join_cluster(self, container: ContainerFiles, network: str, names: Sequence[str], index: int) -> None:
        """Have the container in a network that this host holds, as member `index` of those with these names, from 1.

        Changes nothing where it is. A member knows by address and name all that there may be, also those to come.
        """
        devices.join(container, ClusterNetwork.of(network), names, index)

    def silent_in_cluster(self, container: ContainerFiles, network: str, indexes: Collection[int]) -> list[int]:
        """Return which of these members of its network do not answer to the container."""
        addresses = {ClusterNetwork.of(network).member(index): index for index in indexes}
        return [addresses[address] for address in reachability.silent(container, addresses)]

    def keep_clusters(self, networks: Collection[str], owner: str) -> None:
        """Remove the installation's networks but for these, and have the rules in place. Raises FirewallError."""
        devices.keep([ClusterNetwork.of(each) for each in networks], owner)
