"""Administration of imports: shown, and imports can be cancelled; credentials are shown without their secrets."""

from collections.abc import Sequence
from typing import cast

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from accounts.admin import ShownAdmin
from accounts.confirmation import confirmed
from accounts.models import User
from imports import services
from imports.models import Import, ImportCredential


def _owners(imports: Sequence[Import]) -> list[User]:
    return [import_.owner for import_ in imports]


@admin.register(Import)
class ImportAdmin(ShownAdmin):
    """Imports of all users."""

    list_display = ("url", "id", "owner", "target", "state", "progress", "problem", "created_at", "ended_at")
    list_filter = ("state", "target", "kind")
    list_select_related = ("owner",)
    search_fields = ("id", "url", "owner__email")
    date_hierarchy = "created_at"
    actions = ("cancel",)

    @admin.action(description="Cancel selected imports", permissions=["superadmin"])
    @confirmed(_("They end, and what they fetched by now is removed."), _owners)
    def cancel(self, request: HttpRequest, queryset: QuerySet[Import]) -> None:
        """Cancel these imports; those that have ended stay so."""
        chosen = list(queryset.live())  # type: ignore[attr-defined]
        for import_ in chosen:
            services.cancel(import_, actor=cast(User, request.user))
        text = ngettext("%(count)s import is cancelled.", "%(count)s imports are cancelled.", len(chosen))
        self.message_user(request, text % {"count": len(chosen)}, messages.SUCCESS)


@admin.register(ImportCredential)
class ImportCredentialAdmin(ShownAdmin):
    """Credentials of all users, without their secrets."""

    list_display = ("name", "owner", "host", "kind", "created_at", "last_used_at")
    list_filter = ("kind", "host")
    list_select_related = ("owner",)
    search_fields = ("name", "host", "owner__email")
    hidden = ("encrypted_secret",)
