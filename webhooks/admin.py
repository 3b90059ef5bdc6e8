"""Administration of webhooks: superadmins see where the platform sends, and disable what should not be."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _

from accounts.admin import NoAddMixin
from webhooks.delivery import deliveries
from webhooks.models import Webhook


@admin.register(Webhook)
class WebhookAdmin(NoAddMixin, admin.ModelAdmin[Webhook]):
    """Webhooks of all users, without their secrets."""

    list_display = ("__str__", "owner", "url", "covers_all", "is_enabled", "failing_since")
    list_filter = ("is_enabled", "covers_all")
    list_select_related = ("owner",)
    search_fields = ("name", "url", "owner__email")
    fields = ("owner", "name", "url", "event_types", "covers_all", "is_enabled", "disabled_reason", "failing_since")
    readonly_fields = fields
    actions = ("disable",)

    @admin.action(description="Disable selected webhooks", permissions=["change"])
    def disable(self, request: HttpRequest, queryset: QuerySet[Webhook]) -> None:
        """Send them nothing more, and tell their owners."""
        for webhook in queryset:
            deliveries.disable(webhook, "An administrator disabled it.")
        self.message_user(request, _("Their owners are told, and may enable them again."))
