"""Responses for an app that has a route and cannot be used: it starts, listens on loopback alone, or has ended.

While it starts, browsers get 202 with a page that asks `/.gp/status` until the app answers, and programs 503 with
Retry-After; all else is 502 (RFC 9110, 15.3.3, 15.6.4 and 15.6.3). Programs get problem details (RFC 9457).
"""

import json
from http import HTTPStatus
from typing import Any, Final

from proxy.http import responses
from proxy.http.responses import LocalResponse, PageContent
from proxy.routes import AppCondition, Route, RouteTable, Service

AGAIN: Final = "/.gp/again"  # redirects to the page where its owner starts it again
RETRY_SECONDS: Final = 3
RETRY_AFTER: Final = (b"Retry-After", b"%d" % RETRY_SECONDS)
STARTING: Final = "starting"
READY: Final = "ready"
UNREACHABLE: Final = "unreachable"  # its port refuses connections, and the host has not said yet why
TITLES: Final = {
    STARTING: "Waiting for {}",
    "loopback": "{} listens on 127.0.0.1 only",
    "exited": "{} has ended",
    "failed": "{} did not start",
    UNREACHABLE: "{} is not running",
}
TEXTS: Final = {  # where the host has said nothing, and for others than the owner
    STARTING: "It does not answer yet.",
    "loopback": "Nothing outside of its session reaches it there.",
    "exited": "Its program in the session has come to an end.",
    "failed": "Its owner can open it again.",
    UNREACHABLE: "Nothing listens on its port in the session.",
}
WAITING: Final = "This page goes on to it by itself."


def explanation(condition: AppCondition, *, is_owner: bool) -> dict[str, Any]:
    """Return what a page or a program is shown of the app; what the app wrote is for its owner alone."""
    title = TITLES.get(condition.state, "{}").format(condition.title or "The app")
    shown = {"state": condition.state, "title": title, "detail": TEXTS.get(condition.state, "")}
    if is_owner:
        shown |= {"detail": condition.detail or shown["detail"], "output": condition.output}
    return shown


def unready(condition: AppCondition, *, is_owner: bool, is_page: bool, closes: bool) -> LocalResponse:
    """Return the response for an app in this condition; `is_page`: a browser is to show it."""
    shown = explanation(condition, is_owner=is_owner)
    is_waiting = condition.state == STARTING
    extra = (RETRY_AFTER,) if is_waiting else ()
    if not is_page:
        status = HTTPStatus.SERVICE_UNAVAILABLE if is_waiting else HTTPStatus.BAD_GATEWAY
        return responses.problem(status, json.dumps({"status": status.value, **shown}), *extra, closes=closes)
    content = PageContent(
        title=shown["title"],
        text=f"{shown['detail']} {WAITING}" if is_waiting else shown["detail"],
        link=(AGAIN, "Show it in its session"),
        state=condition.state,
        output=shown.get("output", ""),
    )
    return responses.page(HTTPStatus.ACCEPTED if is_waiting else HTTPStatus.BAD_GATEWAY, content, *extra, closes=closes)


def unreachable(route: Route | None, *, is_owner: bool, is_page: bool) -> LocalResponse:
    """Return the response where the port of a READY app refuses connections; its route may say why."""
    condition = route.condition if route else AppCondition()
    if condition.state == READY:
        condition = AppCondition(UNREACHABLE, condition.title)
    return unready(condition, is_owner=is_owner, is_page=is_page, closes=True)


def condition_of(service: Service, table: RouteTable) -> AppCondition:
    """Return the condition of a service: READY while a replica takes requests."""
    if table.replicas_of(service):
        return AppCondition(READY, service.condition.title)
    if service.condition.state == READY:  # it says nothing yet
        return AppCondition(STARTING, service.condition.title)
    return service.condition


def without_replica(service: Service, *, is_owner: bool, is_page: bool, closes: bool) -> LocalResponse:
    """Return the response of a service of which no replica takes requests now: 503, or a page that waits for one."""
    condition = service.condition if service.condition.state != READY else AppCondition(STARTING)
    shown = explanation(condition, is_owner=is_owner)
    if not is_page:
        status = HTTPStatus.SERVICE_UNAVAILABLE
        return responses.problem(status, json.dumps({"status": status.value, **shown}), RETRY_AFTER, closes=closes)
    is_waiting = condition.state == STARTING
    content = PageContent(
        title=shown["title"],
        text=f"{shown['detail']} {WAITING}" if is_waiting else shown["detail"],
        link=(AGAIN, "Show its deployment"),
        state=condition.state,
        output=shown.get("output", ""),
    )
    status = HTTPStatus.ACCEPTED if is_waiting else HTTPStatus.SERVICE_UNAVAILABLE
    return responses.page(status, content, RETRY_AFTER, closes=closes)
