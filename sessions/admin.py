"""Administration of sessions, read-only with actions that end them; and the actions on sessions of users and hosts."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

from django.contrib import admin, messages
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST

from accounts.admin import ReadOnlyMixin, ShownInline
from accounts.confirmation import confirmed
from accounts.models import ResourcePolicy, User
from resources.admin import HostAdmin, UserWithGroupsAdmin
from resources.amounts.admin_columns import fgpu_column, memory_column
from resources.models import Host
from sessions.drains import services as drains
from sessions.drains.form import DrainForm
from sessions.ending import services as ending
from sessions.errors import RejectedError
from sessions.extensions import services as extensions
from sessions.idle.admin import IdleRuleAdmin
from sessions.launching import services
from sessions.lifecycle import LIVE, Status
from sessions.limits.policy_admin import PolicyWithUseAdmin
from sessions.models import (
    Conversion,
    Dependency,
    GpuShare,
    IdleRule,
    Lease,
    Mount,
    RequestedEnd,
    Session,
    SessionEvent,
)
from sessions.requeueing import requests as requeue
from sessions.revocation import account_ends
from sessions.words import reason_text
from translation.english import from_english

MAX_REASONS: Final = 10  # shown why a session was left out
MEMORY: Final = memory_column("memory", "memory")
SHARED_MEMORY: Final = memory_column("shared_memory", "shared memory")
FGPU: Final = fgpu_column("fgpu", "fGPU")
GPU_MEMORY: Final = memory_column("gpu_memory", "GPU memory")


@admin.display(description="why", ordering="reason")
def why(subject: Session | SessionEvent) -> str:
    """Return the reason of a status in words, as a column."""
    return from_english(reason_text(subject.reason, subject.detail))


WHY: Final[Any] = why  # Django's types of lists of fields know of names alone


class ReasonFilter(admin.AllValuesFieldListFilter):
    """Reasons, each in words."""

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Yield the choices with words in place of the reasons' names."""
        for choice in super().choices(changelist):
            yield {**choice, "display": from_english(reason_text(str(choice["display"]), ""))}


def _actor(request: HttpRequest) -> User:
    return cast(User, request.user)


def _owners(sessions: Sequence[Session]) -> list[User]:
    return [session.owner for session in sessions]


def _live_sessions(users: Sequence[User]) -> list[str]:
    """Return how many sessions of each are live."""
    live = Session.objects.live().filter(owner__in=users).order_by().values_list("owner").annotate(Count("pk"))
    counts = [dict(live).get(user.pk, 0) for user in users]
    return [ngettext("%(count)d live session", "%(count)d live sessions", count) % {"count": count} for count in counts]


def _wholes(sessions: QuerySet[Session]) -> list[Session]:
    """Return of these sessions one of each cluster: what is done with it is done with all of its members."""
    found = sessions.select_related("owner", "host")
    return list({session.cluster_id or session.pk: session for session in found}.values())


class ReadOnlyAdmin(ReadOnlyMixin, admin.ModelAdmin[Any]):
    """A read-only admin for rows that only services write."""


admin.site.unregister(User)


@admin.register(User)
class UserWithSessionsAdmin(UserWithGroupsAdmin):
    """Users with actions that concern their sessions."""

    actions = (*UserWithGroupsAdmin.actions, "disable", "disable_and_end")

    @admin.action(description="Disable selected users; what runs goes on", permissions=["change"])
    @confirmed(
        _(
            "They cannot sign in any more. What runs for them goes on, what waits is cancelled. "
            "Your own account stays as it is."
        ),
        _live_sessions,
    )
    def disable(self, request: HttpRequest, users: QuerySet[User]) -> None:
        """Disable these accounts but the caller's own; what waits for them is cancelled."""
        self._disable(request, users, ends_sessions=False)

    @admin.action(description="Disable selected users and end their sessions", permissions=["change"])
    @confirmed(
        _("They cannot sign in any more, and all their sessions are ended. Your own account stays as it is."),
        _live_sessions,
    )
    def disable_and_end(self, request: HttpRequest, users: QuerySet[User]) -> None:
        """Disable these accounts but the caller's own, and end what runs for them."""
        self._disable(request, users, ends_sessions=True)

    def _disable(self, request: HttpRequest, users: QuerySet[User], *, ends_sessions: bool) -> None:
        """Disable all users but the caller, and say how many."""
        actor = cast(User, request.user)
        chosen = list(users.exclude(pk=actor.pk))
        for user in chosen:
            account_ends.disable(user, actor=actor, ends_sessions=ends_sessions)
        text = ngettext("%(count)s user is disabled.", "%(count)s users are disabled.", len(chosen))
        self.message_user(request, text % {"count": len(chosen)}, messages.SUCCESS)


