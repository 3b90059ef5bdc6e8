"""API of arrays: submit, list, show, change, cancel, retry, hold, release; and their tasks with their output."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from django.db.models import Expression, F, Q, QuerySet
from django.db.models.fields.json import KeyTransform
from django.http import Http404, HttpResponse
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from arrays import services, spaces
from arrays.models import Array, ArrayTask
from arrays.serializers import (
    ArrayChangeSerializer,
    ArrayQuery,
    ArrayRequestSerializer,
    ArraySerializer,
    ArrayTaskSerializer,
    TaskIndicesSerializer,
    TaskQuery,
)
from restapi.views import ApiViewSet, valid_body
from sessions.api import PlainTextRenderer, UnavailableError, by_request_field
from sessions.following import logs
from sessions.models import SESSION_ID, Session
from sessions.serializers import LogsQuery

READ: Final = frozenset({"list", "retrieve", "tasks", "task", "cancel", None})  # and cancel, by managers of projects
FILTERS: Final = {"name": "name__icontains", "owner": "owner__email__iexact", "project": "project__name"}
ORDERS: Final = {  # parameters of the list of tasks, and the columns by which they sort
    **{"index": "index", "state": "state", "attempts": "attempts"},
    **{"started": "started_at", "ended": "ended_at"},
}
INDEX: Final = r"(?P<index>[0-9]{1,6})"
OF_A_TASK: Final = [OpenApiParameter("index", OpenApiTypes.INT, OpenApiParameter.PATH)]


class ArrayViewSet(ListModelMixin, RetrieveModelMixin, ApiViewSet[Array]):
    """The caller's arrays, newest first; superadmins see everybody's, managers those of their projects."""

    queryset = Array.objects.all()
    serializer_class = ArraySerializer
    lookup_value_regex = SESSION_ID
    query_serializers: ClassVar = {"list": ArrayQuery, "tasks": TaskQuery, "logs": LogsQuery}

    def get_queryset(self) -> QuerySet[Array]:
        """Return the arrays that the caller may see, or change, with related rows; one query."""
        user, everything = user_of(self.request), Array.objects.all()
        found = everything.visible_to(user) if self.action in READ else everything.operable_by(user)
        if self.action == "list":
            if self.query["ended"] is not None:
                found = found.filter(ended_at__isnull=not self.query["ended"])
            found = found.filter(**{lookup: self.query[name] for name, lookup in FILTERS.items() if name in self.query})
        return found.select_related("owner", "project")

    def refused_fields(self, errors: Mapping[str, str]) -> Mapping[str, Any]:
        """Return them by field of a launch."""
        return by_request_field(errors, self.request.data if self.action == "create" else {"image": ""})

    @extend_schema(request=ArrayRequestSerializer, responses={201: ArraySerializer})
    def create(self, request: Request) -> Response:
        """Submit an array; its tasks get sessions as there is room."""
        body = ArrayRequestSerializer(data=request.data, context=self.get_serializer_context())
        body.is_valid(raise_exception=True)
        made = services.submit(user_of(request), body.array_request())
        return Response(self.get_serializer(made).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=ArrayChangeSerializer, responses=ArraySerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change the name, or how many tasks may run at once; what runs goes on."""
        array = self.get_object()
        services.change(array, valid_body(ArrayChangeSerializer, request), actor=user_of(request))
        return Response(self.get_serializer(array).data)

    @extend_schema(request=TaskIndicesSerializer, responses=ArraySerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """Cancel tasks, all when none are named: those that wait at once, the others as their sessions end."""
        return self._do_with_tasks(services.cancel)

    @extend_schema(request=TaskIndicesSerializer, responses=ArraySerializer)
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, pk: str) -> Response:
        """Have failed and cancelled tasks wait again; when none are named, all that have failed."""
        return self._do_with_tasks(services.retry)

    @extend_schema(request=None, responses=ArraySerializer)
    @action(detail=True, methods=["post"])
    def hold(self, request: Request, pk: str) -> Response:
        """Start no more tasks; those that have a session go on."""
        array = self.get_object()
        services.hold(array, actor=user_of(request))
        return Response(self.get_serializer(array).data)

    @extend_schema(request=None, responses=ArraySerializer)
    @action(detail=True, methods=["post"])
    def release(self, request: Request, pk: str) -> Response:
        """Start tasks again, after a hold or what a hold names as its reason."""
        array = self.get_object()
        services.release(array, actor=user_of(request))
        return Response(self.get_serializer(array).data)

    @extend_schema(responses=ArrayTaskSerializer(many=True))
    @action(detail=True)
    def tasks(self, request: Request, pk: str) -> Response:
        """List the tasks of an array, by index unless another order is asked for."""
        return self.page_of(chosen_tasks(self.get_object(), self.query), ArrayTaskSerializer)

    @extend_schema(responses=ArrayTaskSerializer, parameters=OF_A_TASK)
    @action(detail=True, url_path=f"tasks/{INDEX}", pagination_class=None)
    def task(self, request: Request, pk: str, index: str) -> Response:
        """Show a task of an array."""
        return Response(ArrayTaskSerializer(self._task(index)).data)

    @extend_schema(
        responses={(200, "text/plain"): OpenApiTypes.STR},
        parameters=OF_A_TASK,
        operation_id="arrays_tasks_logs_retrieve",
    )
    @action(
        detail=True,
        url_path=f"tasks/{INDEX}/logs",
        renderer_classes=[JSONRenderer, PlainTextRenderer],
        pagination_class=None,
    )
    def logs(self, request: Request, pk: str, index: str) -> HttpResponse:
        """Return the last lines of the output of a task's last attempt as plain text; "" before there is any."""
        task = self._task(index)
        if self.query["previous"]:
            return HttpResponse(previous_output(task, self.query["tail"]), content_type="text/plain; charset=utf-8")
        session = task.session
        try:
            text = logs.read(session, self.query["tail"]) if session else ""
        except logs.LogsUnavailableError as error:
            raise UnavailableError(str(error)) from error
        return HttpResponse(text, content_type="text/plain; charset=utf-8")

    def _task(self, index: str) -> ArrayTask:
        task = self.get_object().tasks.select_related("session__host", "array").filter(index=int(index)).first()
        if task is None:
            raise Http404
        return task

    def _do_with_tasks(self, act: Callable[..., None]) -> Response:
        array, asked = self.get_object(), valid_body(TaskIndicesSerializer, self.request)
        act(array, actor=user_of(self.request), indices=asked.get("tasks"))
        return Response(self.get_serializer(array).data)


