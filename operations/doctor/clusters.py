"""What clusters over several hosts need of this one: devices, a port, an address, and others that answer."""

from typing import Final

from django.conf import settings

from hostworker.privileged.cluster_network import reachability
from hostworker.privileged.cluster_network.network import OVERHEAD_BYTES, PORT
from hostworker.runtime.factory import cluster_problem
from operations.doctor.findings import Finding, Verdict
from resources.hosts import local_address
from resources.models import Host

ASKED: Final = 3  # hosts at most


def networks_of_clusters() -> Finding:
    """Return whether members of clusters can run here, and whether other hosts answer that may have members too."""
    if problem := cluster_problem():
        return Finding(Verdict.WARN, f"no members of clusters run here: {problem}", "see docs/clusters.md")
    address = local_address.for_clusters()
    packets, problem = _packets(address)
    text = f"possible; other hosts reach this one at {address}{packets}"
    if problem:
        return Finding(Verdict.WARN, f"{text}, but {problem}", "set COMPUTE_CLUSTER_ADDRESS")
    others = [each for each in _others() if each != address][:ASKED]
    silent = [each for each, _ in reachability.unanswered([(each, reachability.DISCARD) for each in others])]
    if silent:
        hint = f"open UDP port {PORT} between them; a firewall that drops connections to port 9 looks the same"
        return Finding(Verdict.WARN, f"{text}; {', '.join(silent)} does not answer", hint)
    return Finding(Verdict.OK, f"{text}; {', '.join(others)} answers" if others else text)


def _packets(address: str) -> tuple[str, str]:
    """Return how large packets between members may be, in words, and what is wrong with the address."""
    if ":" in address:
        return "", ""
    device = local_address.device_of(address)
    if not device:
        return "", "no network device has that address"
    size = local_address.mtu_of(device) - OVERHEAD_BYTES[4]
    return f", with packets of {size} bytes between members (MTU of {device} less {OVERHEAD_BYTES[4]})", ""


def _others() -> list[str]:
    """Return addresses of other hosts: what the database shows, of a host that has joined those it was given then."""
    known = Host.objects.exclude(cluster_address="").order_by("-heartbeat_at").values_list("cluster_address", flat=True)
    return list(dict.fromkeys([*known, *settings.COMPUTE_CLUSTER_PEERS]))
