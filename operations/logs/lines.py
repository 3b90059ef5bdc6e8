"""Log lines as JSON, one object a line, with the request, task, user and session that they are about."""

import json
import logging
import socket
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

SESSION_MESSAGE: Final = "session %s: "  # how messages about a session begin; its id is their first argument
HOST_NAME: Final = socket.gethostname()


@dataclass(slots=True)
class LogContext:
    """What the present request, websocket or task is; each learns of user and session later than it begins."""

    fields: dict[str, str | int] = field(default_factory=dict)  # request_id, task, task_id, user_id, session_id
    request: HttpRequest | None = None

    def values(self) -> dict[str, str | int]:
        """Return what is known now; reads nothing from the database."""
        found: dict[str, str | int | None] = {}
        if self.request is not None:
            found = {"user_id": user_of(self.request), "session_id": _session_of(self.request)}
        return {**self.fields, **{name: value for name, value in found.items() if value is not None}}


_context: ContextVar[LogContext | None] = ContextVar("gpuplatform_log", default=None)


def begin(**fields: str | int) -> LogContext:
    """Begin a context for what this task of the event loop, or this thread, does from now on."""
    context = LogContext(dict(fields))
    _context.set(context)
    return context


def end() -> None:
    """End the present context."""
    _context.set(None)


def current() -> LogContext | None:
    """Return the present context, if any."""
    return _context.get()


def user_of(request: HttpRequest) -> int | None:
    """Return the id of the request's user if that was looked up already; a log line must not cause a query."""
    values = request.__dict__
    user = values.get("user")  # that of a token replaces the login's
    if isinstance(user, SimpleLazyObject):
        user = values.get("_cached_user") or values.get("_acached_user")
    return getattr(user, "pk", None)


def _session_of(request: HttpRequest) -> str | None:
    """Return the id of the session that the request's address names."""
    if (match := request.resolver_match) is None:
        return None
    is_of_session = match.view_name.startswith("session-")  # in the API
    return match.kwargs.get("session_id") or (match.kwargs.get("pk") if is_of_session else None)


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object; keys of `extra={"fields": {...}}` are members of it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        known = {**context_fields(record), **getattr(record, "fields", {})}
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "host": HOST_NAME,
            "pid": record.process,
            **known,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def context_fields(record: logging.LogRecord) -> Mapping[str, str | int]:
    """Return what a record is about: that of its context, and the session that its message names."""
    context = current()
    fields = context.values() if context else {}
    if isinstance(session_id := getattr(record, "session_id", None), str):
        fields["session_id"] = session_id
    return fields


class NoteSession(logging.Filter):
    """Logging filter that notes the session which a message names, before other filters write it anew."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Set `session_id` of the record; drop no record."""
        arguments = record.args
        if str(record.msg).startswith(SESSION_MESSAGE) and isinstance(arguments, tuple) and arguments:
            record.session_id = str(arguments[0])
        return True
