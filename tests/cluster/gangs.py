"""Gangs, the clusters of members on several hosts: what must hold of them, and what hosts have for their networks."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address
from operator import methodcaller
from pathlib import Path
from typing import Any, Final

from django.db import InterfaceError, OperationalError, connection

from hostworker.clusters.member_files import FOLDER
from hostworker.privileged.base import ContainerFiles
from hostworker.privileged.cluster_network import reachability
from hostworker.privileged.cluster_network.network import DEVICES, MEMBER_DEVICE, ClusterNetwork
from hostworker.runtime.sandboxes.containers import SANDBOX_LABEL, USED
from sessions.lifecycle import HOSTED, Status
from sessions.models import Cluster, Session
from tests.cluster.isolation import MEMORY
from tests.cluster.site import Host
from tests.invariants import half_clusters

PEERS: Final = "GP-IN-clusters"  # the chain of the packet filter that lets other hosts' packets in
POLL_S: Final = 1.0
HALF_S: Final = 45.0  # for which a gang may be half: a host's silence, a sweep, and what a busy machine takes
_HALVES: Final = """
    SELECT cluster_id FROM compute_session WHERE cluster_id IS NOT NULL GROUP BY cluster_id
    HAVING bool_or(status = 'RUNNING') AND bool_or(status IN ('PENDING', 'ERROR', 'CANCELLED')
        OR status = 'TERMINATED' AND result = 'FAILURE')
"""


def unsettled() -> list[str]:
    """Return the gangs that are not whole, and those whose members do not all answer to each other, in words."""
    waiting = Session.objects.filter(cluster__isnull=False, status=Status.RUNNING, detail__startswith="Waits for")
    return [*half_clusters(), *(f"session {each.pk}: {each.detail}" for each in waiting)]


def differences(host: Host) -> list[str]:
    """Return where a host has something of a gang that is not there, or lacks something of one that is."""
    members = list(
        Session.objects.filter(cluster__isnull=False, host__name=host.name, status__in=HOSTED)
        .select_related("cluster")
        .order_by("cluster", "rank")
    )
    clusters = {each.cluster_id: each.cluster for each in members if each.cluster and each.cluster.network}
    found = _unequal(host, "devices", _devices(host), {_network(each).device for each in clusters.values()})
    peers = {address for each in clusters.values() for address in each.host_addresses} - {host.machine.address}
    found += _unequal(host, "peers", _peers(host), peers)
    found += _unequal(host, "keys", _keys(host), {f"{each.pk}-{each.attempt}" for each in members})
    found += _unjoined(host)
    for cluster_id, cluster in clusters.items():
        here = [each for each in members if each.cluster_id == cluster_id and each.status == Status.RUNNING]
        found += _apart(host, cluster, here)
    return found


class HalfGangs:
    """Watches for gangs of which a part runs while another has ended or waits, for longer than that may take."""

    def __init__(self, is_judged: Callable[[], bool]) -> None:
        """`is_judged` says whether what makes gangs whole is in order at this moment."""
        self._is_judged = is_judged
        self._since: dict[str, float] = {}
        self._found: list[str] = []
        threading.Thread(target=self._watch, name="half gangs", daemon=True).start()

    def take(self) -> list[str]:
        """Return what was found since the last time, in words."""
        found, self._found = self._found, []
        return found

    def _watch(self) -> None:
        while True:
            time.sleep(POLL_S)
            try:
                self._look(self._halves() if self._is_judged() else [])
            except (OperationalError, InterfaceError):
                connection.close()
                self._since.clear()

    def _halves(self) -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute(_HALVES)
            return [pk for (pk,) in cursor.fetchall()]

    def _look(self, halves: Sequence[str]) -> None:
        now = time.monotonic()
        self._since = {pk: self._since.get(pk, now) for pk in halves}
        for pk, since in self._since.items():
            if now - since > HALF_S:
                members = Session.objects.filter(cluster=pk).order_by("rank")
                states = list(members.values_list("rank", "status", "reason", "host__name"))
                self._found.append(f"cluster {pk} is half for {now - since:.0f} s: {states}")
                self._since[pk] = float("inf")  # said once


def _unequal(host: Host, what: str, has: set[str], wanted: set[str]) -> list[str]:
    left, missing = sorted(has - wanted), sorted(wanted - has)
    texts = [f"{host.name} has {what} of no cluster: {left}"] if left else []
    return texts + ([f"{host.name} lacks {what}: {missing}"] if missing else [])


def _network(cluster: Cluster) -> ClusterNetwork:
    return ClusterNetwork.of(str(cluster.network))


def _devices(host: Host) -> set[str]:
    shown = host.machine.shows("ip", "-brief", "link", "show", "type", "vxlan")
    return {line.split()[0] for line in shown.splitlines() if line.startswith(DEVICES)}


def _peers(host: Host) -> set[str]:
    """Return the addresses of the hosts whose packets of clusters are let in."""
    rules = host.machine.shows("iptables", "-w", "-S", PEERS)
    words = [line.split() for line in rules.splitlines() if line.endswith("-j RETURN")]
    return {rule[rule.index("-s") + 1].partition("/")[0] for rule in words}


def _keys(host: Host) -> set[str]:
    """Return the attempts of which there is a key of a cluster."""
    root = MEMORY / host.name / "var" / "fgpu" / host.name / "sessions"
    return {path.parent.parent.name for path in root.glob(f"*/{FOLDER}/key")}


def _unjoined(host: Host) -> list[str]:
    """Return the used sandboxes that no container has joined."""
    listed: list[dict[str, Any]] = host.engine.ask(lambda client: client.containers(all=True)) or []
    joined = {each["HostConfig"]["NetworkMode"].removeprefix("container:") for each in listed}
    sandboxes = [each for each in listed if SANDBOX_LABEL in each["Labels"] and each["Id"] not in joined]
    return [
        f"{host.name} has a sandbox of nobody: {each['Names'][0]}"
        for each in sandboxes
        if each["Names"][0].startswith(f"/{USED}")
    ]


def _apart(host: Host, cluster: Cluster, members: Sequence[Session]) -> list[str]:
    """Return which members of a cluster that run on a host have no place in its network, or are not answered."""
    names = [f"{_network(cluster).member(number)}\t" for number in range(1, cluster.size + 1)]
    found = []
    for member in members:
        inspected = host.engine.ask(methodcaller("inspect_container", member.container_id))
        if not inspected or not inspected["State"]["Running"]:
            found.append(f"{host.name} has no container of {member.pk}")
            continue
        container = ContainerFiles.of(inspected)
        with suppress(OSError):  # it has just ended, which is found otherwise
            hosts = Path(f"/proc/{container.pid}/root/etc/hosts").read_text()
            if f"{MEMBER_DEVICE}:" not in Path(f"/proc/{container.pid}/net/dev").read_text():
                found.append(f"{member.pk} on {host.name} has no device of its cluster")
            elif not all(name in hosts for name in names):
                found.append(f"{member.pk} on {host.name} does not know its cluster's names: {hosts!r}")
            elif silent := reachability.silent(container, _running_others(cluster, member)):
                found.append(f"{member.pk} on {host.name} is not answered by {', '.join(map(str, silent))}")
    return found


def _running_others(cluster: Cluster, member: Session) -> list[IPv4Address]:
    others = Session.objects.filter(cluster=cluster, status=Status.RUNNING).exclude(pk=member.pk)
    return [_network(cluster).member(rank + 1) for rank in others.values_list("rank", flat=True)]
