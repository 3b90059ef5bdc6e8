"""Where an app shows the file or directory that a session was launched for: the addresses of its own pages."""

import json
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, urlencode

from folders.names import HOME
from imports import services
from imports.models import Import, ImportState, ImportTarget
from sessions.access import app_addresses
from sessions.models import Endpoint, Session


def import_of(session: Session) -> Import | None:
    """Return the import with which the session was launched; None without."""
    return Import.objects.filter(session=session, target=ImportTarget.SESSION).order_by("created_at").first()


def context_of(session: Session) -> dict[str, Any]:
    """Return what the launcher says of the session's import: it, and once it is done the app that opens its file."""
    launched = import_of(session)
    if launched is None or launched.state != ImportState.DONE:
        return {"imported": launched}
    options = services.launch_options(launched)
    found = {app.name: app for app in session.image.apps.all() if app.name in _PAGES}
    app = found.get(options.app) or next(iter(found.values()), None)
    return {"imported": launched, "opens": app, "file": options.file}


def address(endpoint: Endpoint) -> str:
    """Return the URL at which the app shows what its session was launched for; "" without."""
    launched, origin = import_of(endpoint.session), app_addresses.origin(endpoint)
    if not (origin and launched and launched.state == ImportState.DONE and endpoint.app in _PAGES):
        return ""
    return origin + path_of(endpoint.app, origin, launched.tree, services.launch_options(launched).file)


def path_of(app: str, origin: str, tree: str, file: str) -> str:
    """Return the path of the app's page of a file, or of the tree it is in; "/" for other apps. Pure."""
    show = _PAGES.get(app)
    return show(origin, tree, file) if show else "/"


def _jupyterlab(origin: str, tree: str, file: str) -> str:
    return f"/lab/tree/{_below_home(tree, file)}"


def _notebook(origin: str, tree: str, file: str) -> str:
    """Return the path in Jupyter Notebook 7, where notebooks have an address of their own."""
    return f"/notebooks/{_below_home(tree, file)}" if file.endswith(".ipynb") else f"/tree/{_below_home(tree, '')}"


def _vscode(origin: str, tree: str, file: str) -> str:
    """Return the path in code-server; `payload` is that of VS Code's workbench in browsers."""
    query = {"folder": tree}
    if file:
        uri = f"vscode-remote://{origin.partition('://')[2]}{quote(f'{tree}/{file}')}"
        query["payload"] = json.dumps([["openFile", uri]])
    return f"/?{urlencode(query)}"


def _below_home(tree: str, file: str) -> str:
    """Return the path from the home folder, which Jupyter serves; that of the home folder for what is elsewhere."""
    path = f"{tree}/{file}" if file else tree
    return quote(path.removeprefix(f"{HOME}/")) if path.startswith(f"{HOME}/") else ""


_PAGES: Final[dict[str, Callable[[str, str, str], str]]] = {
    "jupyterlab": _jupyterlab,
    "jupyter": _notebook,
    "vscode": _vscode,
}
