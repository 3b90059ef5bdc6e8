"""The apps of the catalogue: `[app.<name>]` tables, and which of them an image lists."""

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from resources.images.catalogue.tables import refuse_rest, take
from resources.models import APP_PATH, DECLARED_NAME, VARIABLE_NAME

_PORTS: Final = range(1024, 65536)
_ICON: Final = re.compile(r"[a-z-]{1,32}|")
_OF_THE_SERVER: Final = ("port", "command", "readiness_path", "token_variable", "warm_up")
_LONGEST: Final = {"title": 64, "readiness_path": 200, "start_path": 200, "token_variable": 64, "hint": 100}


@dataclass(frozen=True, slots=True, kw_only=True)
class AppEntry:
    """A service that sessions offer; the fields are those of the table of apps."""

    name: str
    title: str
    icon: str
    port: int
    command: str
    readiness_path: str
    start_path: str
    token_variable: str
    hint: str = ""  # what users read below the title
    warm_up: bool = False  # its program starts with the session


def load_apps(path: Path) -> dict[str, AppEntry]:
    """Return the valid apps of a catalogue file, by name. Raise OSError and ValueError where it cannot be read."""
    apps, _ = parse_apps(tomllib.loads(path.read_text(encoding="utf-8")).get("app", {}))
    return apps


def parse_apps(tables: object) -> tuple[dict[str, AppEntry], list[str]]:
    """Return the apps by name, and what is wrong with the others, one sentence each."""
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        return {}, ["app: write one table an app, such as [app.jupyter]"]
    apps: dict[str, AppEntry] = {}
    problems: list[str] = []
    for name, table in tables.items():
        try:
            apps[name] = _app(name, _with_server(dict(table), tables))
        except ValueError as error:
            problems.append(f"app {name}: {error}")
    return apps, problems


def listed_apps(names: list[object], apps: Mapping[str, AppEntry]) -> tuple[AppEntry, ...]:
    """Return the apps that an image names, in its order. Raise ValueError for one that has no table, or occurs twice.

    Two apps on one port are pages of one server, so they must be started alike.
    """
    for name, count in Counter(map(str, names)).items():
        if name not in apps:
            raise ValueError(f"app {name!r} has no table [app.{name}]")
        if count > 1:
            raise ValueError(f"app {name!r} is listed {count} times")
    listed = tuple(apps[str(name)] for name in names)
    by_port: dict[int, AppEntry] = {}
    for app in listed:
        other = by_port.setdefault(app.port, app)
        if (app.command, app.token_variable) != (other.command, other.token_variable):
            raise ValueError(f"apps {other.name} and {app.name} share port {app.port} but are started differently")
    return listed


def _with_server(table: dict[str, object], tables: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """Return the table of an app, with what it takes from the app that it names as its `server`."""
    server = take(table, "server", str, "")
    if not server:
        return table
    if server not in tables or "server" in tables[server]:
        raise ValueError(f"server {server!r} is no app that says how it is started")
    return {key: tables[server][key] for key in _OF_THE_SERVER if key in tables[server]} | table


def _app(name: str, table: dict[str, object]) -> AppEntry:
    app = AppEntry(
        name=name,
        title=take(table, "title", str),
        icon=take(table, "icon", str, ""),
        port=take(table, "port", int),
        command=take(table, "command", str, "").strip(),
        readiness_path=take(table, "readiness_path", str, "/"),
        start_path=take(table, "start_path", str, "/"),
        token_variable=take(table, "token_variable", str, ""),
        hint=take(table, "hint", str, ""),
        warm_up=take(table, "warm_up", bool, False),
    )
    refuse_rest(table)
    if problem := _problem(app):
        raise ValueError(problem)
    return app


def _problem(app: AppEntry) -> str:
    """Return the first thing that is wrong with the values; "" where they are well."""
    if not re.fullmatch(DECLARED_NAME, app.name):
        return "its name must have 1 to 20 small letters and digits, and not be p and a number"
    if not app.title:
        return "title is empty"
    if app.port not in _PORTS:
        return f"port must be between {_PORTS.start} and {_PORTS.stop - 1}"
    if not _ICON.fullmatch(app.icon):
        return f"icon {app.icon!r} is no name of a drawing in static/img/icons.svg"
    if not all(re.fullmatch(APP_PATH, path) for path in (app.readiness_path, app.start_path)):
        return "readiness_path and start_path must begin with one slash and have no blanks"
    if app.token_variable and not re.fullmatch(VARIABLE_NAME, app.token_variable):
        return f"token_variable {app.token_variable!r} is no name of an environment variable"
    long = [key for key, most in _LONGEST.items() if len(getattr(app, key)) > most]
    return f"{long[0]} has more than {_LONGEST[long[0]]} characters" if long else ""
