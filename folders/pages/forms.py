"""Forms of data folders. What is allowed is decided by the services; their refusals appear at the fields."""

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, cast

from django import forms

from accounts.models import Project, ProjectRole, User
from folders.errors import FolderError, FolderRejectedError
from folders.models import Folder, FolderShare, StorageRoot
from folders.sharing import folders as services

_Made = TypeVar("_Made")


class _ServiceForm(forms.Form):
    """A form whose service may refuse; what it refuses appears at the fields."""

    service_fields: ClassVar[dict[str, str]] = {}  # names of a service's fields that are others here

    def ask(self, service: Callable[[], _Made]) -> _Made | None:
        """Return what the service returns, or None with its refusal in the form's errors."""
        try:
            return service()
        except FolderRejectedError as refusal:
            for name, message in refusal.errors.items():
                self.add_error(self.service_fields.get(name, name if name in self.fields else None), message)
        except FolderError as refusal:
            self.add_error(None, str(refusal))
        return None


class CreateFolderForm(_ServiceForm):
    """Name and storage root of a new folder."""

    name = forms.CharField(max_length=200, error_messages={"required": "A folder needs a name."})
    project = forms.ModelChoiceField(Project.objects.none(), required=False)
    root = forms.ModelChoiceField(
        StorageRoot.objects.filter(is_enabled=True),
        required=False,
        error_messages={"invalid_choice": "This storage is not offered any more. Choose another one."},
    )

    def __init__(self, owner: User, data: Any = None) -> None:
        """Offer the projects that the user manages."""
        super().__init__(data)
        self.owner = owner
        offered = Project.objects.filter(memberships__user=owner, memberships__role=ProjectRole.MANAGER.value)
        cast(forms.ModelChoiceField[Project], self.fields["project"]).queryset = offered.select_related("policy")

    def save(self) -> Folder | None:
        """Create and return the folder; None if it is refused."""
        name, root = self.cleaned_data["name"], self.cleaned_data["root"]
        return self.ask(lambda: services.create(self.cleaned_data["project"] or self.owner, name, root))


class RenameFolderForm(_ServiceForm):
    """Another name for a folder."""

    name = forms.CharField(max_length=200, error_messages={"required": "A folder needs a name."})

    def save(self, folder: Folder) -> bool:
        """Rename the folder; return False if it is refused."""
        self.ask(lambda: services.rename(folder, self.cleaned_data["name"]))
        return not self.errors


class ShareFolderForm(_ServiceForm):
    """Whom a folder is shared with, and whether they may write."""

    service_fields = {"user": "email"}

    email = forms.EmailField(
        error_messages={"required": "Whom shall it be shared with?", "invalid": "This is not an e-mail address."}
    )
    can_write = forms.BooleanField(required=False)

    def clean_email(self) -> str:
        """Return the address of an active user, as it is stored."""
        user = User.objects.filter(email__iexact=self.cleaned_data["email"], is_active=True).first()
        if user is None:
            raise forms.ValidationError("Nobody signs in here with this address. Check it, or ask them for theirs.")
        self.user = user
        return user.email

    def save(self, folder: Folder) -> FolderShare | None:
        """Share the folder; None if it is refused."""
        return self.ask(lambda: services.share(folder, self.user, is_read_only=not self.cleaned_data["can_write"]))
