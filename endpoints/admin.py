"""Administration of apps: read-only, with actions that unpublish, revoke and close."""

from collections.abc import Sequence
from typing import Final, cast

from django.contrib import admin, messages
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from accounts.admin import ShownInline
from accounts.confirmation import confirmed
from accounts.models import User
from endpoints import services
from resources.amounts.admin_columns import value_column
from sessions.admin import ReadOnlyAdmin
from sessions.models import Endpoint, EndpointEvent, ShareLink

LINKS: Final = value_column("link_count", "share links")


def _sessions(endpoints: Sequence[Endpoint]) -> list[str]:
    return [f"{each.title} · {each.session.name} · {each.session.owner}" for each in endpoints]


class EndpointEventInline(ShownInline):
    """The app's audit record: opening, publishing, sharing, and use by superadmins."""

    model = EndpointEvent
    fields = readonly_fields = ("at", "what", "actor")
    related = ("actor",)


@admin.register(Endpoint)
class EndpointAdmin(ReadOnlyAdmin):
    """Opened apps and who may use them; actions close them and revoke their share links. Tokens are not shown."""

    list_display = (
        *("label", "title", "session", "session_status", "state", "is_public", "public_until", LINKS),
        *("listen_port", "opened_at"),
    )
    list_filter = ("session__status", "state", "is_public", "app")
    list_select_related = ("session__owner",)
    ordering = ("-opened_at",)
    search_fields = ("session__id", "session__name", "session__owner__email", "app", "title")
    date_hierarchy = "opened_at"
    fields = (
        *("label", "title", "session", "port", "state", "detail", "epoch", "is_public", "public_until", LINKS),
        *("listen_port", "opened_by", "opened_at"),
    )
    inlines = (EndpointEventInline,)
    actions = ("unpublish", "revoke_links", "close")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Endpoint]:
        """Return the endpoints with the number of links that open them."""
        valid = ShareLink.objects.valid().filter(endpoint=OuterRef("pk")).order_by().values("endpoint")
        counted = Subquery(valid.annotate(number=Count("pk")).values("number"))
        found: QuerySet[Endpoint] = super().get_queryset(request).annotate(link_count=Coalesce(counted, 0))
        return found

    @admin.display(description="session's status", ordering="session__status")
    def session_status(self, endpoint: Endpoint) -> str:
        """Return the status of the session; once it has ended, the app is unreachable, public or not."""
        return endpoint.session.status

    @admin.action(description="Close selected apps to people without an account", permissions=["superadmin"])
    @confirmed(_("Only people with an account who may use them reach them from now on."), _sessions)
    def unpublish(self, request: HttpRequest, chosen: QuerySet[Endpoint]) -> None:
        """Unpublish these apps."""
        public = list(chosen.filter(is_public=True))
        for endpoint in public:
            services.unpublish(endpoint, actor=cast(User, request.user))
        text = gettext("Of the selected apps, %(count)s of %(all)s were public and are so no longer.")
        self.message_user(request, text % {"count": len(public), "all": len(chosen)}, messages.SUCCESS)

    @admin.action(description="Void the share links of selected apps", permissions=["superadmin"])
    @confirmed(_("Who was given a link to them cannot use them any more."), _sessions)
    def revoke_links(self, request: HttpRequest, chosen: QuerySet[Endpoint]) -> None:
        """Revoke all share links to these apps, and the cookies issued by them."""
        links = list(ShareLink.objects.filter(endpoint__in=chosen, revoked_at=None))
        for link in links:
            services.revoke(link, actor=cast(User, request.user))
        text = ngettext("%(count)s link is void.", "%(count)s links are void.", len(links))
        self.message_user(request, text % {"count": len(links)}, messages.SUCCESS)

    @admin.action(description="Close selected apps to everybody", permissions=["superadmin"])
    @confirmed(_("Nobody reaches them until they are opened again; their programs go on."), _sessions)
    def close(self, request: HttpRequest, chosen: QuerySet[Endpoint]) -> None:
        """Close these apps to everybody until they are opened again."""
        for endpoint in chosen:
            services.close(endpoint, actor=cast(User, request.user))
        text = ngettext("%(count)s app closed.", "%(count)s apps closed.", len(chosen))
        self.message_user(request, text % {"count": len(chosen)}, messages.SUCCESS)
