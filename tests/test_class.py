"""A class of 30 comes within 20 s, signs in, launches and opens JupyterLab, and nobody sees an error."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any, Final

import httpx
import pytest

from tests.platform import ROOT, Platform
from tests.wait import SECONDS

pytestmark = [pytest.mark.docker, pytest.mark.long(minutes=3)]

STUDENTS: Final = 30
PASSWORD: Final = "a-class-of-thirty"
SET_UP: Final = f"""
from django.contrib.auth.hashers import make_password
from accounts.models import ResourcePolicy, User
from resources.models import ResourceGroup
ResourceGroup.objects.update(cpu_overcommit=32)
policy, _ = ResourcePolicy.objects.get_or_create(name="class")
password = make_password({PASSWORD!r})
for number in range({STUDENTS}):
    email = f"student{{number}}@example.org"
    User.objects.get_or_create(email=email, defaults={{"policy": policy, "password": password}})
"""
AMOUNTS: Final = {"preset": "", "cpu": "1", "memory": "512 MiB", "shared_memory": "64 MiB", "fgpu": "0", "count": "1"}
ARRIVE_SECONDS: Final = 20.0  # in which all of them come, one after the other
TYPE_SECONDS: Final = 1.5  # for each form
LOOK_EVERY_SECONDS: Final = 3.0  # where a page would be told
PATIENCE_SECONDS: Final = 300.0  # 30 JupyterLabs take some 4 s of a core each to start
WAITING: Final = frozenset({202, 503})  # an app that starts: the page says so, and looks again by itself


class LoopbackTransport(httpx.HTTPTransport):
    """Asks 127.0.0.1 whatever the name, as browsers do for those below `localhost`."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request with its own Host."""
        url = request.url.copy_with(host="127.0.0.1")
        return super().handle_request(
            httpx.Request(request.method, url, headers=request.headers, stream=request.stream)
        )


class Student:
    """What a browser does for one of them; every answer that is no page for people is noted."""

    def __init__(self, platform: Platform, number: int) -> None:
        unshared = httpx.Limits(max_keepalive_connections=0)  # a connection is the platform's or that of one app
        transport = LoopbackTransport(limits=unshared)
        self._client = httpx.Client(
            base_url=platform.url,
            headers={"Accept": "text/html"},
            transport=transport,
            timeout=SECONDS,
            follow_redirects=True,
        )
        self._name = f"student{number}"
        self._comes_after = number * ARRIVE_SECONDS / STUDENTS
        self.errors: list[str] = []

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def get(self, path: str, also: frozenset[int] = frozenset()) -> httpx.Response:
        """Return the answer to a GET, which is to be 200, or `also`."""
        return self._noted(self._client.get(path), also)

    def post(self, path: str, form: dict[str, Any]) -> httpx.Response:
        """Return the answer to a form of the page, which is to be 200 after a redirect."""
        pause(TYPE_SECONDS)
        headers = {"Referer": str(self._client.base_url.join(path))}
        data = {"csrfmiddlewaretoken": self._client.cookies["gp_csrf"]} | form
        return self._noted(self._client.post(path, data=data, headers=headers), frozenset())

    def _noted(self, response: httpx.Response, also: frozenset[int]) -> httpx.Response:
        if response.status_code not in also | {200}:
            self.errors.append(f"{response.status_code} {response.request.method} {response.url}")
        return response

    def attend(self) -> None:
        """Sign in, launch, wait for the session, open JupyterLab, and wait until it is there."""
        pause(self._comes_after)
        self.get("/accounts/sign-in/")
        self.post("/accounts/sign-in/", {"login": f"{self._name}@example.org", "password": PASSWORD})
        page = self.get("/sessions/launch/").text
        group = re.search(r'name="resource_group"[^>]* value="(\d+)"', page)
        image = re.search(r'name="version"[^>]*>\s*<option value="(\d+)"', page)
        assert group
        assert image
        self.post("/sessions/launch/", AMOUNTS | {"name": self._name, "resource_group": group[1], "image": image[1]})
        session = re.search(r'id="session-([a-z0-9]{16})"', self.get("/sessions/").text)
        assert session
        path = f"/sessions/{session[1]}/"
        until_seen(lambda: "status-running" in self.get(path).text)
        self.post(f"{path}apps/jupyterlab/", {})
        until_seen(lambda: "jupyter-config-data" in self.get(f"{path}apps/jupyterlab/", WAITING).text)


def pause(seconds: float) -> None:
    """Do nothing for a while, as people do."""
    threading.Event().wait(seconds)


def until_seen(is_there: Callable[[], bool]) -> None:
    """Look now and then until it is there."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_there():
        assert time.monotonic() < deadline
        pause(LOOK_EVERY_SECONDS)


def test_a_class_of_thirty_sees_no_error(platform: Platform) -> None:
    command = [sys.executable, "manage.py", "shell", "-c", SET_UP]
    subprocess.run(command, cwd=ROOT, env=platform.environment, check=True, capture_output=True)
    with ExitStack() as stack:
        students = [stack.enter_context(closing(Student(platform, number))) for number in range(STUDENTS)]
        pool = stack.enter_context(ThreadPoolExecutor(STUDENTS))
        for each in [pool.submit(student.attend) for student in students]:
            each.result()
    assert [error for student in students for error in student.errors] == []
