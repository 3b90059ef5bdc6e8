"""The form by which managers choose the members of a project."""

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.models import Membership, Project, ProjectRole, User
from sessions import projects
from sessions.errors import RejectedError

ROLE_LABELS = {
    ProjectRole.MEMBER.value: gettext_lazy("member: starts sessions"),
    ProjectRole.MANAGER.value: gettext_lazy("manager: also sees and ends the sessions of all members"),
}


class NewMemberForm(forms.Form):
    """The account that becomes a member, and its role."""

    email = forms.EmailField(
        label=gettext_lazy("E-mail address"),
        max_length=254,
        help_text=gettext_lazy("Of somebody with an account here"),
        widget=forms.EmailInput(attrs={"class": "form-control", "autocomplete": "off"}),
    )
    role = forms.ChoiceField(
        label=gettext_lazy("Role"),
        choices=list(ROLE_LABELS.items()),
        widget=forms.Select(attrs={"class": "form-select"}),
    )

    def save(self, project: Project, actor: User) -> Membership | None:
        """Add and return the member; None if that is refused, with the message at its field."""
        user = User.objects.filter(email__iexact=self.cleaned_data["email"]).first()
        if user is None:
            self.add_error("email", _("There is no account with this address."))
            return None
        try:
            return projects.add_member(project, user, ProjectRole(self.cleaned_data["role"]), actor=actor)
        except RejectedError as error:
            for name, text in error.errors.items():
                self.add_error(name, text)
            return None
