"""What every host writes every few seconds, as cheap for the server as it gets."""

from collections.abc import Sequence

from django.db.models import Model
from django.db.models.constants import OnConflict


def insert_rows(rows: Sequence[Model], unique: Sequence[str] = (), update: Sequence[str] = ()) -> None:
    """Insert these rows by one statement, which needs no transaction around it as that of `bulk_create` has.

    A row whose `unique` fields there are already has its fields in `update` changed.
    """
    if rows:
        options = type(rows[0])._meta
        fields = [each for each in options.concrete_fields if rows[0].pk is not None or not each.primary_key]
        type(rows[0])._base_manager.all()._insert(  # type: ignore[attr-defined]
            rows,
            fields=fields,
            on_conflict=OnConflict.UPDATE if unique else None,
            unique_fields=[options.get_field(name) for name in unique],
            update_fields=[options.get_field(name) for name in update],
        )
