"""The usage report: what users, projects or resource groups used, as a page with a plot, and as CSV."""

import csv
import io
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone

from accounts.models import Project
from accounts.requests import UserRequest, signed_in_page
from pages.csv_cells import inert
from sessions.models import visible_to
from sessions.usage.api import UsageQuery
from sessions.usage.report import ReportBy, UsageReport, UsedAmounts, report_of

PLOT_HEIGHT: Final = 100.0
HEADER: Final = (
    *("name", "sessions", "gpu_hours", "gpu_idle_hours", "gpu_measured_hours", "cpu_hours", "memory_gib_hours"),
    *("waiting_hours", "weighted_gpu_hours"),
)


@dataclass(frozen=True, slots=True)
class PlotBar:
    """A day of the plot; heights are of PLOT_HEIGHT."""

    day: date
    position: int
    used: UsedAmounts
    height: float
    idle_height: float

    @property
    def top(self) -> float:
        """Where the bar begins, from above."""
        return PLOT_HEIGHT - self.height

    @property
    def idle_top(self) -> float:
        """Where the idle part begins, from above."""
        return PLOT_HEIGHT - self.idle_height


@signed_in_page
def usage(request: UserRequest) -> HttpResponse:
    """Show the report of a span; one that is not valid is answered with 400."""
    query, errors = _query(request.GET)
    report = _report(request, query)
    context = {
        "report": report,
        "bars": _bars(report),
        "most": max((used.gpu_hours for _, used in report.days), default=0.0),
        "errors": errors,
        "sees_others": request.user.is_superuser or Project.objects.managed_by(request.user).exists(),
        "choices": list(ReportBy),
    }
    return render(request, "overview/usage.html", context, status=400 if errors else 200)


@signed_in_page
def usage_csv(request: UserRequest) -> HttpResponse:
    """Send the rows of the report as CSV."""
    query, errors = _query(request.GET)
    if errors:
        return HttpResponse(" ".join(errors), status=400, content_type="text/plain; charset=utf-8")
    report = _report(request, query)
    response = HttpResponse(csv_of(report), content_type="text/csv; charset=utf-8")
    name = f"usage-{report.by}-{report.since}-{report.until}.csv"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def csv_of(report: UsageReport) -> str:
    """Return the rows of the report as CSV with a header, hours with three digits."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(HEADER)
    for row in report.rows:
        hours = [f"{getattr(row.used, name):.3f}" for name in HEADER[2:]]
        writer.writerow([inert(row.name), row.sessions, *hours])
    return text.getvalue()


def _query(given: QueryDict) -> tuple[dict[str, Any], list[str]]:
    """Return the span and what its rows stand for, by default where it is not valid, and what is wrong with it."""
    query = UsageQuery(data={name: value for name, value in given.items() if value})
    if query.is_valid():
        return query.validated_data, []
    default = UsageQuery(data={})
    default.is_valid(raise_exception=True)
    return default.validated_data, [str(error) for errors in query.errors.values() for error in errors]


def _report(request: UserRequest, query: dict[str, Any]) -> UsageReport:
    return report_of(visible_to(request.user), **query, now=timezone.now())


def _bars(report: UsageReport) -> list[PlotBar]:
    most = max((used.gpu_hours for _, used in report.days), default=0.0) or 1.0
    scale = PLOT_HEIGHT / most
    return [
        PlotBar(day, position, used, used.gpu_hours * scale, min(used.gpu_idle_hours, used.gpu_hours) * scale)
        for position, (day, used) in enumerate(report.days)
    ]