def previous_output(task: ArrayTask, tail: int) -> str:
    """Return the last lines of the attempt before a task's last: its session began anew, or is another one."""
    if task.session is not None and (text := logs.read_previous(task.session, tail)):
        return text
    own = {"GP_ARRAY_ID": task.array_id, "GP_ARRAY_TASK_ID": str(task.index)}
    since = {"owner": task.array.owner_id, "created_at__gte": task.array.created_at}
    others = Session.objects.filter(is_task=True, environment__contains=own, **since)
    before = others.exclude(pk=task.session_id).order_by("-created_at").first()
    return logs.read(before, tail) if before else ""


def chosen_tasks(array: Array, asked: Mapping[str, Any]) -> QuerySet[ArrayTask]:
    """Return the tasks that match the query string, in its order. Raises ValidationError."""
    tasks = array.tasks.all()
    if "state" in asked:
        tasks = tasks.filter(state=asked["state"])
    if "parameter" in asked:
        name, _equals, value = asked["parameter"].partition("=")
        tasks = tasks.filter(
            Q(parameters__contains={name: value}) | Q(parameters__contains={name: spaces.read_value(value)})
        )
    order = asked["order"]
    path, is_descending = order.removeprefix("-"), order.startswith("-")
    table, _dot, name = path.partition(".")
    by: Expression | F
    if path in ORDERS:
        by = F(ORDERS[path])
    elif table in ("parameters", "metrics") and name:
        by = KeyTransform(name, table)
    else:
        raise ValidationError(
            {"order": [_("Write one of %(orders)s, parameters.NAME and metrics.NAME.") % {"orders": ", ".join(ORDERS)}]}
        )
    return tasks.order_by(by.desc(nulls_last=True) if is_descending else by.asc(nulls_last=True), "index")
