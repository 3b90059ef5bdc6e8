"""Administration of idle rules, with what each would have ended last week."""

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext

from sessions.idle.preview import preview
from sessions.models import IdleRule


class IdleRuleAdmin(admin.ModelAdmin[IdleRule]):
    """What is done with idle sessions."""

    list_display = (
        *("name", "is_enabled", "idle_timeout", "low_use_window", "low_use_cpu_percent", "low_use_gpu_percent"),
        *("warning", "max_snooze", "action", "last_week"),
    )
    list_filter = ("is_enabled", "action")
    search_fields = ("name",)
    filter_horizontal = ("policies", "projects", "resource_groups")

    @admin.display(description="last week")
    def last_week(self, rule: IdleRule) -> str:
        """Return a link to what the rule would have ended."""
        return format_html('<a href="{}">{}</a>', _preview_url(rule), gettext("what it would have ended"))

    def get_urls(self) -> list[URLPattern]:
        """Return the pages of idle rules, with that of the last week."""
        view = self.admin_site.admin_view(self.preview_view)
        return [path("<int:rule_id>/preview/", view, name="compute_idlerule_preview"), *super().get_urls()]

    def preview_view(self, request: HttpRequest, rule_id: int) -> HttpResponse:
        """Show which sessions the rule would have ended in the last week."""
        rule = get_object_or_404(self.get_queryset(request), pk=rule_id)
        if not self.has_view_permission(request, rule):
            return redirect("admin:index")
        found = preview(rule, timezone.now())
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("What %(rule)s would have ended last week") % {"rule": rule},
            "rule": rule,
            "found": found,
            "saved": f"{found.saved_milli_seconds / 3_600_000:.1f}" if found.saved_milli_seconds else "",
        }
        return render(request, "admin/compute/idlerule/preview.html", context)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save, and point to the preview while the rule is off."""
        super().save_related(request, form, formsets, change)
        if not form.instance.is_enabled:
            text = gettext("The rule is off. See first what it would have ended last week:")
            link = format_html('{} <a href="{}">{}</a>', text, _preview_url(form.instance), form.instance)
            self.message_user(request, link, messages.INFO)


def _preview_url(rule: IdleRule) -> str:
    return reverse("admin:compute_idlerule_preview", args=[rule.pk])
