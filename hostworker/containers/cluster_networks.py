"""The networks of clusters on this host: which there are to be, and each member's place in its own."""

import threading
from typing import Final

from django.db.models import Q, QuerySet

from hostworker.cluster_protocol import ClusterPlace, HostNetwork
from hostworker.privileged.cluster_network.network import ClusterNetwork
from hostworker.runtime_protocol import ContainerRuntimeError, Runtime
from resources.models import Host
from sessions.lifecycle import HOSTED, Status
from sessions.models import MAX_MEMBERS, Cluster, Session, SessionQuerySet, member_name

started: Final = threading.Event()  # a member of a cluster has come up in this process
_lock: Final = threading.Lock()  # what is to be kept is read, and the rest removed, while no member joins


def place_of(session: Session) -> ClusterPlace | None:
    """Return the session's place in the network of its cluster; None without one.

    Raises ContainerRuntimeError where the cluster has no network now.
    """
    cluster = session.cluster
    if cluster is None:
        return None
    if cluster.network is None or len(cluster.host_addresses) != cluster.most:
        raise ContainerRuntimeError("Its cluster has no network now.")
    network, ranks = ClusterNetwork.of(cluster.network), range(cluster.most)
    in_hosts = None if cluster.first_port is None else _ports(cluster.first_port, cluster.most)
    return ClusterPlace(
        cluster=cluster.pk,
        network=cluster.network,
        names=tuple(map(member_name, ranks)),
        addresses=tuple(cluster.host_addresses if in_hosts else (str(network.member(each + 1)) for each in ranks)),
        hosts=tuple(cluster.host_addresses),
        index=session.rank + 1,
        host_network=in_hosts,
        min_size=cluster.size if cluster.max_size else None,
        private_key=cluster.private_key,
        public_key=cluster.public_key,
    )


def _ports(first: int, size: int) -> HostNetwork:
    ssh, programs = range(first, first + size), range(first + MAX_MEMBERS, first + MAX_MEMBERS + size)
    return HostNetwork(ssh_ports=tuple(ssh), program_ports=tuple(programs))


def join(runtime: Runtime, session: Session) -> None:
    """Have the session's container in the network of its cluster, if it has one. Raises StartError."""
    if runtime.clusters and (place := place_of(session)) and place.host_network is None:
        with _lock:
            runtime.clusters.join(session.pk, session.attempt, place)


def keep(runtime: Runtime, host: Host) -> bool:
    """Remove the networks of this host whose clusters are not placed here any more; return whether any is left."""
    assert runtime.clusters
    with _lock:
        networks = [each.network for each in placed(host).only("network").distinct() if each.network]
        runtime.clusters.keep(networks)
    return bool(networks)


def placed(host: Host) -> QuerySet[Cluster]:
    """Return the clusters that are placed on this host, or on another that has its address, as one machine may have."""
    here = Q(host_addresses__contains=[host.cluster_address])
    hosted = Q(members__host=host, members__status__in=HOSTED)
    return Cluster.objects.filter(here | hosted, network__isnull=False)


def members(host: Host) -> SessionQuerySet:
    """Return the members of clusters that run on this host."""
    running = Session.objects.filter(host=host, status=Status.RUNNING, cluster__network__isnull=False)
    return running.select_related("cluster").order_by("cluster", "rank")
