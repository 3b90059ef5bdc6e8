"""A request takes one thread, in which all middleware and the view run."""

import asyncio
import threading
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import path

from gpuplatform.serving.django_handler import OneThreadHandler

names: list[str] = []


class NotesThread:
    """Middleware that is able of both calls and coroutines, as Django's own is."""

    sync_capable = async_capable = True

    def __init__(self, get_response: Any) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        names.append(threading.current_thread().name)
        return self._get_response(request)


def plain(_request: HttpRequest) -> HttpResponse:
    names.append(threading.current_thread().name)
    return HttpResponse(b"plain")


async def coroutine(_request: HttpRequest) -> HttpResponse:
    names.append(threading.current_thread().name)
    return HttpResponse(b"coroutine")


urlpatterns = [path("plain", plain), path("coroutine", coroutine)]


@pytest.mark.parametrize("name", ["plain", "coroutine"])
async def test_middleware_runs_in_the_thread_of_the_view(name: str) -> None:
    names.clear()
    with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=[f"{__name__}.NotesThread"] * 2):
        handler = OneThreadHandler()
        sent: list[Any] = []

        incoming = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> Any:
            return next(incoming, None) or await asyncio.Event().wait()  # the client stays

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": f"/{name}", "headers": [], "query_string": b""}
        await handler(scope, receive, send)
    assert b"".join(message.get("body", b"") for message in sent) == name.encode()
    assert len(set(names[:2])) == 1
    assert threading.main_thread().name not in names[:2]
    assert (names[2] == threading.main_thread().name) is (name == "coroutine")
