"""The list of arrays, and the page of one with its tasks."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from rest_framework.exceptions import ValidationError

from accounts.requests import UserRequest, signed_in_page
from arrays.api import chosen_tasks
from arrays.models import ENDED, Array, ArrayTask, TaskState
from arrays.serializers import TaskQuery
from pages.arrays import columns
from pages.arrays.export import csv_of
from pages.arrays.plot import INDEX, plot_of
from translation.english import from_english

PAGE_SIZE: Final = 25
TASKS_SHOWN: Final = 50
COLUMNS: Final = 8  # of parameters, and of metrics, at most
COUNTERS: Final = frozenset({"epoch", "step", "global_step"})  # metrics that are plotted where there are no others


@signed_in_page
def array_list(request: UserRequest) -> HttpResponse:
    """List the arrays that the user may see; return only the live part to htmx."""
    shows_ended, name = "ended" in request.GET, request.GET.get("q", "").replace("\0", "").strip()[:64]
    found = Array.objects.visible_to(request.user).filter(ended_at__isnull=not shows_ended)
    found = found.matching(name) if name else found
    found = found.select_related("owner", "project").defer("request", "space")
    page = Paginator(found, PAGE_SIZE).get_page(request.GET.get("page"))
    context = {"page": page, "shows_ended": shows_ended, "name": name}
    return render(request, "arrays/_list.html" if request.htmx else "arrays/list.html", context)


@signed_in_page
def detail(request: UserRequest, array_id: str) -> HttpResponse:
    """Show one array; return only the live part to htmx."""
    return page_of(request, visible_array(request, array_id))


@signed_in_page
def export(request: UserRequest, array_id: str) -> StreamingHttpResponse | HttpResponse:
    """Send every task that matches as CSV; 400 where the query is wrong."""
    array = visible_array(request, array_id)
    tasks, problem = _chosen(array, _asked(request))
    if problem:
        return HttpResponse(from_english(problem), status=400, content_type="text/plain; charset=utf-8")
    response = StreamingHttpResponse(csv_of(array, tasks), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{array.name}-{array.pk}.csv"'
    return response


def visible_array(request: UserRequest, array_id: str) -> Array:
    """Return an array that the user may see and cancel, else answer 404."""
    found = Array.objects.visible_to(request.user).select_related("owner", "project")
    return get_object_or_404(found, pk=array_id)


def page_of(request: UserRequest, array: Array, errors: dict[str, str] | None = None) -> HttpResponse:
    """Return the page of an array, or its live part; with the errors of a refused form, as 422."""
    asked = _asked(request)
    tasks, problem = _chosen(array, asked)
    page = Paginator(tasks.select_related("session"), TASKS_SHOWN).get_page(asked.get("page"))
    parameters, metrics = columns.names_in(array, "parameters"), columns.names_in(array, "metrics")
    shown = parameters[:COLUMNS], metrics[:COLUMNS]
    context = {
        "array": array,
        "page": page,
        "rows": _rows(list(page.object_list), *shown),
        "headings": columns.headings(*shown, asked.get("order", INDEX)),
        "parameters": parameters,
        "asked": asked,
        "kept_by_filter": _fields(asked, "order", "x", "y"),
        "kept_by_plot": _fields(asked, "order", "state", "parameter", "page", "log"),
        "states": TaskState.choices,
        "query_problem": problem,
        "may_operate": request.user.is_superuser or array.owner_id == request.user.pk,
        "errors": errors or {},
        "given": request.POST,
        **_plotted(tasks, asked, parameters, metrics),
    }
    template = "arrays/_detail.html" if request.htmx and not errors else "arrays/detail.html"
    return render(request, template, context, status=422 if errors else 200)


def _asked(request: UserRequest) -> dict[str, str]:
    return {name: value for name, value in request.GET.dict().items() if value and "\0" not in value}


def _fields(asked: Mapping[str, str], *names: str) -> list[tuple[str, str]]:
    return [(name, asked[name]) for name in names if name in asked]


def _chosen(array: Array, asked: Mapping[str, str]) -> tuple[QuerySet[ArrayTask], str]:
    """Return the tasks that match, in order, and ""; or all, and what is wrong with the query."""
    query = TaskQuery(data=asked)
    try:
        query.is_valid(raise_exception=True)
        return chosen_tasks(array, query.validated_data), ""
    except ValidationError as error:
        return array.tasks.order_by("index"), str(next(iter(error.detail.values()))[0])  # type: ignore[index, union-attr]


def _plotted(
    tasks: QuerySet[ArrayTask], asked: Mapping[str, str], parameters: list[str], metrics: list[str]
) -> dict[str, Any]:
    """Return the plot of the tasks that match, and what each of its axes may be; one query, none without metrics."""
    if not metrics:
        return {}
    across = [*(f"parameters.{name}" for name in parameters), INDEX]
    x, y = asked.get("x"), asked.get("y")
    x, y = x if x in across else across[0], y if y in metrics else min(metrics, key=COUNTERS.__contains__)
    offered = [(path, path.removeprefix("parameters.")) for path in across]
    return {"plot": plot_of(tasks, x, y), "plot_x": x, "plot_y": y, "plot_across": offered, "plot_metrics": metrics}


def _rows(tasks: list[Any], parameters: list[str], metrics: list[str]) -> list[Any]:
    """Give each task the texts of its columns, and what it may be asked for."""
    for task in tasks:
        task.values = columns.cells(task.texts, parameters)
        task.figures = columns.cells(task.metrics, metrics)
        task.has_ended = task.state in ENDED
        task.may_retry = task.has_ended and task.state != TaskState.SUCCEEDED
        if task.started_at and task.ended_at:
            task.duration = timedelta(seconds=int((task.ended_at - task.started_at).total_seconds()))
    return tasks
