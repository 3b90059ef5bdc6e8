"""Forms of imports: the address, where it goes, and credentials. The rules are in `imports`."""

from typing import Any, ClassVar, Final, cast

from django import forms
from django.utils.translation import gettext_lazy as _

from accounts.models import User
from folders.models import Folder
from imports import credentials, services
from imports.addresses import MAX_ADDRESS_LENGTH, MAX_REF_LENGTH
from imports.models import NAME_LENGTH, PATH_LENGTH, Import, ImportCredential
from imports.requests import ImportRequest
from resources.models import ResourceGroup
from sessions.forms.service_form import ServiceForm
from sessions.launching import mounts

MAX_SECRET_LENGTH: Final = 16 * 1024


class _ImportForm(ServiceForm):
    """A form of imports, whose texts are words of machines."""

    text_attributes: ClassVar = {"autocapitalize": "none", "spellcheck": "false"}


class AddressForm(_ImportForm):
    """What is to be imported."""

    address = forms.CharField(
        label=_("Address"),
        max_length=MAX_ADDRESS_LENGTH,
        help_text=_("Of a repository, a notebook, an archive, a Hugging Face repository or a Zenodo record."),
        widget=forms.TextInput(attrs={"inputmode": "url", "placeholder": "https://github.com/owner/repository"}),
        error_messages={"required": _("Paste an address.")},
    )
    ref = forms.CharField(
        label=_("Branch, tag or commit"),
        required=False,
        max_length=MAX_REF_LENGTH,
        help_text=_("Left empty, what the address says, else the default branch."),
    )
    path = forms.CharField(
        label=_("File to open"), required=False, max_length=PATH_LENGTH, help_text=_("Such as notebooks/first.ipynb.")
    )
    credential = forms.ModelChoiceField(
        ImportCredential.objects.none(), label=_("Credential"), required=False, empty_label=_("none: it is public")
    )
    resource_group = forms.ModelChoiceField(
        ResourceGroup.objects.none(),
        label=_("Fetched by a session in"),
        required=False,
        empty_label=_("where there is room first"),
    )

    def __init__(self, owner: User, data: Any = None, initial: dict[str, Any] | None = None) -> None:
        super().__init__(data, initial=initial)
        self.owner = owner
        _offer(self, "credential", owner.import_credentials.all())
        _offer(self, "resource_group", ResourceGroup.objects.usable_by(owner).filter(allow_batch=True))

    @property
    def shows_groups(self) -> bool:
        """Whether there is a resource group to choose."""
        return len(cast(forms.ModelChoiceField[ResourceGroup], self.fields["resource_group"]).queryset or ()) > 1

    def look(self) -> Import | None:
        """Begin to look at what is there, and return the import; None if it is refused."""
        return self.ask(lambda: services.look(self.owner, ImportRequest(**self.cleaned_data)))


class TargetForm(_ImportForm):
    """Where what a look has found goes."""

    where = forms.ChoiceField(
        label=_("Where it goes"),
        choices=[
            ("new", _("Into a new folder, which is kept")),
            ("folder", _("Into a folder that I have")),
            ("session", _("Into the session alone: gone when it ends")),
        ],
        widget=forms.RadioSelect,
    )
    folder_name = forms.CharField(label=_("Name of the new folder"), required=False, max_length=200)
    folder = forms.ModelChoiceField(Folder.objects.none(), label=_("Folder"), required=False, empty_label=None)
    whole_history = forms.BooleanField(
        label=_("The whole history, not the last commit alone"),
        required=False,
        help_text=_("In a folder. Into a session alone goes the last commit."),
    )

    def __init__(self, looked: Import, data: Any = None, initial: dict[str, Any] | None = None) -> None:
        super().__init__(data, initial=initial)
        self.looked = looked
        writable = [
            each.folder.pk
            for each in mounts.offered_folders(looked.owner)
            if not (each.is_read_only or each.is_automatic)
        ]
        _offer(self, "folder", Folder.objects.filter(pk__in=writable))

    def clean(self) -> dict[str, Any]:
        """Require the folder or its name, as chosen."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if cleaned.get("where") == "new" and not cleaned.get("folder_name"):
            self.add_error("folder_name", _("A folder needs a name."))
        if cleaned.get("where") == "folder" and not cleaned.get("folder") and "folder" not in self.errors:
            self.add_error("folder", _("Choose a folder."))
        return cleaned

    @property
    def is_session(self) -> bool:
        """Whether it goes into the session that is to be launched."""
        return bool(self.cleaned_data["where"] == "session")

    def begin(self) -> Import | None:
        """Begin to fetch it into the chosen folder, and return the import; None if it is refused."""
        chosen, looked = self.cleaned_data, self.looked
        is_new = chosen["where"] == "new"
        request = ImportRequest(
            address=looked.address,
            ref=looked.ref,
            path=looked.path,
            credential=looked.credential,
            folder=None if is_new else chosen["folder"],
            folder_name=chosen["folder_name"] if is_new else "",
            whole_history=chosen["whole_history"],
            resource_group=looked.session.resource_group if looked.session else None,
        )
        return self.ask(lambda: services.begin(looked.owner, request))


class CredentialForm(_ImportForm):
    """A token or an SSH key for one host of repositories."""

    service_fields = {"token": "secret", "private_key": "secret"}

    kind = forms.ChoiceField(
        label=_("Kind"),
        choices=[
            ("token", _("Access token")),
            ("deploy_key", _("Deploy key, made here")),
            ("ssh_key", _("SSH key of mine")),
        ],
        widget=forms.RadioSelect,
        initial="token",
    )
    name = forms.CharField(label=_("Name"), max_length=NAME_LENGTH)
    host = forms.CharField(label=_("Host"), max_length=253, help_text=_("Such as github.com. It is sent to no other."))
    username = forms.CharField(
        label=_("User name"),
        required=False,
        max_length=NAME_LENGTH,
        help_text=_("Where the host wants one with the token."),
    )
    secret = forms.CharField(
        label=_("Token or private key"),
        required=False,
        max_length=MAX_SECRET_LENGTH,
        strip=False,
        help_text=_("Kept encrypted, and never shown again. A deploy key needs none: it is made here."),
        widget=forms.Textarea(attrs={"rows": 3}),
    )

    def clean(self) -> dict[str, Any]:
        """Require the secret, but of a key that is made here."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if cleaned.get("kind") != "deploy_key" and not cleaned.get("secret", "").strip():
            self.add_error("secret", _("Paste the token or the private key."))
        return cleaned

    def save(self, owner: User) -> ImportCredential | None:
        """Store and return the credential; None if it is refused."""
        given = self.cleaned_data
        known = {"name": given["name"], "host": given["host"]}
        if given["kind"] == "token":
            token, username = given["secret"].strip(), given["username"]
            return self.ask(lambda: credentials.add_token(owner, token=token, username=username, **known))
        key = given["secret"] if given["kind"] == "ssh_key" else ""
        return self.ask(lambda: credentials.add_key(owner, private_key=key, **known))


def _offer(form: forms.Form, name: str, queryset: Any) -> None:
    cast(forms.ModelChoiceField[Any], form.fields[name]).queryset = queryset
