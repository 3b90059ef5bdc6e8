"""Authorization in the gateway of a GPU host, whose clients are web processes.

The web process has authorized the request and filtered its headers; the gateway accepts only requests with a gateway
token, which alone names the endpoint, and finds the container in its own routes.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from proxy.authorization.decisions import (
    ANONYMOUS,
    AnyPrincipal,
    Decision,
    Deferred,
    Principal,
    UpstreamFailure,
    to_forward,
)
from proxy.authorization.gateway_tokens import VerifiedTokens
from proxy.authorization.login_flow import AGAIN
from proxy.authorization.missing_apps import UnknownApp, gone
from proxy.authorization.networks import Network, is_inside
from proxy.authorization.request_checks import check_framing, check_host, is_navigation
from proxy.authorization.signing import Keys
from proxy.authorization.unready_apps import unreachable
from proxy.http import responses
from proxy.http.headers import Header, MalformedRequestError, RequestHead, classify, strip_hop_by_hop
from proxy.http.responses import LocalResponse
from proxy.routes import Route, RouteTable

FAILURE: Final = b"X-GP-Failure"  # in a response of the gateway itself: how far the request came
FAILURE_NAME: Final = FAILURE.lower()
_FAILURES: Final = {failure.value: failure for failure in UpstreamFailure}


class GatewayAuthorizer:
    """Decides about the requests of web processes, in place of `BrowserAuthorizer`."""

    def __init__(self, *, table: RouteTable, keys: Keys, subnets: Sequence[Network]) -> None:
        self.table = table
        self._gateway_tokens = VerifiedTokens(keys)
        self._subnets = subnets
        self._principals: dict[str, Principal] = {}

    def authorize(self, request: RequestHead, peer: str, listen_port: int | None = None) -> Decision:
        """Return what to do with a request: 403 without a valid token, 410 if the endpoint is not on this host."""
        try:
            classified = classify(request.headers, is_relayed=True)
            check_host(classified.known)
            check_framing(request, classified.known)
        except MalformedRequestError as error:
            return responses.text(400, f"Bad request: {error}", closes=True)
        known, headers = classified.known, classified.forwarded
        label = self._gateway_tokens.verify(known.get(b"x-gp-gateway", b""))
        if label is None:
            refusal = responses.text(403, "A gateway serves the platform only.", closes=True)
            return _marked(refusal, UpstreamFailure.UNSENT)
        principal = self._principal(label)
        if principal is None:
            launch_url = AGAIN.decode()  # which the web process redirects to the launcher
            if self.table.reader and is_navigation(request, known):
                return UnknownApp(label, request.target, launch_url)
            return _marked(gone(launch_url), UpstreamFailure.UNSENT)
        for name, own in ((b"Host", b"host"), (b"Cookie", b"cookie"), (b"Authorization", b"authorization")):
            if own in known:
                headers.append((name, known[own]))
        if b"x-forwarded-for" in known:
            headers.append((b"X-Forwarded-For", known[b"x-forwarded-for"]))
        return to_forward(request, known, headers, principal, peer)

    async def serve(self, deferred: Deferred) -> LocalResponse:
        """Return the response for an app that this process has no route to; 404 otherwise: it has no reserved paths."""
        if isinstance(deferred, UnknownApp):
            return await deferred.response(self.table)
        return responses.text(404, "A gateway has no such path.")

    def unreachable(self, request: RequestHead, principal: AnyPrincipal, *, is_silent: bool) -> LocalResponse:
        """Return the response where the app cannot be connected to; the web process knows more."""
        is_page = is_navigation(request, classify(request.headers).known)
        refused = unreachable(None, is_owner=False, is_page=is_page)
        return _marked(responses.RESPONSE_TIMEOUT if is_silent else refused, UpstreamFailure.UNSENT)

    def failed(self, failure: UpstreamFailure) -> LocalResponse:
        """Return the response where the app has sent none."""
        return _marked(responses.upstream_failed(is_silent=failure is UpstreamFailure.SILENT), failure)

    def reaches(self, route: Route) -> bool:
        """Return whether the route leads to a container of this host."""
        return not route.gateway and is_inside(route.address, self._subnets)

    def response_headers(self, principal: AnyPrincipal, headers: list[Header]) -> list[Header]:
        """Return a response's headers for the web process, which filters them for the browser; none are a gateway's."""
        return [header for header in strip_hop_by_hop(headers) if header[0].lower() != FAILURE_NAME]

    def _principal(self, label: str) -> Principal | None:
        """Return the principal of all users of an endpoint; None unless its container is on this host."""
        route = self.table.get(label)
        if route is None or not self.reaches(route):
            return None
        known = self._principals.get(label)
        if known is None or known.route is not route:
            self._principals = {
                name: each for name, each in self._principals.items() if self.table.get(name) is each.route
            }
            known = self._principals[label] = Principal(route, *ANONYMOUS, is_reachable=True, headers=[])
        return known


def failure_of(headers: Sequence[Header]) -> UpstreamFailure | None:
    """Return what a gateway says in a response of its own, None for an app's response."""
    return next((_FAILURES.get(value) for name, value in headers if name == FAILURE), None)


def _marked(response: LocalResponse, failure: UpstreamFailure) -> LocalResponse:
    return replace(response, headers=(*response.headers, (FAILURE, failure.value)))
