"""Administration of launch templates: shown, and they can be deleted; pages and API change them, in versions."""

from django.contrib import admin

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

    has_delete_permission = ReadOnlyMixin.has_superadmin_permission
