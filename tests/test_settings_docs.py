"""settings.py, .env.example and docs/settings.md list the same settings with the same defaults."""

import ast
import re
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def written(value: object) -> str:
    """Return a default as one writes it into an environment variable."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list) else str(value)


def settings_defaults() -> dict[str, str]:
    """Return {name: default} of every env("NAME", ...) and env.kind("NAME", ...) in the settings module."""
    defaults = {}
    for call in ast.walk(ast.parse((ROOT / "gpuplatform" / "settings.py").read_text())):
        if not isinstance(call, ast.Call) or not call.args or not isinstance(call.args[0], ast.Constant):
            continue
        function = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        if isinstance(function, ast.Name) and function.id == "env":
            given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
            defaults[str(call.args[0].value)] = written(given.get("default", ""))
    return defaults


def test_the_example_lists_every_setting_with_its_default() -> None:
    lines = re.findall(r"^#?([A-Z][A-Z_]+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE)
    assert dict(lines) == settings_defaults()
    assert len(lines) == len(dict(lines)), "a setting is listed twice"


def test_every_example_setting_has_a_comment() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    for above, line in pairwise(lines):
        if re.match(r"#?[A-Z][A-Z_]+=", line):
            assert above.startswith("# "), line


def test_the_docs_list_every_setting_with_its_default() -> None:
    rows = re.findall(
        r"^\| `([A-Z_]+)` \| (?:`(.*?)`)? ?\| \S.* \|$", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE
    )
    assert dict(rows) == settings_defaults()
