"""The filter of the administration's lists by a row of another table, such as a host."""

from typing import Any, Final

from django.contrib.admin import ModelAdmin, RelatedFieldListFilter
from django.http import HttpRequest

MAX_CHOICES: Final = 100  # of which each is a link in every page of the list


class ShortRelatedFilter(RelatedFieldListFilter):
    """Django's filter, which offers nothing where there are more rows than one looks through: the search finds them."""

    def field_choices(self, field: Any, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Any:
        """Return the rows to choose from, none of more than MAX_CHOICES; two queries at most."""
        rows = field.remote_field.model._default_manager.order_by()
        if rows[MAX_CHOICES:].exists():
            return []
        return super().field_choices(field, request, model_admin)

    def has_output(self) -> bool:
        """Return whether there is something to choose, or an address has chosen."""
        return bool(self.lookup_val) or super().has_output()
