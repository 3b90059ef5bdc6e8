"""The list of arrays, and the page of one with its tasks."""

from datetime import timedelta
from typing import Any, Final

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from rest_framework.exceptions import ValidationError

from accounts.requests import UserRequest, signed_in_page
from arrays.api import chosen_tasks
from arrays.models import ENDED, Array, TaskState
from arrays.serializers import TaskQuery

PAGE_SIZE: Final = 25
TASKS_SHOWN: Final = 50
COLUMNS: Final = 8  # of parameters, and of metrics, at most


@signed_in_page
def array_list(request: UserRequest) -> HttpResponse:
    """List the arrays that the user may see; return only the live part to htmx."""
    shows_ended, name = "ended" in request.GET, request.GET.get("q", "").strip()[:64]
    found = Array.objects.visible_to(request.user).filter(ended_at__isnull=not shows_ended, name__icontains=name)
    found = found.select_related("owner", "project").defer("request", "space")
    page = Paginator(found, PAGE_SIZE).get_page(request.GET.get("page"))
    context = {"page": page, "shows_ended": shows_ended, "name": name}
    return render(request, "arrays/_list.html" if request.htmx else "arrays/list.html", context)


@signed_in_page
def detail(request: UserRequest, array_id: str) -> HttpResponse:
    """Show one array; return only the live part to htmx."""
    return page_of(request, visible_array(request, array_id))


def visible_array(request: UserRequest, array_id: str) -> Array:
    """Return an array that the user may see and cancel, else answer 404."""
    found = Array.objects.visible_to(request.user).select_related("owner", "project")
    return get_object_or_404(found, pk=array_id)


def page_of(request: UserRequest, array: Array, errors: dict[str, str] | None = None) -> HttpResponse:
    """Return the page of an array, or its live part; with the errors of a refused form, as 422."""
    asked = {name: value for name, value in request.GET.items() if value}
    query = TaskQuery(data=asked)
    tasks, problem = array.tasks.order_by("index"), ""
    try:
        query.is_valid(raise_exception=True)
        tasks = chosen_tasks(array, query.validated_data)
    except ValidationError as error:
        problem = str(next(iter(error.detail.values()))[0])  # type: ignore[index, union-attr]
    page = Paginator(tasks.select_related("session"), TASKS_SHOWN).get_page(request.GET.get("page"))
    first = array.tasks.values_list("parameters", flat=True).first() or {}
    context = {
        "array": array,
        "page": page,
        "rows": _rows(list(page.object_list), columns := list(first)[:COLUMNS]),
        "columns": columns,
        "order": asked.get("order", "index"),
        "asked": asked,
        "states": TaskState.choices,
        "query_problem": problem,
        "may_operate": request.user.is_superuser or array.owner_id == request.user.pk,
        "errors": errors or {},
        "given": request.POST,
    }
    template = "arrays/_detail.html" if request.htmx and not errors else "arrays/detail.html"
    return render(request, template, context, status=422 if errors else 200)


def _rows(tasks: list[Any], columns: list[str]) -> list[Any]:
    """Give each task the values of its columns, and what it may be asked for."""
    for task in tasks:
        task.values = [task.texts.get(name, "") for name in columns]
        task.has_ended = task.state in ENDED
        task.may_retry = task.has_ended and task.state != TaskState.SUCCEEDED
        if task.started_at and task.ended_at:
            task.duration = timedelta(seconds=int((task.ended_at - task.started_at).total_seconds()))
    return tasks
