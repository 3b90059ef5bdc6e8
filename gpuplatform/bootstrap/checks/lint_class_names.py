"""Lint: each public class name stands for one class in the whole tree, tests and benchmarks aside.

Run as `python gpuplatform/bootstrap/checks/lint_class_names.py` from the root of the checkout; the exit status is 1
when two modules define a public class of the same name at module level.
"""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

EXEMPT_NAMES: Final = {"Command", "Meta"}  # Django finds these by their name
EXEMPT_FOLDERS: Final = {"bench", "migrations", "tests"}


def main() -> int:
    """Print each name with the modules that define it; return 1 if there is any."""
    modules_by_name: dict[str, list[str]] = defaultdict(list)
    for path in _product_modules():
        for name in _public_classes(path.read_text()):
            modules_by_name[name].append(str(path))
    duplicates = {name: modules for name, modules in modules_by_name.items() if len(modules) > 1}
    for name, modules in sorted(duplicates.items()):
        sys.stderr.write(f"class {name} is defined in {', '.join(modules)}\n")
    return bool(duplicates)


def _product_modules() -> Iterator[Path]:
    listed = subprocess.run(["git", "ls-files", "*.py"], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        path = Path(line)
        if path.exists() and not EXEMPT_FOLDERS.intersection(path.parts):
            yield path


def _public_classes(source: str) -> Iterator[str]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name not in EXEMPT_NAMES:
            yield node.name


if __name__ == "__main__":
    sys.exit(main())
