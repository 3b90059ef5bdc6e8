"""Pages of projects: the user's own, or all for a superadmin, and of each its members, limits, sessions and use."""

from datetime import timedelta
from typing import Any, Final

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import Count, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from accounts.models import Membership, Project, ProjectQuerySet, ProjectRole, User
from accounts.requests import UserRequest, signed_in_page
from pages.overview.allowance import allowances_of
from pages.overview.project_forms import ROLE_LABELS, NewMemberForm
from sessions.ending import services as ending
from sessions.lifecycle import HOSTED, LIVE, Status
from sessions.models import Session, visible_to
from sessions.projects import services as projects
from sessions.usage.report import ReportBy, report_of

PAGE_SIZE: Final = 25  # projects
SESSIONS_SHOWN: Final = 50
USAGE_DAYS: Final = 30


@signed_in_page
def project_list(request: UserRequest) -> HttpResponse:
    """Show the projects with what each holds; return only the live part to htmx. A constant number of queries."""
    search = request.GET.get("q", "").replace("\0", "").strip()
    found = _with_counts(Project.objects.visible_to(request.user), request.user)
    if search:
        found = found.filter(Q(name__icontains=search) | Q(description__icontains=search))
    page = Paginator(found.order_by("name"), PAGE_SIZE).get_page(request.GET.get("page"))
    context = {"page": page, "search": search, "role_labels": ROLE_LABELS}
    return render(request, "overview/_projects.html" if request.htmx else "overview/projects.html", context)


@signed_in_page
def detail(request: UserRequest, project_id: int) -> HttpResponse:
    """Show one project; return only the live part to htmx."""
    return _detail(request, _visible(request.user, project_id), NewMemberForm())


@require_POST
@login_required
def add_member(request: UserRequest, project_id: int) -> HttpResponse:
    """Add a member, or invite one; a refused one is shown again with the reason, as 422."""
    project, form = _managed(request.user, project_id), NewMemberForm(request.POST)
    if form.is_valid() and (made := form.save(project, request.user)):
        if isinstance(made, Membership):
            messages.success(request, _("%(user)s is a member now.") % {"user": made.user.email})
        else:
            messages.success(request, _("%(email)s is invited by mail.") % {"email": made.email})
        return redirect("overview:project", project.pk)
    return _detail(request, _visible(request.user, project_id), form)


@require_POST
@login_required
def withdraw_invitation(request: UserRequest, project_id: int, invitation_id: int) -> HttpResponse:
    """Withdraw an invitation to the project."""
    project = _managed(request.user, project_id)
    invitation = get_object_or_404(projects.open_invitations(project), pk=invitation_id)
    projects.withdraw_invitation(invitation, actor=request.user)
    messages.success(request, _("The invitation of %(email)s is withdrawn.") % {"email": invitation.email})
    return redirect("overview:project", project.pk)


@require_POST
@login_required
def set_role(request: UserRequest, project_id: int, member_id: int) -> HttpResponse:
    """Make a member a manager, or a manager a member."""
    project = _managed(request.user, project_id)
    membership = get_object_or_404(project.memberships.select_related("user"), pk=member_id)
    role = next((role for role in ProjectRole if role.value == request.POST.get("role")), None)
    if role is None:
        raise Http404
    projects.set_role(membership, role, actor=request.user)
    messages.success(request, _("The role of %(user)s is changed.") % {"user": membership.user.email})
    return redirect("overview:project", project.pk)


@require_POST
@login_required
def remove_member(request: UserRequest, project_id: int, member_id: int) -> HttpResponse:
    """Remove a member, or leave the project."""
    project = _visible(request.user, project_id)
    membership = get_object_or_404(project.memberships.select_related("user", "project"), pk=member_id)
    is_own = membership.user_id == request.user.pk
    if not is_own:
        _managed(request.user, project_id)
    projects.remove_member(membership, actor=request.user)
    if is_own and not request.user.is_superuser:
        messages.success(request, _("You have left the project %(name)s.") % {"name": project.name})
        return redirect("overview:projects")
    messages.success(request, _("%(user)s is no member any more.") % {"user": membership.user.email})
    return redirect("overview:project", project.pk)


def _detail(request: UserRequest, project: Project, form: NewMemberForm) -> HttpResponse:
    """Render the page of a project; its number of queries does not depend on what there is."""
    user = request.user
    live = Session.objects.visible_to(user).mains_in(LIVE).filter(project=project)
    related = live.with_members().select_related(
        *("start_estimate", "requested_end", "owner__policy", "project__policy", "image", "host"),
        *("resource_group", "lease"),
    )
    sessions = list(related.order_by("-created_at", "-pk")[:SESSIONS_SHOWN])
    ends = [end for end in map(ending.requested_end_of, sessions) if end is not None]
    today = timezone.now().date()
    since = today - timedelta(days=USAGE_DAYS - 1)
    visible = visible_to(user) & Q(project=project)
    is_manager = user.is_superuser or project.my_role == ProjectRole.MANAGER.value  # type: ignore[attr-defined]  # annotated
    context: dict[str, Any] = {
        "project": project,
        "is_manager": is_manager,
        "invitations": projects.open_invitations(project) if is_manager else (),
        "members": project.memberships.select_related("user").order_by("user__email"),
        "role_labels": ROLE_LABELS,
        "form": form,
        "allowances": allowances_of(project),
        "folders": project.folders.live().select_related("root").order_by("name"),
        "groups": project.resource_groups.filter(is_active=True).order_by("name"),
        "sessions": sessions,
        "ending": {end.pk for end in ends},
        "undoable": {end.pk for end in ends if end.may_be_undone_by(user)},
        "session_count": live.count(),
        "report": report_of(visible, since=since, until=today, by=ReportBy.USER, now=timezone.now()),
        "usage_days": USAGE_DAYS,
    }
    template = "overview/_project.html" if request.htmx else "overview/project.html"
    return render(request, template, context, status=422 if form.is_bound else 200)


def _with_counts(found: ProjectQuerySet, user: User) -> ProjectQuerySet:
    """Return the projects with the number of members, and of sessions by whether they hold resources, and the role."""
    members = Membership.objects.filter(project=OuterRef("pk")).order_by()
    sessions = Session.objects.mains().filter(project=OuterRef("pk")).order_by().values("project")
    return found.select_related("policy").annotate(
        my_role=Subquery(members.filter(user=user).values("role")),
        member_count=Coalesce(Subquery(members.values("project").annotate(n=Count("pk")).values("n")), 0),
        held_count=Coalesce(Subquery(sessions.filter(status__in=HOSTED).annotate(n=Count("pk")).values("n")), 0),
        pending_count=Coalesce(Subquery(sessions.filter(status=Status.PENDING).annotate(n=Count("pk")).values("n")), 0),
    )


def _visible(user: User, project_id: int) -> Project:
    """Return the project with its counts; raise Http404 unless the user may see it."""
    return get_object_or_404(_with_counts(Project.objects.visible_to(user), user), pk=project_id)


def _managed(user: User, project_id: int) -> Project:
    """Return the project; raise Http404 unless the user manages it."""
    return get_object_or_404(Project.objects.managed_by(user), pk=project_id)
