"""What superadmins see of the whole platform on the summary."""

from django.db.models import Count, F, Q, Sum

from resources.models import BuildState, Gpu, Host, HostStatus, ImageBuild
from sessions.lifecycle import LIVE, Status
from sessions.models import GpuShare, Session


def platform_state() -> dict[str, int | None]:
    """Return numbers of hosts, GPUs and sessions of everybody, by the names that the template has; five queries."""
    hosts = Host.objects.aggregate(
        hosts_ready=Count("pk", filter=Q(status=HostStatus.READY, is_cordoned=False)),
        hosts_cordoned=Count("pk", filter=Q(is_cordoned=True)),
        hosts_lost=Count("pk", filter=Q(status=HostStatus.LOST)),
        hosts=Count("pk"),
    )
    gpus = Gpu.objects.filter(is_present=True).aggregate(
        count=Count("pk"), milli=Sum(F("host__group__fgpu_per_gpu") * 1000, default=0)
    )
    held = GpuShare.objects.aggregate(milli=Sum("milli", default=0))["milli"]
    sessions = (
        Session.objects.mains()
        .filter(status__in=LIVE)
        .aggregate(
            running=Count("pk", filter=Q(status=Status.RUNNING)), waiting=Count("pk", filter=Q(status=Status.PENDING))
        )
    )
    return {
        **hosts,
        **sessions,
        "gpus": gpus["count"],
        "held_percent": round(100 * held / gpus["milli"]) if gpus["milli"] else None,  # None without a GPU
        "failed_builds": ImageBuild.objects.filter(state=BuildState.FAILED, image__is_enabled=True).count(),
    }
