"""Rooms of the product, which are the folders of its packages: their size, who uses them, and receivers of signals.

Each test was seen to fail: with a sixteenth module, with a use that the docstring does not name, and with a module of
receivers that no app imports.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent
MAX_MODULES = 15
GATHERED = {"tests", "migrations", "management", "commands", "templatetags"}  # folders that frameworks name
IMPORTED = """
import sys
import django
django.setup()
print(*sys.modules)
"""
RECEIVER = re.compile(r"^@receiver\(", re.MULTILINE)
USED = re.compile(r"^Used by (?:its package alone|(?P<packages>[\w,\s]+))\.$", re.MULTILINE)


def modules() -> Iterator[Path]:
    """Yield the modules of the packages that `pyproject.toml` has layers of."""
    for package in packages():
        for path in sorted((ROOT / package).rglob("*.py")):
            if not GATHERED & {*path.relative_to(ROOT).parts}:
                yield path.relative_to(ROOT)


def packages() -> list[str]:
    text = (ROOT / "pyproject.toml").read_text()
    return re.findall(r'"(\w+)"', text[text.index("root_packages") : text.index("include_external_packages")])


def rooms() -> list[str]:
    return [".".join(path.parent.parts) for path in modules() if path.name == "__init__.py" and len(path.parts) > 2]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    name, *others = packages()
    return grimp.build_graph(name, *others, cache_dir=None)


def test_no_folder_has_too_many_modules() -> None:
    counts = Counter(path.parent for path in modules() if path.name != "__init__.py")
    assert {folder: count for folder, count in counts.items() if count > MAX_MODULES} == {}


@pytest.mark.parametrize("room", rooms())
def test_a_room_names_the_packages_that_use_it(room: str, graph: grimp.ImportGraph) -> None:
    own = room.split(".", 1)[0]
    inside = {room, *graph.find_descendants(room)}
    importing = set().union(*(graph.find_modules_that_directly_import(module) for module in inside))
    users = {user.split(".")[0] for user in importing if ".tests" not in user}
    source = (ROOT / room.replace(".", "/") / "__init__.py").read_text()
    named = USED.search(ast.get_docstring(ast.parse(source)) or "")
    assert named, f"{room}: the docstring says nothing of who uses it"
    assert {*re.findall(r"\w+", named["packages"] or "")} - {"and"} == users - {own}


def test_modules_with_receivers_are_imported_at_start() -> None:
    receiving = {
        ".".join(path.with_suffix("").parts)
        for path in modules()
        if re.search(r"^@receiver\(", (ROOT / path).read_text(), re.M)
    }
    assert len(receiving) >= 5
    command = [sys.executable, "-c", IMPORTED]
    imported = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    assert receiving - {*imported} == set()
