"""Clusters whose members are real containers, for tests without a scheduler's process."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from docker.api import APIClient

from engine.containers import container_name
from hostworker.privileged.cluster_network.network import ClusterNetwork
from resources.models import ResourceGroup
from sessions.clusters import settling
from sessions.launching import services
from sessions.launching.requests import ClusterRequest
from sessions.lifecycle import FINAL, Status
from sessions.models import Cluster, ClusterMode, Session
from tests.containers import ENGINE_URL
from tests.execs import output_of
from tests.fgpu_sessions import submit, wait_for
from tests.wait import until

OWN_ENGINE: Final[Mapping[str, str]] = MappingProxyType({})
PORT: Final = 7000
SERVE: Final = f"busybox nc -ll -p {PORT} -e echo $CLUSTER_HOST"  # says who it is to whoever connects


@dataclass(frozen=True, slots=True)
class Member:
    """A session that runs, and the engine of its container."""

    session: Session
    engine_url: str = ENGINE_URL

    @property
    def address(self) -> str:
        """By which its host reaches it."""
        return str(Session.objects.get(pk=self.session.pk).address)

    def run(self, command: str) -> tuple[int, str]:
        """Return exit code and output of a shell command in it."""
        with closing(APIClient(self.engine_url, version="auto")) as client:
            return output_of(client, container_name(self.session.pk, self.session.attempt), command)

    def log(self) -> str:
        """Return what its main process wrote."""
        with closing(APIClient(self.engine_url, version="auto")) as client:
            return str(client.logs(container_name(self.session.pk, self.session.attempt)).decode())

    def hears(self, *targets: str) -> list[str]:
        """Return the answers of those of the targets that answer at the port."""
        ask = f"for target in {' '.join(targets)}; do nc -w 2 $target {PORT} </dev/null 2>/dev/null & done; wait"
        return sorted(self.run(ask)[1].split())

    def reaches(self, names: Sequence[str]) -> bool:
        """Return whether all of these members answer."""
        return self.hears(*names) == sorted(names)


def submit_cluster(
    group: ResourceGroup, size: int, fgpu: str = "0", *, mode: ClusterMode = ClusterMode.ANY, **request: Any
) -> list[Session]:
    """Return the members of a new cluster, placed if it fits; each runs the command, if there is one."""
    asked = ClusterRequest(size=size, mode=mode, runs_on_all="command" in request)
    head = submit(group, fgpu, cluster=asked, **request)
    return list(Session.objects.filter(cluster=head.pk).order_by("rank"))


def start_cluster(
    group: ResourceGroup, size: int, fgpu: str = "0", *, engines: Mapping[str, str] = OWN_ENGINE, **request: Any
) -> list[Member]:
    """Return the members of a new cluster, as `submit_cluster` makes it, once all run.

    `engines` has the URLs of engines, by the names of their hosts, other than this machine's own.
    """
    members = submit_cluster(group, size, fgpu, **request)
    for member in members:
        wait_for(member, Status.RUNNING)
    return [Member(each, engines.get(each.host.name if each.host else "", ENGINE_URL)) for each in members]


def end_cluster(members: Sequence[Member]) -> None:
    """End one member, and wait until all have ended with it."""
    services.terminate(members[-1].session, actor=members[-1].session.owner)
    cluster_id = str(members[0].session.cluster_id)

    def has_ended() -> bool:
        settling.settle(cluster_id)
        return not Session.objects.filter(cluster=cluster_id).exclude(status__in=FINAL).exists()

    until(has_ended)
    settling.settle(cluster_id)


def network_of(members: Sequence[Member]) -> ClusterNetwork:
    """Return the network of a cluster that is placed."""
    return ClusterNetwork.of(str(Cluster.objects.get(pk=members[0].session.cluster_id).network))
