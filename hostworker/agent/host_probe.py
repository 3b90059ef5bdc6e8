"""Probes a host that was cordoned because it failed to start sessions: does it start one now?

The probe is a container like a session's, of an image that the host has if it has any, with a share of every GPU, and
is removed at once. It takes no lease: it uses nothing of the GPUs beyond being let at them.
"""

import logging
import threading
from typing import Final

from hostworker.images import host_images
from hostworker.runtime_protocol import ContainerRuntimeError, ContainerSpec, GpuGrant, Runtime
from resources.amounts.units import MIB
from resources.gpus.tiers import Tier, share_tiers
from resources.hosts import health as host_health
from resources.models import Gpu, Host, HostImage, Image, ImageSource, Installation

logger = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS: Final = 5.0
PREFIX: Final = "probe"  # of the name in place of a session's id, which is longer; of no session
ATTEMPT: Final = 1
COMMAND: Final = "exec sleep 60"  # longer than the probe; whoever forgets it finds it ended
MEMORY_BYTES: Final = 64 * MIB
NO_IMAGE: Final = "No image is enabled to probe the host with."
_probing = threading.Lock()


def is_probing(session_id: str) -> bool:
    """Return whether this is the container of a probe that this process makes now, and so no orphan."""
    return session_id.startswith(f"{PREFIX}-") and _probing.locked()


def poll(runtime: Runtime, host: Host) -> None:
    """Probe the host if that is due, and say how it went."""
    if host_health.due_probes(host).exists():
        with _probing:
            problem = probe(runtime, host)
        host_health.note_probe(host, problem)


def probe(runtime: Runtime, host: Host) -> str:
    """Start and remove a container; return why that failed, or ""."""
    image = _image(host)
    if image is None:
        return NO_IMAGE
    spec = _spec(host, image)
    try:
        runtime.remove(spec.session, spec.attempt)  # of a worker that died
        host_images.ensure(runtime, image, logger.debug)
        runtime.create(spec)
        runtime.start(spec.session, spec.attempt)
    except ContainerRuntimeError as error:
        return str(error) or type(error).__name__
    finally:
        _remove(runtime, spec)
    return ""


def _remove(runtime: Runtime, spec: ContainerSpec) -> None:
    try:
        runtime.remove(spec.session, spec.attempt)
    except ContainerRuntimeError as error:
        logger.warning("the container of the probe is left to the reconciler: %s", error)


def _image(host: Host) -> Image | None:
    """Return the smallest image that an administrator offers, of those on the host if there are any."""
    offered = Image.objects.filter(
        is_enabled=True, removed_at=None, owner=None, source__in=(ImageSource.CATALOG, ImageSource.REGISTRY)
    )
    if host.architecture:
        offered = offered.filter(architecture__in=("", host.architecture))
    here = HostImage.objects.filter(host=host, image__in=offered).select_related("image").order_by("size").first()
    return here.image if here else offered.order_by("size", "pk").first()


def _spec(host: Host, image: Image) -> ContainerSpec:
    capacity = host.group.gpu_capacity
    gpus = list(Gpu.objects.filter(host=host, is_present=True).order_by("index"))
    parts = [(capacity if gpu.tier == Tier.NONE else max(capacity // 100, 1), gpu.tier) for gpu in gpus]
    tiers = share_tiers(parts, capacity)
    return ContainerSpec(
        session=f"{PREFIX}-{Installation.current_key()[:12]}-{host.pk}",  # others may use the engine too
        attempt=ATTEMPT,
        image=image.reference,
        cpu=1,
        memory_bytes=MEMORY_BYTES,
        shared_memory_bytes=MIB,
        gpus=tuple(
            GpuGrant(
                uuid=gpu.uuid,
                share_milli=milli,
                gpu_milli=capacity,
                memory_bytes=gpu.memory,
                is_simulated=gpu.is_simulated,
                tier=tier,
                kind=gpu.kind,
            )
            for gpu, (milli, _), tier in zip(gpus, parts, tiers, strict=True)
        ),
        command=COMMAND,
    )
