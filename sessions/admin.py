"""Administration of sessions: read-only, with actions that end them."""

from collections.abc import Callable
from typing import Any, cast

from django.contrib import admin, messages
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest

from accounts.models import User
from endpoints import services as endpoints
from resources.units import fgpu_text, size_text
from sessions import services
from sessions.models import Endpoint, EndpointEvent, GpuShare, Lease, Session, SessionEvent, ShareLink


class ReadOnlyAdmin(admin.ModelAdmin[Any]):
    """A read-only admin for rows that only services write."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: rows are created by services."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: rows are changed by services."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: a lease is freed with its session's end, and records stay."""
        return False


class EventInline(admin.TabularInline[SessionEvent, Session]):
    """The timeline of a session."""

    model = SessionEvent
    fields = readonly_fields = ("at", "old_status", "new_status", "reason", "detail", "actor")
    can_delete = False
    extra = 0

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: events are written by changes of status."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[SessionEvent]:
        """Return the events with their actors."""
        return super().get_queryset(request).select_related("actor")


@admin.register(Session)
class SessionAdmin(ReadOnlyAdmin):
    """All sessions, with actions that end them. Variables are shown by name: their values may be secrets."""

    list_display = (
        *("name", "id", "owner", "status", "reason", "resource_group", "host", "cpu", "memory_text"),
        *("fgpu_text", "created_at", "ended_at"),
    )
    list_filter = ("status", "kind", "result", "reason", "resource_group", "host", "image")
    list_select_related = ("owner", "resource_group", "host")
    search_fields = ("id", "name", "owner__email", "detail")
    date_hierarchy = "created_at"
    fieldsets = (
        (None, {"fields": ("name", "id", "owner", "kind", "status", "result", "reason", "detail", "status_at")}),
        ("Start", {"fields": ("eta", "eta_reason", "not_before", "depends_on")}),
        ("Asked for", {"fields": ("image", "resource_group", "cpu", "memory_text", "shared_memory_text", "fgpu_text")}),
        ("Settings", {"fields": ("variables", "priority", "time_limit", "allow_sudo")}),
        ("Life", {"fields": ("host", "attempt", "avoided_host", "container_id", "exit_code")}),
        ("Times", {"fields": ("created_at", "started_at", "ended_at")}),
        ("Output", {"fields": ("log_tail",), "classes": ("collapse",)}),
    )
    inlines = (EventInline,)
    actions = ("end", "force_end")

    @admin.display(description="memory", ordering="memory")
    def memory_text(self, session: Session) -> str:
        """Return the memory as text."""
        return size_text(session.memory)

    @admin.display(description="shared memory")
    def shared_memory_text(self, session: Session) -> str:
        """Return the shared memory as text."""
        return size_text(session.shared_memory)

    @admin.display(description="fGPU", ordering="fgpu")
    def fgpu_text(self, session: Session) -> str:
        """Return the fGPU as a decimal."""
        return fgpu_text(session.fgpu)

    @admin.display(description="environment variables")
    def variables(self, session: Session) -> str:
        """Return the names of the variables."""
        return ", ".join(sorted(session.environment)) or "-"

    @admin.action(description="End selected sessions", permissions=["end"])
    def end(self, request: HttpRequest, sessions: QuerySet[Session]) -> None:
        """End these sessions as their owners would."""
        self._end(request, sessions, services.terminate)

    @admin.action(description="Force end: free the resources without waiting for the host", permissions=["end"])
    def force_end(self, request: HttpRequest, sessions: QuerySet[Session]) -> None:
        """End these sessions and free their resources at once, for hosts that do not respond."""
        self._end(request, sessions, services.force_end)

    def has_end_permission(self, request: HttpRequest) -> bool:
        """Return whether the user is a superadmin, who may end all sessions."""
        return cast(User, request.user).is_superuser

    def _end(self, request: HttpRequest, sessions: QuerySet[Session], verb: Callable[..., None]) -> None:
        live = [session for session in sessions.select_related("owner", "host") if not session.is_final]
        for session in live:
            verb(session, actor=request.user)
        self.message_user(request, f"{len(live)} of {len(sessions)} were live and are ended.", messages.SUCCESS)


