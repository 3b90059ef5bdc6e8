"""Which pages may open the platform's websockets."""

from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from pytest_django import Settings

from gpuplatform.asgi import platform_with
from proxy.counters import LocalCounters
from tests.wait import SECONDS

pytestmark = pytest.mark.django_db(transaction=True)

HOST = "gpu.example.org:8000"
OWN = f"http://{HOST}"


async def is_let_in(origin: str | None, host: str = HOST) -> bool:
    """Return whether a page of this origin passes the origin check."""
    headers = [(b"host", host.encode())]
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    connect: Any = ApplicationCommunicator  # asgiref types none of it
    wire = connect(
        platform_with(LocalCounters()),
        {"type": "websocket", "path": "/ws/sessions/", "headers": headers, "query_string": b""},
    )
    await wire.send_input({"type": "websocket.connect"})
    answer = await wire.receive_output(timeout=SECONDS)
    await wire.send_input({"type": "websocket.disconnect", "code": 1000})
    return bool(answer["type"] == "websocket.accept")


@pytest.fixture(autouse=True)
def _wide(settings: Settings) -> None:
    """Hosts as a careless administrator allows them."""
    settings.ALLOWED_HOSTS = [".example.org"]


async def test_the_platforms_own_pages_may_open_websockets() -> None:
    assert await is_let_in(OWN)


@pytest.mark.parametrize(
    "origin",
    [
        "http://jupyter--s1.apps.gpu.example.org:8000",  # an app, below a domain that is allowed
        "http://gpu.example.org:10205",  # the same host, which has the same cookies, at another program's port
        "http://gpu.example.org",
        "http://evil.example",
        "null",
        "",
        None,
    ],
)
async def test_pages_of_other_origins_may_not(origin: str | None) -> None:
    assert not await is_let_in(origin)


async def test_a_rebound_host_name_is_refused() -> None:
    assert not await is_let_in("http://evil.example", "evil.example")


async def test_csrf_trusted_origins_are_accepted(settings: Settings) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://gpu.example.org"]
    assert await is_let_in("https://gpu.example.org", "internal.example.org:8000")
