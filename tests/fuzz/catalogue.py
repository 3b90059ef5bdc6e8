"""Which targets there are, found without importing them: what they import is instrumented first."""

import ast
import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent.parent
CLIENT: Final = ROOT / "client"
FOUND: Final = ROOT / "var" / "fuzz"  # what runs add to the corpora, and what has broken something
DATABASE: Final = "database"

Check = Callable[[bytes], None]


def names() -> list[str]:
    """Return the targets as MODULE.FUNCTION."""
    return sorted(
        f"{path.stem}.{node.name}"
        for path in (HERE / "targets").glob("[a-z]*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and [each.arg for each in node.args.args] == ["data"]
        if not node.name.startswith("_")
    )


def parsers_of(name: str) -> list[str]:
    """Return the modules of the product that the target's module imports from."""
    tree = ast.parse((HERE / "targets" / f"{name.partition('.')[0]}.py").read_text())
    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    folders = {each: each.partition(".")[0] for each in imported if not each.startswith("tests.")}
    return [each for each, folder in folders.items() if any((above / folder).is_dir() for above in (ROOT, CLIENT))]


def check_of(name: str) -> Check:
    """Return the target's function."""
    module, _, function = name.partition(".")
    found: Check = getattr(importlib.import_module(f"tests.fuzz.targets.{module}"), function)
    return found


def prepared(name: str) -> AbstractContextManager[None]:
    """Return the context of the inputs of a target: what its module has as `prepared`."""
    module = importlib.import_module(f"tests.fuzz.targets.{name.partition('.')[0]}")
    found: AbstractContextManager[None] = getattr(module, "prepared", nullcontext)()
    return found


def kept(name: str) -> list[Path]:
    """Return the inputs that are kept in the repository."""
    return sorted((HERE / "corpus" / name).glob("*"))
