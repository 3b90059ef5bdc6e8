"""What is done with an array or its tasks by a button: each shows the page again, with the reason of a refusal."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from rest_framework.serializers import Serializer

from accounts.requests import UserRequest, signed_in_act
from arrays import services
from arrays.models import Array
from arrays.serializers import ArrayChangeSerializer, TaskIndicesSerializer
from pages.arrays.views import page_of, visible_array
from sessions.errors import RejectedError


@signed_in_act
def cancel(request: UserRequest, array_id: str) -> HttpResponse:
    """Cancel the tasks that are named, or all where the form says so."""
    array = visible_array(request, array_id)
    return _with_tasks(request, array, services.cancel, _("The tasks are being cancelled."))


@signed_in_act
def retry(request: UserRequest, array_id: str) -> HttpResponse:
    """Have the tasks that are named wait again, or all that have failed where the form says so."""
    array = _operable(request, array_id)
    return _with_tasks(request, array, services.retry, _("The tasks wait to start again."))


@signed_in_act
def hold(request: UserRequest, array_id: str) -> HttpResponse:
    """Start no more tasks."""
    array = _operable(request, array_id)
    return _done(request, array, _("No more tasks are started."), lambda: services.hold(array, actor=request.user))


@signed_in_act
def release(request: UserRequest, array_id: str) -> HttpResponse:
    """Start tasks again."""
    array, text = _operable(request, array_id), _("Its tasks are started again as there is room.")
    return _done(request, array, text, lambda: services.release(array, actor=request.user))


@signed_in_act
def change(request: UserRequest, array_id: str) -> HttpResponse:
    """Change how many tasks run at once; an empty field means any number."""
    array = _operable(request, array_id)
    body = ArrayChangeSerializer(data={"max_parallel": request.POST.get("max_parallel") or None})
    if not body.is_valid():
        return page_of(request, array, _words(body))
    text = _("The change is saved.")
    return _done(request, array, text, lambda: services.change(array, body.validated_data, actor=request.user))


def _operable(request: UserRequest, array_id: str) -> Array:
    found = Array.objects.operable_by(request.user).select_related("owner", "project")
    return get_object_or_404(found, pk=array_id)


def _with_tasks(request: UserRequest, array: Array, act: Callable[..., None], text: str) -> HttpResponse:
    """Do it with the tasks that the form names. An empty field is no request for all: a button of its own asks that."""
    if "all" in request.POST:
        return _done(request, array, text, lambda: act(array, actor=request.user))
    body = TaskIndicesSerializer(data={"tasks": request.POST.get("tasks", "")})
    if not body.is_valid():
        return page_of(request, array, _words(body))
    indices = body.validated_data["tasks"]
    return _done(request, array, text, lambda: act(array, actor=request.user, indices=indices))


def _words(body: Serializer[Any]) -> dict[str, str]:
    return {name: str(problems[0]) for name, problems in body.errors.items()}


def _done(request: UserRequest, array: Array, text: str, act: Callable[[], None]) -> HttpResponse:
    try:
        act()
    except RejectedError as error:
        return page_of(request, array, dict(error.errors))
    messages.success(request, text)
    return redirect("arrays:detail", array.pk)
