"""The page that lists sessions."""

from typing import Final

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from accounts.requests import UserRequest
from pages.session_list import queries
from resources.models import ResourceGroup
from sessions.lifecycle import Tab

PAGE_SIZE: Final = 25
TAB_NAMES: Final[dict[str, Tab]] = {tab.value: tab for tab in Tab}


@require_safe
@login_required
@never_cache
@vary_on_headers("HX-Request")
def session_list(request: UserRequest) -> HttpResponse:
    """Show the sessions of a tab with the resource bars; return only the live part to htmx."""
    tab = TAB_NAMES.get(request.GET.get("tab", ""), Tab.RUNNING)
    search = request.GET.get("q", "").replace("\0", "").strip()  # PostgreSQL refuses NUL in text
    sort = request.GET.get("sort", queries.DEFAULT_SORT)
    paginator = Paginator(queries.listed(request.user, tab, search, sort), PAGE_SIZE)
    groups = list(ResourceGroup.objects.usable_by(request.user))
    chosen = [group for group in groups if str(group.pk) == request.GET.get("group")]
    group = next(iter(chosen + groups), None)
    context = {
        "page": paginator.get_page(request.GET.get("page")),
        "tab": tab,
        "tabs": queries.tab_counts(request.user),
        "search": search,
        "sort": sort,
        "groups": groups,
        "group": group,
        "bars": queries.resource_bars(request.user, group) if group else [],
    }
    return render(request, "sessions/_list.html" if request.htmx else "sessions/list.html", context)
