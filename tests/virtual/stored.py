"""What an installation stores at a moment: rows, keys of Redis and files; and how that grows from day to day."""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.db import connection

from sessions.notify import proxies_redis

PERCENT_A_DAY: Final = 1.0  # that what must not grow may, after the first day
MIN_ROWS: Final = 20  # less is the chance of who is at work
DOCUMENT: Final = Path(__file__).resolve().parent.parent.parent / "docs" / "growth.md"
_VARIABLE: Final = re.compile(r"[0-9a-z]{16,}|[0-9a-f]{8,}|\d+")
_NOT_FILES: Final = ("postgres/base", "postgres/pg_wal", "postgres/global", "postgres/pg_")


@dataclass(frozen=True, slots=True)
class Amount:
    """How many things of a kind there are, and their bytes."""

    count: int = 0
    size_bytes: int = 0


Stored = Mapping[str, Amount]  # "table x", "keys x", "keys without an end x", "files x"


def counted(age: Callable[[], None]) -> Stored:
    """Return what is stored now, with dead rows removed; `age` has keys of Redis expire that are over by now."""
    age()
    return {
        **{f"table {name}": amount for name, amount in _tables().items()},
        **{f"keys {name}": amount for name, amount in _keys().items()},
        **{f"files {name}": amount for name, amount in _files(settings.COMPUTE_VAR_DIR).items()},
    }


def history() -> list[str]:
    """Return the tables that grow by nature, by docs/growth.md."""
    text = DOCUMENT.read_text()
    part = text[text.index("### History") : text.index("### State")]
    return re.findall(r"^\| `(\w+)`", part, re.MULTILINE)


def growth(days: Sequence[Stored]) -> dict[str, dict[str, Any]]:
    """Return for each kind the amounts after the first and the last day, and by how much it grew in each since."""
    names = sorted({name for day in days for name in day})
    return {name: _growth([day.get(name, Amount()) for day in days]) for name in names}


def too_fast(growing: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return, of what must not grow, by how many percent a day it does: by name."""
    grows = {f"table {table}" for table in history()}
    return {
        name: each["percent_a_day"]
        for name, each in growing.items()
        if name not in grows
        and not name.startswith(("keys with an end", "files folders", "files backups"))
        and each["percent_a_day"] > PERCENT_A_DAY
        and each["last"] - each["first"] > MIN_ROWS
    }


def _growth(amounts: Sequence[Amount]) -> dict[str, Any]:
    first, last, days = amounts[0], amounts[-1], max(1, len(amounts) - 1)
    rate = 100 * (last.count - first.count) / max(1, first.count) / days
    return {
        "first": first.count,
        "last": last.count,
        "bytes": last.size_bytes,
        "bytes_a_day": round((last.size_bytes - first.size_bytes) / days),
        "percent_a_day": round(rate, 2),
    }


def _tables() -> dict[str, Amount]:
    found = {}
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
        for table in connection.introspection.table_names():
            cursor.execute(f'SELECT count(*), pg_total_relation_size(%s) FROM public."{table}"', [f"public.{table}"])
            found[table] = Amount(*cursor.fetchone())
    return found


def _keys() -> dict[str, Amount]:
    server = proxies_redis()
    found: dict[str, list[int]] = defaultdict(list)
    for raw in server.scan_iter(count=1000):
        kind = "without an end" if server.ttl(raw) < 0 else "with an end"
        found[f"{kind}: {_VARIABLE.sub('*', raw.decode())}"].append(server.memory_usage(raw) or 0)
    return {name: Amount(len(sizes), sum(sizes)) for name, sizes in found.items()}


def _files(root: Path) -> dict[str, Amount]:
    found: dict[str, list[int]] = defaultdict(list)
    for folder, _folders, names in os.walk(root):
        place = str(Path(folder).relative_to(root))
        if not place.startswith(_NOT_FILES):
            found["/".join(place.split("/")[:1])] += [os.lstat(f"{folder}/{name}").st_size for name in names]
    return {name: Amount(len(sizes), sum(sizes)) for name, sizes in found.items()}
