"""What requests for services are answered here.

429 where the client should send less, 503 where waiting helps; 502 and 504 where a replica breaks HTTP or stays silent
(RFC 9110, 15.6.3 and 15.6.5).
"""

import json
from enum import Enum
from http import HTTPStatus
from typing import Final

from proxy.authorization.decisions import ServicePrincipal
from proxy.authorization.request_checks import is_navigation
from proxy.authorization.unready_apps import without_replica
from proxy.http import responses
from proxy.http.headers import RequestHead, classify
from proxy.http.responses import LocalResponse

RETRY_SECONDS: Final = 2
OPENAI_PATH: Final = b"/v1/"  # clients of this API look for `error`


class Refusal(Enum):
    """Why a request reaches no replica, or gets no response of it: status, title, detail."""

    NO_REPLICA = (503, "No replica takes requests", "")  # `without_replica` says more
    BUSY = (429, "All replicas are busy", "As many requests wait as may. Send it again later, or send fewer at once.")
    WAITED = (503, "All replicas are busy", "The request has waited for as long as one may.")
    RATE = (429, "Too many requests with this token", "It may send so many a minute, and has done so.")
    BUDGET = (429, "The budget of this token is spent", "It begins anew with the next month.")
    UNREACHABLE = (503, "The replica could not be reached", "The request was not sent to it. Send it again.")
    ENDED = (
        503,
        "The replica has ended",
        "It hung up before it answered, and may have begun. Send it again if that does no harm.",
    )
    MALFORMED = (
        502,
        "The replica did not answer properly",
        "It sent what is no HTTP, and may have begun. See its log, and whether the deployment has the right port.",
    )
    SILENT = (504, "The replica does not answer", "It has sent nothing for as long as it may take, and may have begun.")


OPENAI_TYPES: Final = {
    Refusal.BUSY: "rate_limit_exceeded",
    Refusal.RATE: "rate_limit_exceeded",
    Refusal.BUDGET: "insufficient_quota",
}


def refusal(
    why: Refusal, request: RequestHead, principal: ServicePrincipal, retry_seconds: int = RETRY_SECONDS
) -> LocalResponse:
    """Return the response that says so, as problem details; browsers get a page where no replica takes requests."""
    if why is Refusal.NO_REPLICA:
        is_page = is_navigation(request, classify(request.headers).known)
        return without_replica(principal.route, is_owner=principal.is_owner, is_page=is_page, closes=False)
    status, title, detail = why.value
    shown: dict[str, object] = {"status": HTTPStatus(status).value, "title": title, "detail": detail}
    if request.target.startswith(OPENAI_PATH):
        kind = OPENAI_TYPES.get(why, "server_error")
        shown["error"] = {"message": f"{title}. {detail}", "type": kind, "code": kind, "param": None}
    is_worth_a_retry = status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
    extra = ((b"Retry-After", b"%d" % retry_seconds),) if is_worth_a_retry else ()
    return responses.problem(status, json.dumps(shown), *extra, closes=False)
