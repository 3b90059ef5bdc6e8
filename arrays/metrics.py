"""The numbers that a task writes to its output, as lines such as `GP_METRICS {"loss": 0.12, "epoch": 9}`. Pure."""

import json
from collections.abc import Mapping
from typing import Final

MARK: Final = "GP_METRICS "
MAX_LINE: Final = 8192
MAX_METRICS: Final = 50
MAX_NAME: Final = 64


def read(output: str) -> dict[str, float]:
    """Return the last value of each metric; what is not an object of numbers is left out."""
    found: dict[str, float] = {}
    for line in output.splitlines():
        if not line.startswith(MARK) or len(line) > MAX_LINE:
            continue
        try:
            values = json.loads(line.removeprefix(MARK))
        except (ValueError, RecursionError):
            continue
        if isinstance(values, Mapping):
            found |= {name: value for name, value in values.items() if _is_metric(name, value)}
    return dict(list(found.items())[:MAX_METRICS])


def _is_metric(name: str, value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    return is_number and len(name) <= MAX_NAME and name.isprintable()
