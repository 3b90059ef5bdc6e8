"""Operations on projects and their members, for pages and API. Each writes the audit log."""

import logging
from collections.abc import Iterable
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Exists, OuterRef, ProtectedError, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from accounts import audit
from accounts.invitations import services as invitations
from accounts.models import AccountInvitation, Membership, Project, ProjectRole, ResourcePolicy, User
from resources.kick import kick_scheduler
from resources.models import ResourceGroup
from sessions import notify
from sessions.errors import GENERAL, RejectedError
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Session

logger = logging.getLogger(__name__)

MAX_MEMBERS: Final = 1000  # of one project
MAX_INVITED: Final = 100  # addresses to one project that have not accepted yet
SETTINGS: Final = ("name", "description", "policy", "share_weight", "is_active")


def create(values: dict[str, Any], groups: Iterable[ResourceGroup] = (), *, actor: User) -> Project:
    """Create a project from values of SETTINGS. Raises RejectedError with a message per field."""
    project = Project(**values)
    _validate(project)
    with audit.act(actor, "added") as made:
        project.save()
        project.resource_groups.set(groups)
        made.append(project)
    return project


def change(
    project: Project, values: dict[str, Any], groups: Iterable[ResourceGroup] | None = None, *, actor: User
) -> None:
    """Change values of SETTINGS, and the resource groups granted to it unless `groups` is None.

    What waits is looked at again at once; what runs goes on. Raises RejectedError with a message per field.
    """
    for name, value in values.items():
        setattr(project, name, value)
    _validate(project)
    with audit.act(actor, "changed", project):
        project.save()
        if groups is not None:
            project.resource_groups.set(groups)
        kick_scheduler()


def delete(project: Project, *, actor: User) -> None:
    """Delete a project that has no session, ended or not, deployment, array or folder. Raises RejectedError else."""
    try:
        with audit.act(actor, "deleted", project):
            project.delete()
    except ProtectedError as error:
        message = _(
            "Sessions, deployments, arrays or data folders belong to the project, so that it can only be made inactive."
        )
        raise RejectedError({GENERAL: message}) from error


def add_member(project: Project, user: User, role: ProjectRole = ProjectRole.MEMBER, *, actor: User) -> Membership:
    """Make a user a member of a project, and return the membership. Raises RejectedError (`email`)."""
    if not user.is_active:
        raise RejectedError({"email": _("This account is disabled.")})
    with audit.act(actor, "added") as made:
        Project.objects.select_for_update(no_key=True).get(pk=project.pk)  # one addition at a time
        if project.memberships.filter(user=user).exists():
            raise RejectedError({"email": _("%(user)s is a member already.") % {"user": user}})
        if project.memberships.count() >= MAX_MEMBERS:
            raise RejectedError({"email": _("A project has at most %(count)d members.") % {"count": MAX_MEMBERS}})
        membership = Membership.objects.create(project=project, user=user, role=role.value)
        made.append(membership)
        notify.account_changed(user.pk)
    logger.info("project %s: user %s added as %s", project.pk, user.pk, role.value)
    return membership


def set_role(membership: Membership, role: ProjectRole, *, actor: User) -> None:
    """Make a member a manager, or a manager a member."""
    with audit.act(actor, "changed", membership):
        membership.role = role.value
        membership.save(update_fields=["role"])
        notify.account_changed(membership.user_id)


def remove_member(membership: Membership, *, actor: User) -> None:
    """End a membership: what the user has waiting for the project is cancelled, and what runs goes on."""
    user_id, project = membership.user_id, membership.project
    with audit.act(actor, "deleted", membership):
        membership.delete()
        notify.account_changed(user_id)
    cancel_of_former_members(project)
    logger.info("project %s: user %s removed", project.pk, user_id)


def open_invitations(project: Project) -> QuerySet[AccountInvitation]:
    """Return the invitations to a project that can still be accepted."""
    found = AccountInvitation.objects.filter(project=project, accepted_at=None, expires_at__gt=timezone.now())
    return found.order_by("email")


def invite(project: Project, email: str, *, actor: User) -> AccountInvitation:
    """Mail an address without an account a link, by which its reader makes one and becomes a member; return it.

    A new account has the default policy. An address that is invited to this project already gets a new link. The
    link is not returned: whoever has it speaks for the address. Raises RejectedError (`email`).
    """
    with transaction.atomic():
        Project.objects.select_for_update(no_key=True).get(pk=project.pk)  # one addition at a time
        former = invitations.pending_for(email)
        if former is not None and former.project_id != project.pk:
            raise RejectedError({"email": _("This address is invited already, but not to this project.")})
        if former is None and open_invitations(project).count() >= MAX_INVITED:
            text = _("At most %(count)d addresses can be invited at a time.")
            raise RejectedError({"email": text % {"count": MAX_INVITED}})
        policy = former.policy if former else ResourcePolicy.default()
        try:
            made, _link = invitations.invite(email, policy=policy, project=project, by=actor)
        except invitations.InvitationError as error:
            raise RejectedError({"email": str(error)}) from error
    return made


def withdraw_invitation(invitation: AccountInvitation, *, actor: User) -> None:
    """Delete an invitation: its link is void."""
    with audit.act(actor, "withdraw invitation", invitation):
        invitation.delete()


def cancel_of_former_members(project: Project | None = None) -> None:
    """Cancel waiting sessions of projects, or of one, that their owners have left; those that run go on."""
    left = ~Exists(Membership.objects.filter(user=OuterRef("owner"), project=OuterRef("project")))
    waiting = Session.objects.filter(left, status=Status.PENDING, project__isnull=False)
    for session in (waiting.filter(project=project) if project else waiting).select_related("project"):
        detail = f"Its owner is no longer a member of the project {session.project}."
        services.end(session, Reason.ADMIN_REQUEST, detail)


def _validate(project: Project) -> None:
    try:
        project.full_clean()
    except ValidationError as error:
        raise RejectedError({name: " ".join(texts) for name, texts in error.message_dict.items()}) from error
