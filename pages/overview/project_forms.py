"""The form by which managers choose the members of a project, and invite others."""

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.models import AccountInvitation, Membership, Project, ProjectRole, User
from sessions.forms.service_form import ServiceForm
from sessions.projects import services as projects

ROLE_LABELS = {
    ProjectRole.MEMBER.value: gettext_lazy("member: starts sessions"),
    ProjectRole.MANAGER.value: gettext_lazy("manager: also sees and ends the sessions of all members"),
}


class NewMemberForm(ServiceForm):
    """The account that becomes a member, and its role."""

    email = forms.EmailField(label=gettext_lazy("E-mail address"), max_length=254)
    role = forms.ChoiceField(label=gettext_lazy("Role"), choices=list(ROLE_LABELS.items()))
    invites = forms.BooleanField(
        label=gettext_lazy("Invite them if they have no account"),
        required=False,
        help_text=gettext_lazy("They get a link by mail, which makes an account and is good for a week."),
    )

    def save(self, project: Project, actor: User) -> Membership | AccountInvitation | None:
        """Add and return the member, or the invitation; None if that is refused, with the message at its field."""
        email, role = self.cleaned_data["email"], ProjectRole(self.cleaned_data["role"])
        user = User.objects.filter(email__iexact=email).first()
        if user is None and not self.cleaned_data["invites"]:
            self.add_error("email", _("There is no account with this address."))
            return None
        if user is None and role != ProjectRole.MEMBER:
            self.add_error("role", _("Who is invited becomes a member, and may be made a manager then."))
            return None
        if user is None:
            return self.ask(lambda: projects.invite(project, email, actor=actor))
        return self.ask(lambda: projects.add_member(project, user, role, actor=actor))
