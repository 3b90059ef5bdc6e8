"""docs/architecture.md names files and functions that exist, and counts package borders as the code has them."""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
STEP = re.compile(r"^\d+\. `([\w./-]+): ([\w.]+)`", re.MULTILINE)
SECTIONS = re.findall(r"^## The way of (.+?) \((\d+) borders\)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
MAX_BORDERS = 12


def python_names(source: str) -> set[str]:
    """Return the functions, classes and methods (as Class.method) that a module defines."""
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef))
            names.update(f"{node.name}.{method.name}" for method in methods)
    return names


def defines(path: Path, name: str) -> bool:
    """Return whether the file defines the name; in other languages than Python, whether it defines such a function."""
    source = path.read_text()
    if path.suffix == ".py":
        return name in python_names(source)
    return re.search(rf"^[^#/\n]*\b{re.escape(name.split('.')[-1])}\([^;\n]*\) \{{", source, re.MULTILINE) is not None


def steps_of(text: str) -> list[tuple[str, str]]:
    """Return the (file, function) pairs of a numbered list, and check that every item has one."""
    steps = STEP.findall(text)
    assert len(steps) == len(re.findall(r"^\d+\. ", text, re.MULTILINE))
    return steps


def test_the_page_describes_five_ways() -> None:
    titles = [title for title, _, _ in SECTIONS]
    assert titles == ["a launch", "a keystroke", "an app request", "a GPU share", "an upload"]


@pytest.mark.parametrize(("title", "stated", "text"), SECTIONS, ids=[title for title, _, _ in SECTIONS])
def test_every_step_names_a_function_that_exists(title: str, stated: str, text: str) -> None:
    missing = [f"{file}: {name}" for file, name in steps_of(text) if not defines(ROOT / file, name)]
    assert not missing


@pytest.mark.parametrize(("title", "stated", "text"), SECTIONS, ids=[title for title, _, _ in SECTIONS])
def test_package_borders_are_counted_and_few(title: str, stated: str, text: str) -> None:
    packages = [file.split("/")[0] for file, _ in steps_of(text)]
    borders = sum(one != other for one, other in pairwise(packages))
    assert borders == int(stated)
    assert borders <= MAX_BORDERS
