"""Administration of arrays: shown, and arrays can be cancelled."""

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
from arrays import services
from arrays.models import OPEN, Array


def _owners(arrays: Sequence[Array]) -> list[User]:
    return [array.owner for array in arrays]


@admin.register(Array)
class ArrayAdmin(ShownAdmin):
    """Arrays of all users."""

    list_display = ("name", "id", "owner", "project", "state", "size", "waiting", "running", "failed", "created_at")
    list_filter = ("state",)
    list_select_related = ("owner", "project")
    search_fields = ("id", "name", "owner__email")
    date_hierarchy = "created_at"
    actions = ("cancel",)
    hidden = ("request",)  # whose variables may be secrets

    @admin.action(description="Cancel selected arrays", permissions=["superadmin"])
    @confirmed(
        _(
            "Their sessions end with all that is inside the containers, except for data folders, and no more of their "
            "tasks are started."
        ),
        _owners,
    )
    def cancel(self, request: HttpRequest, queryset: QuerySet[Array]) -> None:
        """Cancel these arrays; those that have ended stay so."""
        chosen = list(queryset.filter(state__in=OPEN))
        for array in chosen:
            services.cancel(array, actor=cast(User, request.user))
        text = ngettext("%(count)s array is cancelled.", "%(count)s arrays are cancelled.", len(chosen))
        self.message_user(request, text % {"count": len(chosen)}, messages.SUCCESS)
