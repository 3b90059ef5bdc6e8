"""The other end of a web process's connection: on a GPU host, in front of its containers.

The web process has admitted the request and cleaned its head; a gateway takes nothing but that process's signed word,
reads the endpoint from it alone, and finds the container in its own routes.
"""

from collections.abc import Sequence

from proxy import responses
from proxy.authorization import (
    ANONYMOUS,
    Decision,
    Network,
    Principal,
    check_framing,
    check_host,
    framed,
    gone,
    is_inside,
)
from proxy.gateway_tokens import GatewayTokens
from proxy.headers import Header, MalformedRequestError, RequestHead, classify, strip_hop_by_hop
from proxy.login_flow import AGAIN, ReservedRequest
from proxy.responses import LocalResponse
from proxy.routes import RouteTable
from proxy.signing import Keys


class GatewayAuthorizer:
    """Judges the requests of web processes; stands in for `Admission` in a data plane."""

    def __init__(self, *, table: RouteTable, keys: Keys, subnets: Sequence[Network]) -> None:
        self.table = table
        self._gateway_tokens = GatewayTokens(keys)
        self._subnets = subnets
        self._principals: dict[str, Principal] = {}

    def authorize(self, request: RequestHead, peer: str, listen_port: int | None = None) -> Decision:
        """Return what to do with a request; 403 without a valid pass, 410 if the endpoint is not on this host."""
        try:
            classified = classify(request.headers, is_relayed=True)
            check_host(classified.noted)
            check_framing(request, classified.noted)
        except MalformedRequestError as error:
            return responses.text(400, f"Bad request: {error}", closes=True)
        noted, headers = classified.noted, classified.kept
        label = self._gateway_tokens.label(noted.get(b"x-gp-gateway", b""))
        if label is None:
            return responses.text(403, "A gateway serves the platform only.", closes=True)
        principal = self._principal(label)
        if principal is None:
            return gone(AGAIN.decode())  # which the web process takes to the launcher
        for name, own in ((b"Host", b"host"), (b"Cookie", b"cookie"), (b"Authorization", b"authorization")):
            if own in noted:
                headers.append((name, noted[own]))
        if b"x-forwarded-for" in noted:
            headers.append((b"X-Forwarded-For", noted[b"x-forwarded-for"]))
        return framed(request, noted, headers, principal, peer)

    async def serve(self, reserved: ReservedRequest) -> LocalResponse:
        """Answer for the data plane's sake; a gateway has no paths of its own."""
        return responses.text(404, "A gateway has no such path.")

    def response_headers(self, principal: Principal, headers: list[Header]) -> list[Header]:
        """Return an answer's headers for the web process, which decides what of them the browser gets."""
        return strip_hop_by_hop(headers)

    def _principal(self, label: str) -> Principal | None:
        """Return what stands for all users of an endpoint; None if there is none with a container on this host."""
        route = self.table.get(label)
        if route is None or route.gateway or not is_inside(route.address, self._subnets):
            return None
        known = self._principals.get(label)
        if known is None or known.route is not route:
            self._principals = {
                name: each for name, each in self._principals.items() if self.table.get(name) is each.route
            }
            known = self._principals[label] = Principal(route, *ANONYMOUS, is_reachable=True, headers=[])
        return known
