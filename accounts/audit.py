"""Writes the audit log: administrative acts with the values before and after them."""

import re
from collections.abc import Mapping
from typing import Any, Final

from django.db import models

from accounts.models import AuditEntry, User

Changes = Mapping[str, tuple[str | None, str | None]]  # {field: (before, after)}

SECRET: Final = re.compile("password|secret|token|digest|private|post_data|get_data|session_hash")  # in names of fields
HIDDEN: Final = "***"
MAX_VALUE_LENGTH: Final = 500
MOMENTS: Final = ("_at", "last_login")  # ends of names of fields that change by themselves


def record(actor: User, action: str, target: models.Model, changes: Changes, *, address: str | None = None) -> None:
    """Add an entry for what `actor` did to `target`; call it in the transaction of the act."""
    AuditEntry.objects.create(
        actor=actor,
        actor_email=actor.email,
        address=address,
        action=action[:64],
        object_type=target._meta.label,
        object_id=str(target.pk),
        object_text=str(target)[:200],
        changes={name: list(values) for name, values in changes.items()},
    )


def values_of(row: models.Model) -> dict[str, str | None]:
    """Return the stored values of a row as texts, without those that change by themselves."""
    fields = [field for field in row._meta.concrete_fields if not field.name.endswith(MOMENTS)]
    return {field.name: as_text(field.name, field.value_from_object(row)) for field in fields}


def difference(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> Changes:
    """Return the fields whose values differ."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {name: (before.get(name), after.get(name)) for name in names}


def as_text(name: str, value: Any) -> str | None:
    """Return a value of the field `name` as the log shows it, secrets hidden; None where there is none."""
    if value is None or value == "":
        return None
    if SECRET.search(name):
        return HIDDEN
    many = isinstance(value, list | tuple | set | models.QuerySet)
    return (", ".join(sorted(map(str, value))) if many else str(value))[:MAX_VALUE_LENGTH]
