"""The page of sessions, its columns and its CSV."""

from typing import Any, Final

from django.contrib.auth.decorators import login_required
from django.core.paginator import Page, Paginator
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from accounts.models import User
from accounts.requests import UserRequest, signed_in_page
from arrays.models import OPEN, Array, ArrayState
from pages.session_list import columns
from pages.session_list.export import csv_of
from pages.session_list.list_query import FILTERS, PAGE_SIZES, ListQuery, section_counts
from pages.session_list.live.live_use import live_use
from pages.session_list.live.rendering import render_gpus, render_row
from pages.session_list.occupancy import Version, change_version, occupancy_of, version_text
from pages.session_list.resource_bars import bars_of, gpu_map, gpu_shares_of, held_by
from pages.session_list.row_queries import load_rows, with_help
from pages.session_list.sections import SECTIONS
from resources.models import Image, ResourceGroup
from sessions.lifecycle import TABS, Status, Tab
from sessions.models import Session

ARRAYS_SHOWN: Final = 5  # above the sessions; the others are on their page
TASKS_SHOWN: Final = 8  # of an array that is open
ARRAY_STATES: Final = {
    Tab.RUNNING: OPEN,
    Tab.FINISHED: (ArrayState.SUCCEEDED,),
    Tab.OTHERS: (ArrayState.FAILED, ArrayState.CANCELLED),
}
PAGES_BESIDE: Final = 1  # the current one, and at both ends, in the list of page numbers


class CountedPaginator(Paginator[Session]):
    """A paginator that is told how many there are."""

    def __init__(self, sessions: Any, per_page: int, count: int) -> None:
        super().__init__(sessions, per_page)
        self.count = count


@signed_in_page
def session_list(request: UserRequest) -> HttpResponse:
    """Show the sessions of a tab below the resources; return only the live part to htmx, or its arrays."""
    query = ListQuery.from_parameters(request.GET.dict())
    if request.htmx.target == "live-arrays":
        return render(request, "session_list/_arrays.html", _arrays(request, query))
    given = [(name, value) for name, value in request.GET.items() if name != "page"]
    version = change_version()  # before the rest, so that a later change is noticed
    context = {
        "query": query,
        "version": version_text(version),
        "kept_by_filter": [(name, value) for name, value in given if name not in FILTERS],
        "kept_by_group": [(name, value) for name, value in given if name != "group"],
        **_arrays(request, query),
        **_resources(request, version),
        **_sessions(request, query, version),
    }
    template = "session_list/_list.html" if request.htmx else "session_list/list.html"
    return render(request, template, context)


@signed_in_page
def export(request: UserRequest) -> HttpResponse:
    """Send every session that matches as CSV."""
    query = ListQuery.from_parameters(request.GET.dict())
    name = f"sessions-{query.tab}-{timezone.now():%Y-%m-%d}.csv"
    response = HttpResponse(csv_of(query.sessions(request.user)), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@require_POST
@login_required
def choose_columns(request: UserRequest) -> HttpResponse:
    """Store which columns the user sees, and show the list again."""
    columns.choose(request.user, request.POST.getlist("columns"))
    if request.htmx:
        return HttpResponse(status=204, headers={"HX-Trigger": "live:changed"})
    back = request.POST.get("next", "")
    is_safe = url_has_allowed_host_and_scheme(back, {request.get_host()}, require_https=request.is_secure())
    return redirect(back if is_safe else reverse("sessions:list"))


def _arrays(request: UserRequest, query: ListQuery) -> dict[str, Any]:
    """Return the arrays above the sessions, of which one may be open: those under way, or those that a search finds."""
    user = request.user
    if query.tab != Tab.RUNNING and not query.search:
        return {"arrays": []}
    found = Array.objects.visible_to(user).filter(state__in=ARRAY_STATES[query.tab]).defer("request", "space")
    if query.is_mine_only:
        found = found.filter(owner=user)
    if query.search:
        found = found.matching(query.search)
    opened = request.GET.get("open", "")
    arrays = list(found[:ARRAYS_SHOWN])
    tasks = [list(each.notable_tasks()[:TASKS_SHOWN]) for each in arrays if each.pk == opened]
    return {"arrays": arrays, "opened": opened, "opened_tasks": tasks[0] if tasks else []}


def _sessions(request: UserRequest, query: ListQuery, version: Version) -> dict[str, Any]:
    user = request.user
    counts = section_counts(user, version)
    found, of_section = query.sessions(user), counts[query.section.key]
    paginator = CountedPaginator(found, query.size, of_section if query.is_plain else found.order_by().count())
    page: Page[Session] = paginator.get_page(request.GET.get("page"))
    first = max(0, page.start_index() - 1)
    rows = with_help(load_rows(list(found.values_list("pk", flat=True)[first : page.end_index()])), {user.pk})
    chosen = columns.chosen_by(user)
    shown = columns.shown(user, query.tab, chosen)
    running = [row.pk for row in rows if row.is_running]
    return {
        "page": page,
        "page_numbers": paginator.get_elided_page_range(page.number, on_each_side=PAGES_BESIDE, on_ends=PAGES_BESIDE),
        "page_sizes": PAGE_SIZES,
        "rows": [render_row(row, shown, user.pk, is_superadmin=user.is_superuser) for row in rows],
        "use": live_use(running) if running else {},
        "sections": [(section, counts[section.key]) for section in SECTIONS],
        "has_any": any(counts.values()),
        "shown": shown,
        "columns": [(column, column.key in chosen) for column in columns.offered_to(user, query.tab)],
        "hidden_chosen": sorted(chosen - {column.key for column in columns.offered_to(user, query.tab)}),
        "heads": columns.headers(shown, query),
        "orders": columns.ORDERS + columns.SUPERADMIN_ORDERS * user.is_superuser,
        "statuses": [status for status in Status if status in TABS[query.tab]] if len(TABS[query.tab]) > 1 else [],
        "environments": _environments(user, query.environment),
    }


def _environments(user: User, chosen: str) -> list[str]:
    images = Image.objects.usable_by(user).order_by("environment")
    names = list(images.values_list("environment", flat=True).distinct())
    return names if not chosen or chosen in names else [*names, chosen]


def _resources(request: UserRequest, version: Version) -> dict[str, Any]:
    """Return the user's bars and the GPUs of the chosen resource group, else of the first."""
    user = request.user
    groups = list(ResourceGroup.objects.usable_by(user))
    chosen = [group for group in groups if str(group.pk) == request.GET.get("group")]
    group = next(iter(chosen + groups), None)
    if group is None:
        return {"groups": groups, "group": None}
    occupancy = occupancy_of(group, version)
    shares = gpu_shares_of([user.pk], group.pk).get(user.pk, {})
    held = held_by([user.pk]).get(user.pk, {})
    return {
        "groups": groups,
        "group": group,
        "bars": bars_of(user.policy.limits(), held, group.pk, occupancy.free),
        "gpu_blocks": render_gpus(gpu_map(occupancy, shares), group.fgpu_per_gpu, group.accelerator_name),
    }
