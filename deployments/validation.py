"""Rules of what users enter for deployments, revisions and tokens: what is out of range, by field. Pure."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

MAX_REPLICAS: Final = 64
MAX_CANARY_STEPS: Final = 10
STRATEGIES: Final = ("rolling", "canary", "blue_green")
MAX_TOKEN_LIFE: Final = timedelta(days=3660)
MAX_NOTE_LENGTH: Final = 200
MAX_TOKEN_NAME_LENGTH: Final = 64
HEALTH_NUMBERS: Final = ("start_seconds", "interval_seconds", "timeout_seconds", "retries")
MAX_ORIGINS: Final = 20
MAX_PORT: Final = 65535
MODEL_PATH: Final = "/srv/model"  # where the model folder is mounted unless the request says otherwise
ANY_ORIGIN: Final = "*"
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(r"[a-z](?:[a-z0-9]|-(?=[a-z0-9])){0,19}")
_STICKY: Final = re.compile(r"|cookie|header:(?P<header>[A-Za-z0-9-]{1,64})")
_NOT_OF_A_CLIENT: Final = frozenset({"cookie", "host", "connection", "content-length", "transfer-encoding"})
_HOST: Final = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\]"
_ORIGIN: Final = re.compile(rf"(?P<scheme>https?)://(?:{_HOST})(?::(?P<port>[1-9][0-9]{{0,4}}))?")
_PATH: Final = re.compile(r"/[!-~]*")
RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "replicas": (0, MAX_REPLICAS),
    "max_surge": (0, MAX_REPLICAS),
    "max_unavailable": (0, MAX_REPLICAS),
    "concurrency": (0, 100_000),
    "queue": (0, 100_000),
    "drain_seconds": (0, 3600),
    "step_seconds": (10, 86_400),
    "max_error_points": (0, 100),
    "max_p95_ratio": (1, 100),
    "port": (1024, 65535),
    "start_seconds": (1, 7200),
    "interval_seconds": (1, 300),
    "timeout_seconds": (1, 60),
    "retries": (1, 20),
    "rate_per_minute": (0, 1_000_000),
    "monthly_requests": (0, 10**12),
    "monthly_tokens": (0, 10**15),
}


def name_error(name: str) -> str | None:
    """Return what is wrong with the name of a deployment, or None."""
    if _NAME.fullmatch(name):
        return None
    return (
        "A name is part of an address: 1 to 20 lower-case letters, digits and single hyphens, beginning with a letter"
        " and not ending with a hyphen."
    )


def range_errors(values: Mapping[str, Any]) -> dict[str, str]:
    """Return {field: message} for numbers out of range, of those fields that are given."""
    return {
        name: f"Choose a number from {low} to {high}."
        for name, (low, high) in RANGES.items()
        if name in values and not low <= values[name] <= high
    }


def settings_errors(values: Mapping[str, Any]) -> dict[str, str]:
    """Return {field: message} for the settings of a deployment. Give max_surge and max_unavailable together."""
    errors = range_errors(values)
    if "max_surge" in values and not errors and values["max_surge"] + values["max_unavailable"] < 1:
        errors["max_surge"] = (
            "Allow one replica more than are wanted, or one less; else no replica could ever be replaced."
        )
    if "sticky" in values:
        match = _STICKY.fullmatch(values["sticky"])
        if not match:
            errors["sticky"] = 'Write "cookie", "header:" with the name of a request header, or nothing.'
        elif (match["header"] or "").lower() in _NOT_OF_A_CLIENT:
            errors["sticky"] = f"The header {match['header']} does not tell clients apart."
    if "allowed_origins" in values and (error := _origins_error(values)):
        errors["allowed_origins"] = error
    if values.get("strategy", "rolling") not in STRATEGIES:
        errors["strategy"] = f"Choose one of {', '.join(STRATEGIES)}."
    if "canary_steps" in values and not _are_canary_steps(values["canary_steps"]):
        errors["canary_steps"] = (
            f"Write 1 to {MAX_CANARY_STEPS} whole percentages from 1 to 99, each greater than the one before,"
            " such as 5, 50."
        )
    return errors


def _origins_error(values: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the origins whose pages may use a deployment, or None."""
    origins = values["allowed_origins"]
    if len(origins) > MAX_ORIGINS:
        return f"Allow at most {MAX_ORIGINS} origins."
    if len(set(origins)) < len(origins):
        return "Write each origin once."
    if ANY_ORIGIN in origins:
        if len(origins) > 1:
            return "Write * alone, since it stands for all origins."
        if not values.get("is_public") and values.get("sticky") == "cookie":
            return "Pages of other origins send no cookies: * needs a public deployment, or one without sticky cookies."
        return None
    return next(filter(None, map(_origin_error, origins)), None)


def _origin_error(origin: str) -> str | None:
    match = _ORIGIN.fullmatch(origin)
    if not match:
        return (
            f"{origin[:80]} is no origin: write https://app.example.org, with a port if it has one, in lower case and"
            " without a path."
        )
    if match["port"] and not int(match["port"]) <= MAX_PORT:
        return f"{origin} has a port above {MAX_PORT}."
    if match["port"] and int(match["port"]) == DEFAULT_PORTS[match["scheme"]]:
        return f"Browsers leave out the port of {origin}; write it without."
    return None


def _are_canary_steps(steps: object) -> bool:
    if not isinstance(steps, list | tuple) or not 1 <= len(steps) <= MAX_CANARY_STEPS:
        return False
    if not all(type(step) is int and 1 <= step <= 99 for step in steps):
        return False
    return all(one < two for one, two in pairwise(steps))


def health_errors(*, kind: str, path: str, numbers: Mapping[str, int]) -> dict[str, str]:
    """Return {field: message} for a health check."""
    errors = range_errors(numbers)
    if kind == "http" and (not _PATH.fullmatch(path) or len(path) > 255):
        errors["health_path"] = "A path begins with / and has at most 255 printable ASCII characters, without spaces."
    if not errors and numbers["timeout_seconds"] > numbers["interval_seconds"]:
        errors["timeout_seconds"] = "A probe must be over before the next one: choose at most the interval."
    return errors


def token_errors(name: str, expires_at: datetime | None, limits: Mapping[str, int], now: datetime) -> dict[str, str]:
    """Return {field: message} for a token."""
    errors = range_errors(limits)
    if not name.strip() or len(name) > MAX_TOKEN_NAME_LENGTH or not name.isprintable():
        errors["name"] = f"Write a name of 1 to {MAX_TOKEN_NAME_LENGTH} printable characters."
    if expires_at is not None and not now < expires_at <= now + MAX_TOKEN_LIFE:
        errors["expires_at"] = "Choose a time that is still to come, within ten years."
    return errors
