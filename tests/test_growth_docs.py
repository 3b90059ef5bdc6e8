"""docs/growth.md names every table of the database, and says of each what removes its rows, as it is."""

import re
from datetime import UTC, datetime

import pytest
from django.apps import apps
from django.conf import settings as configured
from django.db import connection, models
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from operations import retention
from tests.platform import ROOT
from tests.virtual import stored
from tests.virtual.stored import Amount

TEXT = (ROOT / "docs" / "growth.md").read_text()
NAMED = re.findall(r"`([a-z]+_[a-z_]+)`", TEXT)
HISTORY = dict(re.findall(r"^\| `([a-z_]+)` \| [^|]+ \| ([^|]+) \|$", TEXT, re.MULTILINE))
SETTINGS = [name for name in dir(configured) if re.fullmatch(r"COMPUTE_[A-Z_]+_DAYS", name)]


def models_by_table() -> dict[str, type[models.Model]]:
    return {model._meta.db_table: model for model in apps.get_models(include_auto_created=True)}


@pytest.mark.django_db
def test_every_table_has_one_line() -> None:
    tables = connection.introspection.table_names()
    first = TEXT.index("### History")
    lines = [name for name in NAMED if name in tables]
    assert first < TEXT.index("### State") < TEXT.index("### Configuration")
    assert set(tables) <= set(lines), f"say in docs/growth.md what ends: {set(tables) - set(lines)}"


@pytest.mark.django_db
def test_history_ends_by_the_rules_that_are_told(settings: Settings) -> None:
    for number, name in enumerate(SETTINGS):
        setattr(settings, name, 10_001 + number)
    by_days = {10_001 + number: f"`{name}`" for number, name in enumerate(SETTINGS)}
    found = set()
    for rule in retention.RULES:
        with CaptureQueriesContext(connection) as queries:
            list(rule.parts(datetime(2026, 1, 1, tzinfo=UTC)))
        tables = [re.findall(r'FROM "(\w+)"', each["sql"]) for each in queries]
        table = {"session_events": "compute_sessionevent"}.get(rule.name)
        table = table or next(name for name in _candidates(rule.name, tables[0]) if name in HISTORY)
        span = by_days.get(rule.days(), f"{rule.days()} day")
        assert span in HISTORY[table], (rule.name, table)
        found.add(table)
    told = {table for table, end in HISTORY.items() if re.search(r"COMPUTE_|\d days?", end)}
    assert told == found


def _candidates(name: str, tables: list[str]) -> list[str]:
    """Return the table whose rows the rule removes before those by which it finds them."""
    return tables[::-1] if name in ("app_events", "usage_histories") else tables


def test_history_goes_with_the_rows_that_are_told() -> None:
    by_table = models_by_table()
    for table, end in HISTORY.items():
        for other in re.findall(r"with `([a-z_]+)`", end):
            keys = [field for field in by_table[table]._meta.get_fields() if isinstance(field, models.ForeignKey)]
            assert any(
                key.remote_field.on_delete is models.CASCADE and key.related_model is by_table[other] for key in keys
            ), (table, other)


def test_only_what_must_not_grow_is_named() -> None:
    names = (
        "table compute_session",
        "table compute_lease",
        "keys with an end: a",
        "keys without an end: a",
        "files run",
    )
    days = [dict.fromkeys(names, Amount(count)) for count in (1000, 1000, 1030, 1050)]
    found = stored.growth(days)
    assert stored.too_fast(found) == dict.fromkeys(("table compute_lease", *names[3:]), 1.67)
    steady = [dict.fromkeys(names, Amount(count)) for count in (1000, 1100, 1000, 1029)]
    assert stored.too_fast(stored.growth(steady)) == {}
