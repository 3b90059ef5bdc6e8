"""What superadmins see of the whole platform on the summary."""

from dataclasses import dataclass

from django.db.models import Count, F, Q, Sum

from resources.models import BuildState, Gpu, Host, HostStatus, ImageBuild
from sessions.lifecycle import LIVE, Status
from sessions.models import GpuShare, Session


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformState:
    """Numbers of hosts, GPUs and sessions of everybody."""

    hosts_ready: int
    hosts_cordoned: int
    hosts_lost: int
    hosts: int
    gpus: int
    held_percent: int | None  # of all GPUs; None without one
    running: int
    waiting: int
    failed_builds: int

    @property
    def has_trouble(self) -> bool:
        """True if somebody should look."""
        return bool(self.hosts_lost or self.failed_builds)


def platform_state() -> PlatformState:
    """Return the state of the platform; five queries."""
    hosts = Host.objects.aggregate(
        ready=Count("pk", filter=Q(status=HostStatus.READY, is_cordoned=False)),
        cordoned=Count("pk", filter=Q(is_cordoned=True)),
        lost=Count("pk", filter=Q(status=HostStatus.LOST)),
        all=Count("pk"),
    )
    gpus = Gpu.objects.filter(is_present=True).aggregate(
        count=Count("pk"), milli=Sum(F("host__group__fgpu_per_gpu") * 1000, default=0)
    )
    held = GpuShare.objects.aggregate(milli=Sum("milli", default=0))["milli"]
    sessions = Session.objects.filter(status__in=LIVE).aggregate(
        running=Count("pk", filter=Q(status=Status.RUNNING)), waiting=Count("pk", filter=Q(status=Status.PENDING))
    )
    failed = ImageBuild.objects.filter(state=BuildState.FAILED, image__is_enabled=True).count()
    return PlatformState(
        hosts_ready=hosts["ready"],
        hosts_cordoned=hosts["cordoned"],
        hosts_lost=hosts["lost"],
        hosts=hosts["all"],
        gpus=gpus["count"],
        held_percent=round(100 * held / gpus["milli"]) if gpus["milli"] else None,
        running=sessions["running"],
        waiting=sessions["waiting"],
        failed_builds=failed,
    )