admin.site.unregister(Host)


@admin.register(Host)
class HostWithSessionsAdmin(HostAdmin):
    """Hosts with the action that takes them out of service."""

    actions = (*HostAdmin.actions, "drain")

    @admin.action(description="Drain selected hosts: choose what becomes of their sessions", permissions=["change"])
    def drain(self, request: HttpRequest, hosts: QuerySet[Host]) -> HttpResponse | None:
        """Ask until when their sessions may run, or take these hosts out of service."""
        form = DrainForm(request.POST if "reason" in request.POST else None)
        chosen = list(hosts.order_by("name"))
        if not form.is_bound or not form.is_valid():
            context = {
                **self.admin_site.each_context(request),
                "title": gettext("Drain hosts"),
                "form": form,
                "hosts": [(host, drains.sessions_on(host)) for host in chosen],
            }
            return render(request, "admin/resources/host/drain.html", context, status=422 if form.is_bound else 200)
        end_at, reason = form.end_at(), form.cleaned_data["reason"]
        left = sum(len(drains.drain(host, end_at=end_at, reason=reason, actor=_actor(request))) for host in chosen)
        text = ngettext("%(count)d host is drained.", "%(count)d hosts are drained.", len(chosen))
        more = gettext("Sessions left: %(count)d.") % {"count": left}
        self.message_user(request, f"{text % {'count': len(chosen)}} {more}", messages.SUCCESS)
        return None


class EventInline(ShownInline):
    """The timeline of a session."""

    model = SessionEvent
    fields = readonly_fields = ("at", "old_status", "new_status", WHY, "actor")
    related = ("actor",)


class DependencyInline(ShownInline):
    """The sessions and arrays for which a session waits."""

    model = Dependency
    fk_name = "from_session"
    fields = readonly_fields = ("to_session", "to_array", "kind")
    related = ("to_session", "to_array")


class MountInline(ShownInline):
    """The folders of a session."""

    model = Mount
    fields = readonly_fields = ("folder_name", "path", "is_read_only", "is_held_read_only", "is_automatic", "problem")


