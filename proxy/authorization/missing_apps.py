"""Requests for apps that the process has no route to: there is none, or its route is still on its way here."""

from dataclasses import dataclass

from proxy.authorization.login_flow import NEXT
from proxy.http import responses
from proxy.http.responses import LocalResponse, PageContent
from proxy.routes import RouteTable


@dataclass(slots=True, eq=False)
class UnknownApp:
    """A browser's request for a page of an app that may have become READY a moment ago."""

    label: str
    target: bytes
    launch_url: str  # the page where its owner starts it again

    async def response(self, table: RouteTable) -> LocalResponse:
        """Read the routes of its session again; redirect to the same target if there is one now, else return 410."""
        await table.refresh(self.label)
        if table.find(self.label) is None:
            return gone(self.launch_url)
        target = self.target.decode("latin-1")
        return responses.redirect(target if NEXT.fullmatch(target) else "/")


def no_such_app(*, is_app_host: bool, launch_url: str = "") -> LocalResponse:
    """Return the response for a host without an app: 421 if it is not an apps' host at all.

    `launch_url` is the page where its owner starts it again; whether there was such an app is not disclosed.
    """
    if not is_app_host:
        return responses.text(421, "This address serves the apps of sessions only.", closes=True)
    if not launch_url:
        return responses.page(404, PageContent(title="No such app", text="This is no address of an app."), closes=True)
    return gone(launch_url)


def gone(launch_url: str) -> LocalResponse:
    """Return 410 for an app that is not there, with a link to the page where its owner starts it again.

    JupyterLab would take 404 for a missing folder, and ask for it hundreds of times a second.
    """
    content = PageContent(
        title="This app is gone",
        text="It was closed, or its session has ended.",
        link=(launch_url, "Look in its session"),
    )
    return responses.page(410, content, closes=True)
