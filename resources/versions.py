"""Refuses a database that a later version has changed too far: one version further works, two or more may not.

The version that migrates a database notes there, as the comment of the table of migrations, its own last migrations and
those of the version before, which are what processes need to know (docs/adr/0101-*.md).
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, Final

import psycopg
from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from psycopg import sql

VERSION_TAG: Final = "version"
ADVICE: Final = "Install that version again, or restore a backup that was made before its upgrade (docs/upgrade.md)."
READ: Final = "SELECT obj_description(to_regclass('django_migrations'), 'pg_class')"


def note_version(plan: Sequence[Any] | None = None, **_: Any) -> None:
    """Note what the next processes need to know, where this version has migrated. A receiver of post_migrate.

    It may have done so at an earlier attempt, which ended before its note: then nothing is left to migrate, but this
    version knows all that is noted, which an older one does not.
    """
    if plan is None:  # a flush
        return
    with connection.cursor() as cursor:
        cursor.execute(READ)
        before = _names(cursor.fetchone())["last"]
    loader = MigrationLoader(connection)
    leaves = loader.graph.leaf_nodes()
    last, known = sorted(f"{app}.{name}" for app, name in leaves), [each for each in before if _is_known(each)]
    is_older = not plan and known != before
    if last == before or is_older or not set(leaves) <= set(loader.applied_migrations):
        return
    note = {"last": last, "needed": known}
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL("COMMENT ON TABLE django_migrations IS {}").format(json.dumps(note)))


def check_version(**_: Any) -> list[CheckMessage]:
    """Return an error if a version that this one does not follow or precede directly has migrated the database."""
    unknown = [each for each in _noted()["needed"] if not _is_known(each)]
    if not unknown:
        return []
    message = f"The database is of a newer version, which this one cannot work with: it does not know {unknown[0]}."
    return [Error(message, hint=ADVICE, id="resources.E012")]


def _noted() -> dict[str, list[str]]:
    """Return what is noted; nothing where the database does not respond, or no version has noted anything.

    Has a connection of its own, since the pool would wait for a database that is away.
    """
    parameters = connection.get_connection_params()
    parameters.pop("pool", None)
    try:
        with psycopg.connect(**parameters) as session:
            row = session.execute(READ).fetchone()
    except psycopg.Error:
        row = None
    return _names(row)


def _names(row: Sequence[Any] | None) -> dict[str, list[str]]:
    """Return what a row of READ notes; nothing where it is of somebody else."""
    try:
        note = json.loads(row[0]) if row and row[0] else None
    except ValueError:
        note = None
    names = note if isinstance(note, dict) else {}
    return {key: names[key] if isinstance(names.get(key), list) else [] for key in ("last", "needed")}


def _is_known(migration: str) -> bool:
    """Return whether this version has the migration, without loading all of them as Django would."""
    label, _, name = migration.partition(".")
    if label not in apps.app_configs:
        return False
    module, _ = MigrationLoader.migrations_module(label)
    with suppress(ModuleNotFoundError):  # the app had no migrations yet
        return bool(module and find_spec(f"{module}.{name}"))
    return False
