"""What a browser says of itself, in a few words for its owner. Pure."""

from typing import Final

AGENT_LENGTH: Final = 300  # characters that are kept

# The order decides: Edge and Opera also name Chrome, and Chrome also names Safari.
_BROWSERS: Final = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("CriOS/", "Chrome"),
    ("Safari/", "Safari"),
)
_SYSTEMS: Final = (
    ("Windows", "Windows"),
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


def browser_of(agent: str) -> str:
    """Return the name of the browser in a User-Agent header; "" if it is none that is known."""
    return _first(agent, _BROWSERS)


def system_of(agent: str) -> str:
    """Return the name of the operating system in a User-Agent header; "" if it is none that is known."""
    return _first(agent, _SYSTEMS)


def _first(agent: str, marks: tuple[tuple[str, str], ...]) -> str:
    return next((name for mark, name in marks if mark in agent), "")
