"""Writes spec files, which `restapi.plain_yaml` reads as the same values."""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import yaml
from django.conf import settings

from restapi.plain_yaml import scalar

BREAKS: Final = re.compile("[\x85\u2028\u2029]")  # line breaks of YAML 1.1, which a text keeps by escapes alone
SCHEMA_PATH: Final = "/api/specs.schema.json"


class _Dumper(yaml.SafeDumper):
    """Quotes what would be read as something else, and writes lines of a text as lines."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> Any:
    style: str | None = (
        '"' if BREAKS.search(text) else "|" if "\n" in text else None if isinstance(scalar(text), str) else "'"
    )
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _number(dumper: _Dumper, number: Decimal) -> Any:
    """Write a point in any case: without one, YAML 1.1 takes it for no float, and PyYAML adds a tag."""
    digits, exponent_mark, exponent = str(number).partition("E")
    whole, _, fraction = digits.partition(".")
    return dumper.represent_scalar("tag:yaml.org,2002:float", f"{whole}.{fraction}{exponent_mark}{exponent}")


_Dumper.add_representer(Decimal, _number)


def schema_line() -> str:
    """Return the comment by which editors find the schema."""
    return f"# yaml-language-server: $schema={settings.COMPUTE_PUBLIC_URL.rstrip('/')}{SCHEMA_PATH}\n"


def plain_text(value: Any) -> str:
    """Return a value as YAML."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


def spec_text(documents: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """Return a spec file with these kinds and fields."""
    return schema_line() + "---\n".join(plain_text({"kind": kind, **fields}) for kind, fields in documents)