@admin.register(Session)
class SessionAdmin(ReadOnlyAdmin):
    """All sessions, with actions that end them. Variables are shown by name: their values may be secrets."""

    list_display = (
        *("shown_name", "id", "owner", "status", WHY, "resource_group", "host", "cpu", MEMORY),
        *(FGPU, "created_at", "ended_at"),
    )
    list_filter = (
        *("status", "kind", "result", ("cluster", admin.EmptyFieldListFilter), ("reason", ReasonFilter)),
        *("resource_group", "host", "image"),
    )
    list_select_related = ()
    search_fields = ("id", "cluster__id", "name", "owner__email", "detail", "host__name", "image__reference")
    date_hierarchy = "created_at"
    fieldsets = (
        (None, {"fields": ("shown_name", "id", "cluster", "owner", "kind", "status", "result", WHY, "status_at")}),
        ("Start", {"fields": ("eta", "eta_reason", "not_before")}),
        ("Asked for", {"fields": ("image", "resource_group", "cpu", MEMORY, SHARED_MEMORY, FGPU, GPU_MEMORY)}),
        ("Settings", {"fields": ("variables", "priority", "time_limit", "allow_sudo")}),
        ("Life", {"fields": ("host", "attempt", "avoided_hosts", "container_id", "exit_code")}),
        ("Times", {"fields": ("created_at", "started_at", "ended_at")}),
        ("Output", {"fields": ("log_tail",), "classes": ("collapse",)}),
    )
    inlines = (DependencyInline, MountInline, EventInline)
    actions = ("convert", "extend", "requeue", "end", "force_end")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Session]:
        """Return the sessions; owners, groups and hosts are fetched for those shown, where a join would sort all."""
        sessions: QuerySet[Session] = super().get_queryset(request)
        return sessions.prefetch_related("owner", "resource_group", "host")

    @admin.display(description="name", ordering="name")
    def shown_name(self, session: Session) -> str:
        """Return its name, with which member of its cluster it is."""
        return session.full_name

    @admin.display(description="environment variables")
    def variables(self, session: Session) -> str:
        """Return the names of the variables."""
        return ", ".join(sorted(session.environment)) or "-"

    @admin.action(description="Save as an image: choose its name", permissions=["superadmin"])
    def convert(self, request: HttpRequest, sessions: QuerySet[Session]) -> HttpResponse | None:
        """Go to the page that turns the one chosen session into an image."""
        chosen = list(sessions[:2])
        if len(chosen) == 1 and chosen[0].status == Status.RUNNING:
            return redirect("sessions:convert", chosen[0].pk)
        self.message_user(request, gettext("Choose one session, which runs."), messages.ERROR)
        return None

    @admin.action(description="Extend selected sessions: choose by how much", permissions=["superadmin"])
    def extend(self, request: HttpRequest, sessions: QuerySet[Session]) -> HttpResponse | None:
        """Ask by how much, or let these sessions run longer; their owners' policies do not count."""
        steps = {str(int(step.total_seconds()) // 60): step for step in extensions.STEPS}
        if step := steps.get(request.POST.get("minutes", "")):
            self._try(request, sessions, lambda session: extensions.extend(session.pk, step, actor=_actor(request)))
            return None
        related = sessions.select_related("owner__policy", "project__policy", "resource_group", "host")
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Extend sessions"),
            "sessions": related,
            "steps": steps.items(),
        }
        return render(request, "admin/compute/session/extend.html", context)

    @admin.action(
        description="Requeue: run selected batch sessions and unstarted ones elsewhere", permissions=["superadmin"]
    )
    @confirmed(
        _("What runs in them, or in any member of their clusters, is stopped, and begins anew once they start again."),
        _owners,
    )
    def requeue(self, request: HttpRequest, sessions: QuerySet[Session]) -> None:
        """Return these sessions to the queue; batch sessions that run are stopped first."""
        self._try(request, sessions, lambda session: requeue.requeue(session, actor=_actor(request)))

    @admin.action(description="End selected sessions", permissions=["superadmin"])
    @confirmed(
        _(
            "What runs in them is stopped, and files outside of data folders are lost. With one member of a cluster "
            "all its others end. You can undo it for five seconds; where that was asked for already, they end at once."
        ),
        _owners,
    )
    def end(self, request: HttpRequest, sessions: QuerySet[Session]) -> None:
        """End these sessions as their owners would, once that cannot be undone any more."""
        live = _wholes(sessions.filter(status__in=LIVE))
        held = [session for session in live if ending.request_end(session, actor=_actor(request))]
        text = gettext("Of the selected sessions, %(count)s of %(all)s were live and end within %(seconds)s seconds.")
        values = {"count": len(live), "all": len(sessions), "seconds": ending.UNDO_SPAN.seconds}
        undo = reverse("admin:compute_session_undo_ends") if held else ""
        self.message_user(request, text % values, messages.SUCCESS, extra_tags=undo)

    @admin.action(description="Force end: free the resources without waiting for the host", permissions=["superadmin"])
    @confirmed(
        _(
            "They are ended at once, and others get their resources, even where a host does not respond. What runs in "
            "them there goes on until it does; files outside of data folders are lost. With one member of a cluster "
            "all its others end."
        ),
        _owners,
    )
    def force_end(self, request: HttpRequest, sessions: QuerySet[Session]) -> None:
        """End these sessions and free their resources at once, for hosts that do not respond."""
        live = _wholes(sessions.filter(status__in=LIVE))
        for session in live:
            services.force_end(session, actor=_actor(request))
        text = gettext("Of the selected sessions, %(count)s of %(all)s were live and are ended.")
        self.message_user(request, text % {"count": len(live), "all": len(sessions)}, messages.SUCCESS)

    def get_urls(self) -> list[URLPattern]:
        """Return the pages of sessions, with what undoes ends."""
        view = self.admin_site.admin_view(require_POST(self.undo_ends))
        return [path("undo-ends/", view, name="compute_session_undo_ends"), *super().get_urls()]

    def undo_ends(self, request: HttpRequest) -> HttpResponse:
        """Let the sessions go on whose end this administrator has asked for."""
        waiting = RequestedEnd.objects.filter(actor=_actor(request)).values_list("pk", flat=True)
        undone = ending.undo(list(waiting), actor=_actor(request))
        self.message_user(request, ending.undone_text(undone), messages.SUCCESS)
        return redirect("admin:compute_session_changelist")

    def _try(self, request: HttpRequest, sessions: QuerySet[Session], verb: Callable[[Session], object]) -> None:
        """Apply the verb to each session, and say for how many that was possible, and why not for the others."""
        refused = []
        chosen = _wholes(sessions)
        for session in chosen:
            try:
                verb(session)
            except RejectedError as error:
                refused.append(f"“{session.full_name}”: {' '.join(error.errors.values())}")
        if done := len(chosen) - len(refused):
            text = ngettext("Done for %(count)d session.", "Done for %(count)d sessions.", done)
            self.message_user(request, text % {"count": done}, messages.SUCCESS)
        for text in refused[:MAX_REASONS]:
            self.message_user(request, text, messages.ERROR)
        if more := len(refused[MAX_REASONS:]):
            text = ngettext("%(count)d more was left out.", "%(count)d more were left out.", more)
            self.message_user(request, text % {"count": more}, messages.ERROR)


@admin.register(Lease)
class LeaseAdmin(ReadOnlyAdmin):
    """Current leases of hosts."""

    list_display = ("session", "host", "cpu", "core_milli", MEMORY)
    list_filter = ("host",)
    list_select_related = ("session", "host")
    search_fields = ("session__id", "session__name", "session__owner__email", "host__name")


@admin.register(GpuShare)
class GpuShareAdmin(ReadOnlyAdmin):
    """Current shares of GPUs."""

    list_display = ("lease", "gpu", fgpu_column("milli", "fGPU"))
    list_filter = ("gpu__host",)
    list_select_related = ("lease", "gpu")
    search_fields = ("lease__session__id", "lease__session__name", "gpu__uuid", "gpu__host__name")


@admin.register(SessionEvent)
class SessionEventAdmin(ReadOnlyAdmin):
    """Every change of status, as an audit log."""

    list_display = ("at", "session", "old_status", "new_status", WHY, "actor")
    list_filter = ("new_status", ("reason", ReasonFilter))
    list_select_related = ("session", "actor")
    search_fields = ("session__id", "session__name", "session__owner__email", "detail")
    date_hierarchy = "at"


@admin.register(Conversion)
class ConversionAdmin(ReadOnlyAdmin):
    """Sessions that were saved as images, or are to be."""

    list_display = ("created_at", "session", "reference", "state", "progress", "requested_by", "host", "ended_at")
    list_filter = ("state", "host")
    list_select_related = ("session", "requested_by", "host")
    search_fields = ("session__id", "session__name", "session__owner__email", "reference", "host__name")
    date_hierarchy = "created_at"


admin.site.register(IdleRule, IdleRuleAdmin)
admin.site.unregister(ResourcePolicy)
admin.site.register(ResourcePolicy, PolicyWithUseAdmin)
