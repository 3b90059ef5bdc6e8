"""What the administration shows below an elastic pool: the hosts that it has, and what became of those it had."""

from typing import Any

from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext, ngettext

from accounts.admin import ShownInline
from resources.hosts.elastic_pools import events_of
from resources.models import OVER, ElasticHost, ElasticPool
from translation.english import from_english


class LiveHostInline(ShownInline):
    """The hosts of a pool that have not been given back."""

    model = ElasticHost
    verbose_name_plural = "hosts that it has"
    fields = readonly_fields = (
        *("made_host", "type_name", "state_in_words", "sessions", "cost_per_hour"),
        *("created_at", "expected_at", "idle_since", "ends_at"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[ElasticHost]:
        """Return those that have not been given back, with the number of sessions that each has."""
        live: QuerySet[ElasticHost] = super().get_queryset(request).exclude(state__in=OVER).select_related("host")
        return live.annotate(count=Count("host__sessions", filter=Q(host__sessions__ended_at=None)))

    @admin.display(description="name")
    def made_host(self, row: ElasticHost) -> str:
        """Return the name, with a link to its row."""
        address = reverse("admin:resources_elastichost_change", args=[row.pk])
        return format_html('<a href="{}">{}</a>', address, row.name)

    @admin.display(description="state")
    def state_in_words(self, row: ElasticHost) -> str:
        """Return the state, and why it is in it."""
        state = gettext(str(row.get_state_display()))
        return f"{state}: {from_english(row.reason)}" if row.reason else state

    @admin.display(description="sessions")
    def sessions(self, row: Any) -> str:
        """Return how many sessions run or are parked there, with a link to them."""
        if row.host is None:
            return ""
        text = ngettext("%(count)s session", "%(count)s sessions", row.count) % {"count": row.count}
        return format_html('<a href="{}">{}</a>', reverse("overview:host", args=[row.host.name]), text)


def events_table(pool: ElasticPool) -> str:
    """Return a table of what has happened to the hosts of a pool, the latest first."""
    rows = [
        (
            date_format(event.at, "Y-m-d H:i"),
            reverse("admin:resources_elastichost_change", args=[event.host.pk]),
            event.host.name,
            gettext(str(event.event.label)),
            from_english(event.reason),
        )
        for event in events_of(pool)
    ]
    if not rows:
        return gettext("Nothing yet.")
    body = format_html_join("", '<tr><td>{}</td><td><a href="{}">{}</a></td><td>{}</td><td>{}</td></tr>', rows)
    names = gettext("time (UTC)"), gettext("host"), gettext("event"), gettext("reason")
    head = format_html_join("", '<th scope="col">{}</th>', ((name,) for name in names))
    table = '<div class="admin-scroll"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    return format_html(table, head, body)
