"""Tells which migrations processes of the version before cannot work beside; docs/upgrade.md.

While an upgrade is under way the tables are already those of the new version, and old processes still use them. So one
version only adds what old code can leave alone, and the next one removes what no code uses any more.
"""

from collections.abc import Collection, Iterable, Iterator

from django.db import models
from django.db.migrations import operations
from django.db.migrations.migration import Migration
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

GONE = (
    operations.RemoveField,
    operations.DeleteModel,
    operations.RenameField,
    operations.RenameModel,
    operations.AlterModelTable,
)


def problems(migration: Migration, before: ProjectState, new: Collection[tuple[str, str]] = ()) -> list[str]:
    """Return why old code fails on the tables that the migration leaves; `before` is the state that it begins with.

    `new` has app label and lower-case name of the models that old code does not know.
    """
    name, state, found = f"{migration.app_label}.{migration.name}", before.clone(), []
    for operation in migration.operations:
        for each in _of_database(operation):
            if (migration.app_label, getattr(each, "model_name_lower", "")) in new:
                continue
            if reason := next(_problems_of(each, migration.app_label, state), ""):
                found.append(f"{name}: {each.describe()}: {reason}")
        operation.state_forwards(migration.app_label, state)
    return found


def _of_database(operation: Operation) -> Iterable[Operation]:
    if isinstance(operation, operations.SeparateDatabaseAndState):
        return list(operation.database_operations)
    return [operation]


def _problems_of(operation: Operation, app_label: str, before: ProjectState) -> Iterator[str]:
    if isinstance(operation, GONE):
        yield "old code uses it; remove it in the version after the one that no longer does"
    elif isinstance(operation, operations.AddField) and not _may_be_left_out(operation.field):
        yield "old code inserts rows without it; give it `db_default`, since Django drops a `default`, or null=True"
    elif isinstance(operation, operations.AlterField):
        old = before.models[app_label, operation.model_name_lower].fields[operation.name]
        if old.null and not _may_be_left_out(operation.field):
            yield "old code writes NULL there"
        if _kind(old) is not _kind(operation.field):
            yield "old code reads and writes another type there; add a column"


def _may_be_left_out(field: models.Field) -> bool:  # type: ignore[type-arg]  # of any type
    return field.null or field.many_to_many or field.db_default is not models.NOT_PROVIDED


def _kind(field: models.Field) -> type:  # type: ignore[type-arg]  # of any type
    """Return the class of the field that decides what its column holds."""
    for kind in (models.IntegerField, models.CharField, models.TextField, models.ForeignKey):
        if isinstance(field, kind):
            return kind
    return type(field)
