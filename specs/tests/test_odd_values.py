"""Whatever stands in an option or a field of any format is translated or refused at its line."""

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from accounts.models import User
from specs import services
from specs.formats import dstack, own_script, reading, skypilot, slurm
from specs.formats.offer import SpecOffer
from specs.problems import SpecError
from specs.tests.worlds import is_empty, make_owner

pytestmark = pytest.mark.django_db

LONG: Final = "9" * 5000
TEXTS: Final = (
    *(
        "",
        "0",
        "-1",
        "1",
        "1.5",
        "1e400",
        "-0",
        "NaN",
        "sNaN",
        "Infinity",
        "-inf",
        "²",
        "٣",
        "\uff11",
        "true",
        "null",
        "[]",
    ),
    *(LONG, f"{LONG}-{LONG}", f"1-{LONG}", "2-²", f"{LONG}GB", f"0x{LONG}", f"1.{LONG}", f"now+{LONG}weeks"),
    *(
        "16XB",
        "4 quux",
        "1e999",
        "999999999GB",
        "999999999TB",
        "999999999999T",
        "0GB",
        "4..",
        "..4",
        "4..2",
        "4+",
        "1-",
    ),
    *(
        "now+99999999weeks",
        "now+99999999",
        "now+1fortnight",
        "9999-12-31T23:59:59",
        "0001-01-01",
        "9999-12-31T23-14:00",
    ),
    *("9999-999999:999999:999999", "0-0", "999999", "::", "1:2:3:4", "afterok:", "afterok:²", "afterok:" + LONG),
    *(
        "A100:NaN",
        "A100:sNaN",
        "A100:-1",
        "A100:1e400",
        "A100:0.001",
        "A100:",
        ":",
        ":2",
        "gpu:9999",
        "gpu:²",
        "a:b:c:d",
    ),
    *(
        "A100:²GB:2",
        "999999.9.9GB:1",
        "...GB",
        "A100:1..9999999",
        "NAME=",
        "=",
        "NAME",
        "a,b,,c",
        "\x00",
        "\ud800",
        "한",
    ),
    *("~", "$HOME", "../..", "'", "%s", "{0}", "9999999d", "999999w", "999999h", "0m", "1.5 h", "a/b:c", "data:/x:rw"),
)
OTHERS: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 10**30, 1.5, float("inf"), float("-inf"), float("nan")),
    *([], [[]], [None], [{}], ["A=1", 2], {}, {"": None}, {"a": []}, {1: 2}, {"A100": float("nan")}, {"A100": None}),
    *([{"A100": "NaN"}], {"name": [], "memory": {}, "count": "²"}, {"count": LONG}, {"memory": "16XB", "count": -1}),
)


@pytest.fixture
def owner(tmp_path: Path) -> User:
    return make_owner(tmp_path)


def check(owner: User, text: str, seen: set[str]) -> None:
    """Read a text, and say what would be made unless the same was asked before: it is valid, or refused at a line."""
    try:
        documents = reading.read(owner, text).documents
        asked = [{**each.fields, "command": "\0" in str(each.fields.get("command"))} for each in documents]
        if repr(asked) not in seen:
            seen.add(repr(asked))
            services.carry_out(owner, documents, is_dry=True)
    except SpecError as error:
        is_told = error.problems and all(problem.line > 0 and problem.message for problem in error.problems)
        if not is_told:
            raise ValueError("What is wrong has no line.") from error


def scripts(mark: str, names: Any) -> Iterator[str]:
    for name, value in itertools.product(names, TEXTS):
        option = f"-{name} " if len(name) == 1 else f"--{name}="
        quoted = "'" + value.replace("'", "'\"'\"'") + "'"
        yield f"#!/bin/bash\n#{mark} {option}{quoted}\n#GP --image pytorch\ntrue\n"


def tasks(usual: dict[str, Any], names: Any) -> Iterator[str]:
    for name, value in itertools.product(names, (*TEXTS, *OTHERS)):
        outer, dot, inner = name.partition(".")
        yield yaml.safe_dump({**usual, outer: {inner: value} if dot else value}, allow_unicode=True)


FORMATS: Final = {
    "gp": lambda: scripts("GP", (*own_script.PLAIN, *own_script.IN_FIELDS, *own_script.HANDLERS, *own_script.FLAGS)),
    "slurm": lambda: scripts("SBATCH", (*slurm.HANDLERS, *slurm.SIZES, *slurm.PER, "c", "N", "requeue")),
    "skypilot": lambda: tasks({"run": "true", "image": "pytorch"}, (*skypilot.HANDLERS, "resources", "workdir")),
    "dstack": lambda: tasks({"type": "task", "image": "pytorch"}, (*dstack.HANDLERS, *dstack.SESSION, "resources")),
    "service": lambda: tasks({"type": "service", "image": "pytorch"}, (*dstack.HANDLERS, *dstack.SERVICE)),
}


@pytest.mark.parametrize("form", FORMATS)
def test_odd_values_are_taken_or_refused(form: str, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SpecOffer", functools.cache(SpecOffer))  # of this owner, who is offered the same
    found: dict[str, str] = {}
    seen: set[str] = set()
    for text in FORMATS[form]():
        try:
            check(owner, text, seen)
        except Exception as error:
            found[repr(error)[:150]] = text[:200]
    assert found == {}
    assert is_empty()
