"""The other end of a web process's connection: on a GPU host, in front of its containers.

The web process has admitted the request and cleaned its head; a gateway takes nothing but that process's signed word,
reads the endpoint from it alone, and finds the container in its own routes.
"""

from collections.abc import Sequence

from proxy import answers, heads
from proxy.admission import (
    ANONYMOUS,
    Judgement,
    Network,
    Visitor,
    check_framing,
    check_host,
    framed,
    gone,
    is_inside,
)
from proxy.answers import Answer
from proxy.handoff import AGAIN, Reserved
from proxy.heads import Malformed, Pair, Request
from proxy.passes import Passes
from proxy.routes import RouteTable
from proxy.signing import Keys


class GatewayAdmission:
    """Judges the requests of web processes; stands in for `Admission` in a data plane."""

    def __init__(self, *, table: RouteTable, keys: Keys, subnets: Sequence[Network]) -> None:
        self.table = table
        self._passes = Passes(keys)
        self._subnets = subnets
        self._visitors: dict[str, Visitor] = {}

    def judge(self, request: Request, peer: str, listen_port: int | None = None) -> Judgement:
        """Return what to do with a request; 403 without a valid pass, 410 if the endpoint is not on this host."""
        try:
            sorted_ = heads.sort(request.headers, is_relayed=True)
            check_host(sorted_.noted)
            check_framing(request, sorted_.noted)
        except Malformed as error:
            return answers.text(400, f"Bad request: {error}", closes=True)
        noted, headers = sorted_.noted, sorted_.kept
        label = self._passes.label(noted.get(b"x-gp-gateway", b""))
        if label is None:
            return answers.text(403, "A gateway serves the platform only.", closes=True)
        visitor = self._visitor(label)
        if visitor is None:
            return gone(AGAIN.decode())  # which the web process takes to the launcher
        for name, own in ((b"Host", b"host"), (b"Cookie", b"cookie"), (b"Authorization", b"authorization")):
            if own in noted:
                headers.append((name, noted[own]))
        if b"x-forwarded-for" in noted:
            headers.append((b"X-Forwarded-For", noted[b"x-forwarded-for"]))
        return framed(request, noted, headers, visitor, peer)

    async def serve(self, reserved: Reserved) -> Answer:
        """Answer for the data plane's sake; a gateway has no paths of its own."""
        return answers.text(404, "A gateway has no such path.")

    def answer_headers(self, visitor: Visitor, headers: list[Pair]) -> list[Pair]:
        """Return an answer's headers for the web process, which decides what of them the browser gets."""
        return heads.hop_headers(headers)

    def _visitor(self, label: str) -> Visitor | None:
        """Return what stands for all users of an endpoint; None if there is none with a container on this host."""
        route = self.table.get(label)
        if route is None or route.gateway or not is_inside(route.address, self._subnets):
            return None
        known = self._visitors.get(label)
        if known is None or known.route is not route:
            self._visitors = {name: each for name, each in self._visitors.items() if self.table.get(name) is each.route}
            known = self._visitors[label] = Visitor(route, *ANONYMOUS, is_reachable=True, headers=[])
        return known
