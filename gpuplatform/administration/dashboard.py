"""What the front page of the administration shows: hosts, GPUs, queue, who holds most, and failures."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.db.models import Case, Count, F, IntegerField, OuterRef, Q, QuerySet, Subquery, Sum, Value, When
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.translation import gettext as _

from pages.session_list.list_query import TAB_OF
from resources import clock
from resources.amounts.units import fgpu_text
from resources.models import Gpu, GpuReading, Host, HostStatus, ResourceGroup
from resources.templatetags.units import duration
from sessions.estimates.starts import accuracy
from sessions.lifecycle import HOSTED, START_CERTAINTY, Status
from sessions.models import GpuShare, Lease, Session
from sessions.words import reason_text

MAX_ROWS: Final = 8  # of each list of the dashboard
MAX_GPUS: Final = 512  # of the strip
ERRORS_SINCE: Final = timedelta(days=1)
STALE_AFTER: Final = timedelta(minutes=1)  # of a reading
LEVELS: Final = 10  # of heat


@dataclass(frozen=True)
class GpuHeat:
    """A GPU as a cell of the strip: levels from 0 to LEVELS of what is held and of how busy it is."""

    host_name: str
    index: int
    held: int
    busy: int | None  # None where no recent reading says
    label: str

    @classmethod
    def of(cls, gpu: Gpu) -> "GpuHeat":
        """Return the cell of a GPU that `held_milli` is annotated to."""
        capacity, held = gpu.host.group.gpu_capacity, gpu.held_milli  # type: ignore[attr-defined]  # annotated
        reading: GpuReading | None = getattr(gpu, "reading", None)
        is_fresh = reading is not None and reading.at > timezone.now() - STALE_AFTER
        busy = reading.utilisation if reading and is_fresh else None
        facts = {"host": gpu.host.name, "index": gpu.index, "held": fgpu_text(held), "all": fgpu_text(capacity)}
        label = _("%(host)s, GPU %(index)s: %(held)s of %(all)s fGPU held") % facts
        if busy is not None:
            label = _("%(gpu)s, %(percent)d %% busy") % {"gpu": label, "percent": busy}
        return cls(gpu.host.name, gpu.index, _level(held, capacity), None if busy is None else _level(busy, 100), label)


def read() -> dict[str, Any]:
    """Return the state of hosts and queue by the names that the template has; a constant number of queries."""
    counts = Session.objects.filter(status__in=(Status.PENDING, Status.RUNNING)).aggregate(
        running=Count("pk", filter=Q(status=Status.RUNNING)),
        pending=Count("pk", filter=Q(status=Status.PENDING, is_elastic=False)),
    )
    pending = Session.objects.waiting().order_by("created_at")
    gpus = Gpu.objects.filter(is_present=True)
    cells = _heat(gpus)
    errors = Session.objects.filter(status=Status.ERROR, ended_at__gt=timezone.now() - ERRORS_SINCE)
    reasons = errors.values_list("reason").annotate(n=Count("pk")).order_by("-n", "reason")
    return {
        **counts,
        "hosts": list(_hosts()),
        "host_count": Host.objects.count(),
        "groups": list(
            ResourceGroup.objects.filter(is_active=True, hosts__gpus__is_present=True).distinct().order_by("name")
        ),
        "gpus": cells,
        "more_gpus": gpus.count() - len(cells),  # which the strip does not show
        "waiting_list": f"tab={TAB_OF[Status.PENDING]}&status={Status.PENDING}",  # of the page of sessions
        "accuracy": _accuracy(),
        "queue": pending.select_related("owner")[:MAX_ROWS],
        "errors": errors.select_related("owner").order_by("-ended_at")[:MAX_ROWS],
        "error_count": errors.count(),
        "error_reasons": [(reason, reason_text(reason, ""), count) for reason, count in reasons[:MAX_ROWS]],
        "top_users": _top_users(),
    }


def _accuracy() -> list[str]:
    """Return for each group a line on how right it was what those who waited were told as they joined."""
    hits, times = START_CERTAINTY
    return [
        _(
            "%(group)s: of starts %(hits)d of %(times)d are to lie in their range, %(met)s of %(times)d did in the "
            "last 7 days; median error %(error)s"
        )
        % {
            "group": found.group,
            "hits": hits,
            "times": times,
            "met": f"{times * found.in_range / found.starts:.1f}",
            "error": duration(found.median_error),
        }
        for found in accuracy(clock.now())
        if found.estimate == "first"
    ]


def _heat(gpus: QuerySet[Gpu]) -> list[GpuHeat]:
    """Return the GPUs with what is held and what is busy of each, those of a host together."""
    shares = GpuShare.objects.filter(gpu=OuterRef("pk")).order_by().values("gpu")
    held = Coalesce(Subquery(shares.annotate(n=Sum("milli")).values("n")), 0)
    rows = gpus.select_related("host__group", "reading").annotate(held_milli=held).order_by("host__name", "index", "pk")
    shown = rows.only("index", "host__name", "host__group__fgpu_per_gpu", "reading__at", "reading__utilisation")
    return [GpuHeat.of(gpu) for gpu in shown[:MAX_GPUS]]


def _top_users() -> list[Mapping[str, Any]]:
    """Return who holds most GPUs, then cores, with the number of sessions that hold and that wait."""
    holds = Q(status__in=HOSTED)
    gpus = Sum(F("fgpu") / (1000.0 * F("resource_group__fgpu_per_gpu")), filter=holds, default=0.0)
    counted = holds | Q(status=Status.PENDING, is_elastic=False)
    users = Session.objects.filter(counted).values("owner_id", "owner__email")
    rows = users.annotate(
        gpus=gpus,
        cores=Sum("cpu", filter=holds, default=0),
        holding=Count("pk", filter=holds),
        waiting=Count("pk", filter=~holds),
    )
    return [dict(row) for row in rows.order_by("-gpus", "-cores", "owner__email")[:MAX_ROWS]]


def _hosts() -> Any:
    """Return hosts with what is held of them, those in trouble first."""
    trouble = ~Q(status=HostStatus.READY) | Q(is_cordoned=True)
    leases = Lease.objects.filter(host=OuterRef("pk")).order_by().values("host")
    gpus = Gpu.objects.filter(host=OuterRef("pk"), is_present=True).order_by().values("host")
    shares = GpuShare.objects.filter(gpu__host=OuterRef("pk")).order_by().values("gpu__host")
    hosts = Host.objects.select_related("group").annotate(
        running=Coalesce(Subquery(leases.annotate(n=Count("pk")).values("n")), 0),
        gpu_count=Coalesce(Subquery(gpus.annotate(n=Count("pk")).values("n")), 0),
        held_milli=Coalesce(Subquery(shares.annotate(n=Sum("milli")).values("n")), 0),
        order=Case(When(trouble, then=Value(0)), default=Value(1), output_field=IntegerField()),
    )
    for host in hosts.order_by("order", "name")[:MAX_ROWS]:
        host.capacity_milli = host.gpu_count * host.group.gpu_capacity  # type: ignore[attr-defined]  # for the template
        yield host


def _level(part: int, whole: int) -> int:
    """Return the level from 0 to LEVELS; 0 is nothing at all."""
    return min(LEVELS, -(-LEVELS * part // whole)) if whole else 0
