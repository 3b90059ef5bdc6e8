"""Administration of launch templates: shown, and they can be deleted; pages and API change them, in versions."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from accounts.admin import ReadOnlyMixin, ShownInline
from specs.models import LaunchTemplate, TemplateVersion


class TemplateVersionInline(ShownInline):
    """What a template said."""

    model = TemplateVersion
    related = ("author",)
    fields = ("number", "author", "created_at", "text")
    readonly_fields = ("created_at",)


@admin.register(LaunchTemplate)
class LaunchTemplateAdmin(ReadOnlyMixin, admin.ModelAdmin[LaunchTemplate]):
    """Launch templates of all users and projects, and of everybody."""

    list_display = ("name", "id", "owner", "project", "kind", "version", "launches", "updated_at")
    list_filter = ("kind", "project")
    list_select_related = ("owner", "project")
    search_fields = ("id", "name", "description", "owner__email", "project__name")
    inlines = (TemplateVersionInline,)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user is a superadmin."""
        return bool(request.user.is_superuser)
