"""Helpers of the black-box cases, which run on the way to an app and on the way through a gateway."""

import json
from typing import Any

from proxy.tests.site import cookie
from proxy.tests.wire import Reply


def log_in(**changes: object) -> dict[str, str]:
    """Return the headers of a logged-in user."""
    return {"Cookie": cookie(**changes)}


def seen(reply: Reply) -> dict[str, Any]:
    """Return what the app saw of an echoed request."""
    assert reply.status == 200, reply
    return dict(json.loads(reply.body))


def seen_headers(reply: Reply) -> list[tuple[str, str]]:
    """Return the headers that the app saw."""
    return [(name.lower(), value) for name, value in seen(reply)["headers"]]
