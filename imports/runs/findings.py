"""What the program prints, read with the suspicion that belongs to what a user's container says. Pure."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MAX_TEXT: Final = 500
MAX_ITEMS: Final = 60
MAX_NUMBER: Final = 2**60
MAX_KNOWN_HOSTS: Final = 4000


@dataclass(frozen=True, slots=True)
class Message:
    """A line of the program: how far it is, or what came of it."""

    progress: str = ""
    fetched_bytes: int = 0
    problem: str = ""
    found: Mapping[str, Any] = field(default_factory=dict)
    known_hosts: str = ""
    is_last: bool = False


def last_message(output: str) -> Message:
    """Return the last line that is a message; an empty one where there is none."""
    for line in reversed(output.splitlines()):
        if line.startswith("{") and (message := _message(line)):
            return message
    return Message()


def _message(line: str) -> Message | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match value:
        case {"found": dict(found)}:
            return Message(found=_checked(found), known_hosts=_hosts(value.get("known_hosts")), is_last=True)
        case {"problem": str(problem)}:
            return Message(problem=_text(problem) or "It failed.", is_last=True)
        case {"progress": str(progress), "bytes": int(fetched)}:
            return Message(progress=_text(progress)[:200], fetched_bytes=max(0, min(fetched, MAX_NUMBER)))
    return None


def _checked(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was found with the types and sizes that it is to have; what has others is left out."""
    checks = {
        "files": _number,
        "bytes": _number,
        "more_notebooks": _number,
        "submodules": _number,
        "branch": _text,
        "commit": _text,
        "path": _text,
        "base": _text,
        "present": _texts,
        "notebooks": _texts,
        "notes": _texts,
        "frameworks": _versions,
        "devcontainer": _devcontainer,
    }
    return {name: check(found[name]) for name, check in checks.items() if name in found}


def _text(value: Any) -> str:
    return "".join(filter(str.isprintable, value))[:MAX_TEXT] if isinstance(value, str) else ""


def _number(value: Any) -> int | None:
    return max(0, min(value, MAX_NUMBER)) if isinstance(value, int) and not isinstance(value, bool) else None


def _texts(value: Any) -> list[str]:
    return [text for each in value[:MAX_ITEMS] if (text := _text(each))] if isinstance(value, list) else []


def _versions(value: Any) -> dict[str, str]:
    """Return texts by their names."""
    if not isinstance(value, dict):
        return {}
    return {_text(key): _text(each) for key, each in list(value.items())[:MAX_ITEMS]}


def _gpu(value: Any) -> bool | str:
    return value if value in (True, "optional") else False


def _devcontainer(value: Any) -> dict[str, Any]:
    """Return what a devcontainer.json asks for."""
    checks: Mapping[str, Callable[[Any], Any]] = {"image": _text, "cpus": _number, "memory": _number, "gpu": _gpu}
    given = value if isinstance(value, dict) else {}
    return {name: found for name, check in checks.items() if (found := check(given.get(name)))}


def _hosts(value: Any) -> str:
    is_good = isinstance(value, str) and len(value) <= MAX_KNOWN_HOSTS and value.replace("\n", "").isprintable()
    return value if is_good else ""
