"""YAML as people mean it: one meaning of each value, exact numbers, lines, and the same again where it is written."""

from decimal import Decimal
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from restapi.plain_yaml import PlainYamlError, documents
from specs.writing import spec_text

LETTERS = st.characters(codec="utf-8", exclude_categories=("Cs", "Cc"))
TEXTS = st.text(LETTERS, max_size=20) | st.text("a: #'\"\n-|>e1.0", max_size=8)
VALUES = TEXTS | st.integers() | st.booleans()
FIELDS = st.dictionaries(
    st.text("abc_", min_size=1, max_size=5),
    st.recursive(VALUES, lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=5),
    max_size=4,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("1:30", "1:30"),
        ("0.35", Decimal("0.35")),
        ("3.10", Decimal("3.10")),
        ("'3.10'", "3.10"),
        ("2030-01-01", "2030-01-01"),
        ("0o17", "0o17"),
        ("~", None),
        ("true", True),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("-7", -7),
        (".", "."),
        ("1e3", Decimal("1e3")),
    ],
)
def test_plain_values_have_one_meaning(text: str, value: Any) -> None:
    [document] = documents(f"a: {text}")
    assert document.value == {"a": value}
    assert type(document.value["a"]) is type(value)


def test_values_have_their_lines() -> None:
    first, second = documents("# a\na: 1\nb:\n- c: 2\n  d: 3\n---\ne: 4\n")
    assert [first.line_of(place) for place in (("a",), ("b", 0, "d"), ("b", 7), ("x",), ())] == [2, 5, 3, 2, 2]
    assert second.line_of(("e",)) == 7


@pytest.mark.parametrize("text", ["a: &b 1", "a: *b", "a: !!int 1", "[" * 99, "? [1]\n: 2", "a: 1\na: 2", "a: \x00"])
def test_what_is_no_plain_yaml_is_refused(text: str) -> None:
    with pytest.raises(PlainYamlError):
        documents(text)


@given(FIELDS)
def test_what_is_written_is_read_as_the_same(fields: dict[str, Any]) -> None:
    text = spec_text([("session", fields)])
    [document] = documents(text)
    assert document.value == {"kind": "session", **fields}
    assert yaml.safe_load(text) == document.value
