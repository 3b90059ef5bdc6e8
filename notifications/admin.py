"""Administration of announcements; notifications are their readers' own."""

from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest

from notifications.models import Announcement
from resources.amounts.admin_columns import value_column


@admin.register(Announcement)
class AnnouncementAdmin(admin.ModelAdmin[Announcement]):
    """What everybody is told on every page."""

    list_display = (
        *("text", "level", "starts_at", "ends_at", "created_by", value_column("dismissals_made", "dismissed by")),
    )
    list_filter = ("level", "starts_at")
    list_select_related = ("created_by",)
    search_fields = ("text",)
    fields = ("text", "level", "resource_groups", "starts_at", "ends_at")
    filter_horizontal = ("resource_groups",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Announcement]:
        """Return the announcements with the number of those who have dismissed them."""
        return super().get_queryset(request).annotate(dismissals_made=Count("dismissals"))

    def save_model(self, request: HttpRequest, obj: Announcement, form: Any, change: bool) -> None:
        """Note who wrote it."""
        if not change:
            obj.created_by = request.user  # type: ignore[assignment]  # an administrator is signed in
        super().save_model(request, obj, form, change)
