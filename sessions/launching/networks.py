"""The network of a cluster while it is placed: 256 addresses of COMPUTE_CLUSTER_RANGE, or that of its hosts.

See docs/adr/0073.
"""

from collections.abc import Collection
from ipaddress import IPv4Network
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError, connection

from resources.models import Installation
from sessions.lifecycle import HOSTED, Status
from sessions.models import MAX_MEMBERS, Cluster, ClusterMode, Session

PREFIX_LENGTH: Final = 24  # of each network
# Of clusters in the network of their hosts: below those that Linux gives by itself (ip_local_port_range).
PORTS: Final = range(20_000, 32_672)
PORTS_OF_EACH: Final = 2 * MAX_MEMBERS  # for SSH, and for what its programs choose by
SEQUENCE: Final = "compute_cluster_network"  # of what counts the networks, in turn


class NoNetworkLeftError(IntegrityError):
    """As many clusters are placed as there are networks, or ports on the hosts."""


def place(cluster_ids: Collection[str]) -> None:
    """Give each of these clusters, of which members were just placed, a network, and note the addresses of their hosts.

    The limits of elastic members count from when those of the others do. A number comes back only after all others, as
    a host that was cut off may still have a device with it. Call it in the transaction that places them. Raises
    NoNetworkLeftError.
    """
    members = Session.objects.filter(cluster__in=cluster_ids).order_by("cluster", "rank")
    columns = ("cluster", "status", "host__cluster_address")
    addresses = {
        cluster_id: [address if status in HOSTED else "" for _, status, address in rows]
        for cluster_id, rows in groupby(members.values_list(*columns), itemgetter(0))
    }
    for cluster in Cluster.objects.filter(pk__in=addresses).order_by("pk"):
        changes: dict[str, Any] = {"host_addresses": addresses[cluster.pk]}
        if cluster.network is None:
            ports = _free_ports(addresses[cluster.pk]) if _has_host_network(cluster) else None
            changes |= {"network": _free_network(), "first_port": ports}
        Cluster.objects.filter(pk=cluster.pk).update(**changes)
        if cluster.started_at is not None:
            first = Session.objects.filter(pk=cluster.pk).values("start_by")
            cluster.members.filter(is_elastic=True, status=Status.SCHEDULED).update(start_by=first)


def _has_host_network(cluster: Cluster) -> bool:
    """Return whether its members have the network of their hosts; those of elastic ones must know all addresses."""
    if cluster.mode == ClusterMode.SINGLE_HOST or cluster.max_size is not None:
        return False
    return cluster.members.filter(rank=0, host__group__cluster_host_network=True).exists()


def _free_network() -> str:
    """Return the next network that no cluster has."""
    within = IPv4Network(settings.COMPUTE_CLUSTER_RANGE)
    count = 1 << PREFIX_LENGTH - within.prefixlen
    # Installations begin apart, as some may share a machine.
    first = _next_number() + int(Installation.current_key(), 16)
    used = set(Cluster.objects.filter(network__isnull=False).values_list("network", flat=True))
    for number in range(first, first + count):
        network = str(IPv4Network((within[(number % count) << 32 - PREFIX_LENGTH], PREFIX_LENGTH)))
        if network not in used:
            return network
    raise NoNetworkLeftError(f"All {count} networks of COMPUTE_CLUSTER_RANGE are in use.")


def _free_ports(host_addresses: Collection[str]) -> int:
    """Return the first of `PORTS_OF_EACH` ports that are no other cluster's on these hosts, in turn."""
    with_ports = Cluster.objects.exclude(first_port=None).values_list("first_port", "host_addresses")
    used = {port for port, addresses in with_ports if not set(host_addresses).isdisjoint(addresses)}
    blocks = PORTS[::PORTS_OF_EACH]
    first = _next_number() % len(blocks)
    for number in range(first, first + len(blocks)):
        if (port := blocks[number % len(blocks)]) not in used:
            return port
    raise NoNetworkLeftError(f"All ports from {PORTS[0]} to {PORTS[-1]} are those of clusters on its hosts.")


def _next_number() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval(%s)", [SEQUENCE])
        return int(cursor.fetchone()[0])