@admin.register(Lease)
class LeaseAdmin(ReadOnlyAdmin):
    """Current leases of hosts."""

    list_display = ("session", "host", "cpu", "memory_text")
    list_filter = ("host",)
    list_select_related = ("session", "host")
    search_fields = ("session__id", "session__name", "session__owner__email", "host__name")

    @admin.display(description="memory", ordering="memory")
    def memory_text(self, lease: Lease) -> str:
        """Return the memory as text."""
        return size_text(lease.memory)


@admin.register(GpuShare)
class GpuShareAdmin(ReadOnlyAdmin):
    """Current shares of GPUs."""

    list_display = ("lease", "gpu", "fgpu_text")
    list_filter = ("gpu__host",)
    list_select_related = ("lease", "gpu")
    search_fields = ("lease__session__id", "lease__session__name", "gpu__uuid")

    @admin.display(description="fGPU", ordering="milli")
    def fgpu_text(self, share: GpuShare) -> str:
        """Return the share as a decimal."""
        return fgpu_text(share.milli)


@admin.register(SessionEvent)
class SessionEventAdmin(ReadOnlyAdmin):
    """Every change of status, as an audit log."""

    list_display = ("at", "session", "old_status", "new_status", "reason", "detail", "actor")
    list_filter = ("new_status", "reason")
    list_select_related = ("session", "actor")
    search_fields = ("session__id", "session__name", "session__owner__email", "detail")
    date_hierarchy = "at"


class EndpointEventInline(admin.TabularInline[EndpointEvent, Endpoint]):
    """Who opened, published and shared the app, and which superadmins used it."""

    model = EndpointEvent
    fields = readonly_fields = ("at", "what", "actor")
    can_delete = False
    extra = 0

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """The record is written by the services alone."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[EndpointEvent]:
        """Return the events with their actors."""
        return super().get_queryset(request).select_related("actor")


@admin.register(Endpoint)
class EndpointAdmin(ReadOnlyAdmin):
    """The apps that were opened, to whom; they can be closed here, and their share links voided. Tokens stay unseen."""

    list_display = (
        "label",
        "title",
        "session",
        "session_status",
        "state",
        "is_public",
        "public_until",
        "links",
        "listen_port",
        "opened_at",
    )
    list_filter = ("session__status", "state", "is_public", "app")
    list_select_related = ("session",)
    ordering = ("-opened_at",)
    search_fields = ("session__id", "session__name", "session__owner__email", "app", "title")
    date_hierarchy = "opened_at"
    fields = (
        *("label", "title", "session", "port", "state", "detail", "epoch", "is_public", "public_until", "links"),
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
        """Return the status of its session: with a session that has ended, nothing leads to the app, public or not."""
        return endpoint.session.status

    @admin.display(description="share links", ordering="link_count")
    def links(self, endpoint: Any) -> int:
        """Return how many links open it now."""
        count: int = endpoint.link_count
        return count

    @admin.action(description="Close selected apps to people without an account", permissions=["end"])
    def unpublish(self, request: HttpRequest, chosen: QuerySet[Endpoint]) -> None:
        """Make these apps public no longer."""
        public = list(chosen.filter(is_public=True))
        for endpoint in public:
            endpoints.unpublish(endpoint, actor=cast(User, request.user))
        self.message_user(
            request, f"{len(public)} of {len(chosen)} were public and are so no longer.", messages.SUCCESS
        )

    @admin.action(description="Void the share links of selected apps", permissions=["end"])
    def revoke_links(self, request: HttpRequest, chosen: QuerySet[Endpoint]) -> None:
        """Void all links to these apps, and what they have opened."""
        links = list(ShareLink.objects.filter(endpoint__in=chosen, revoked_at=None))
        for link in links:
            endpoints.revoke(link, actor=cast(User, request.user))
        self.message_user(request, f"{len(links)} links are void.", messages.SUCCESS)

    @admin.action(description="Close selected apps to everybody", permissions=["end"])
    def close(self, request: HttpRequest, chosen: QuerySet[Endpoint]) -> None:
        """Let no way lead to these apps until they are opened again."""
        for endpoint in chosen:
            endpoints.close(endpoint, actor=cast(User, request.user))
        self.message_user(request, f"{len(chosen)} closed.", messages.SUCCESS)

    def has_end_permission(self, request: HttpRequest) -> bool:
        """Superadmins may close everybody's apps."""
        return cast(User, request.user).is_superuser
