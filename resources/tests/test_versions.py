"""A version refuses a database that two later versions have migrated, and works on that of the next."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from psycopg import sql

from resources import versions

LAST = {f"{app}.{name}" for app, name in MigrationLoader(None).graph.leaf_nodes()}

BEFORE = ["resources.0001_initial", "gone.0007_away"]

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module", autouse=True)
def as_it_was(django_db_setup: None) -> Iterator[None]:
    """Restore the note at the end, which is in the database that tests share."""
    before = json.dumps(versions._noted())
    yield
    comment(before)


def comment(text: str) -> None:
    """Write it by another connection, as processes read it by another one."""
    parameters = connection.get_connection_params()
    parameters.pop("pool", None)
    with psycopg.connect(**parameters) as session:
        session.execute(sql.SQL("COMMENT ON TABLE django_migrations IS {}").format(text))


def noted(**note: Any) -> None:
    comment(json.dumps(note))


def refused() -> list[str]:
    return [str(error.msg) for error in versions.check_version()]


def test_the_test_database_was_noted_by_its_migrations() -> None:
    assert set(versions._noted()["last"]) == LAST
    assert refused() == []


@pytest.mark.parametrize(
    ("last", "plan", "needed"),
    [
        (BEFORE, ["any"], ["resources.0001_initial"]),
        (BEFORE, [], None),  # an older version on the database of the next
        (BEFORE[:1], [], BEFORE[:1]),  # an earlier attempt migrated, and ended before it noted that
        (BEFORE[:1], None, None),  # a flush
        (sorted(LAST), ["any"], None),  # a migration of this version was taken back, and applied again
    ],
)
def test_migrating_notes_what_the_version_before_knew(
    last: list[str], plan: list[str] | None, needed: list[str]
) -> None:
    noted(last=last, needed=["gone.0003_before"])
    versions.note_version(plan=plan)
    with connection.cursor() as cursor:
        cursor.execute(versions.READ)
        note = json.loads(cursor.fetchone()[0])
    assert note == (
        {"last": sorted(LAST), "needed": needed} if needed else {"last": last, "needed": ["gone.0003_before"]}
    )


def test_a_version_works_on_the_database_of_the_next() -> None:
    noted(last=["resources.9000_next"], needed=sorted(LAST))
    assert refused() == []


@pytest.mark.parametrize("unknown", ["resources.9000_next", "colours.0001_initial", "gpuplatform.0001_first"])
def test_a_version_refuses_a_database_two_versions_ahead(unknown: str) -> None:
    noted(last=[], needed=[*LAST, unknown])
    (text,) = refused()
    assert text.endswith(f"does not know {unknown}.")
    with pytest.raises(SystemCheckError, match=r"Install that version again, or restore a backup"):
        call_command("migrate", verbosity=0, skip_checks=False)


@pytest.mark.parametrize("text", ["", "of somebody else", "{}", "[]", "7", '{"needed": 7}'])
def test_what_somebody_else_has_noted_refuses_nothing(text: str) -> None:
    comment(text)
    assert refused() == []
