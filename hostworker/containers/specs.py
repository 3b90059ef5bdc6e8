"""What a session's container is created from, by its row and its lease."""

from django.db.models import Prefetch, prefetch_related_objects

from hostworker.clusters import variables as cluster_variables
from hostworker.containers import app_environment, cluster_networks, parking
from hostworker.privileged.cluster_network.network import MEMBER_DEVICE
from hostworker.runtime_protocol import ContainerSpec, FolderMount, GpuGrant
from resources.gpus.shares import Sharing
from resources.hosts import local_address
from sessions.launching.validation import RESERVED_PREFIX
from sessions.models import GpuShare, Session


def spec_of(session: Session, folders: tuple[FolderMount, ...] = (), image: str = "") -> ContainerSpec:
    """Return what the session's container is created from; fetch its lease with it."""
    capacity = session.resource_group.gpu_capacity
    prefetch_related_objects([session], Prefetch("lease__shares", GpuShare.objects.select_related("gpu")))
    place = cluster_networks.place_of(session)
    shares = session.held_shares
    device = local_address.device_of(place.host) if place and place.host_network else MEMBER_DEVICE
    of_cluster = cluster_variables.variables(place, device, session=session.pk, gpus=len(shares)) if place else {}
    return ContainerSpec(
        session=session.pk,
        attempt=session.attempt,
        image=image or session.image.reference,
        cpu=session.cpu,
        core_milli=session.core_milli,
        memory_bytes=session.memory,
        shared_memory_bytes=session.shared_memory,
        gpus=tuple(
            GpuGrant(
                uuid=share.gpu.uuid,
                share_milli=share.milli,
                gpu_milli=capacity,
                memory_bytes=share.gpu.memory,
                is_simulated=share.gpu.is_simulated,
                tier=tier,
                kind=share.gpu.kind,
            )
            for share, tier in shares
        ),
        sharing=Sharing(session.resource_group.sharing),
        folders=folders,
        environment={
            **app_environment.variables(),
            **app_environment.thread_counts(session.cpu),
            **of_cluster,
            "GPUPLATFORM_SESSION_ID": session.pk,
            "GPUPLATFORM_SESSION_NAME": session.name,
        },
        variables={name: value for name, value in session.environment.items() if not name.startswith(RESERVED_PREFIX)},
        allow_sudo=session.allow_sudo,
        disk_bytes=parking.disk_left(session),
        command=session.command,
        hostname=place.name if place else session.name.replace("_", "-").replace(".", "-")[:63].strip("-"),
        cluster=place,
    )
