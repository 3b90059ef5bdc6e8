"""Fields of the launch form that are made of several inputs: environment variables, and folders to mount."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django import forms
from django.utils.datastructures import MultiValueDict
from django.utils.functional import cached_property
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.models import User
from folders.models import Folder
from folders.mount_paths import absolute_path
from resources.models import ResourceGroup
from sessions.errors import RejectedError
from sessions.launching import dependencies, mounts
from sessions.launching.mounts import MountRequest, OfferedFolder
from sessions.lifecycle import DependencyKind

CARD: Final = "environment_card"  # the number of the chosen card, of which each has a select "version"
VERSION: Final = "version"

DEPENDENCY_WORDS: Final = {
    DependencyKind.AFTER: gettext_lazy("once it has started"),
    DependencyKind.AFTER_OK: gettext_lazy("once it has succeeded"),
    DependencyKind.AFTER_NOT_OK: gettext_lazy("once it has failed"),
    DependencyKind.AFTER_ANY: gettext_lazy("once it has ended"),
}

Pairs = list[tuple[str, str]]
ChosenFolders = dict[str, tuple[str, bool]]


class ImageInput(forms.Select):
    """Reads the id of an image: the chosen version on the chosen card, or `image` itself."""

    def value_from_datadict(self, data: Mapping[str, Any], files: Any, name: str) -> Any:
        """Return the id, None without."""
        card = data.get(CARD, "")
        if name in data or not isinstance(data, MultiValueDict) or not (card.isascii() and card.isdigit()):
            return data.get(name)
        versions = data.getlist(VERSION)
        return versions[int(card)] if len(card) < 5 and int(card) < len(versions) else None


class PairsInput(forms.Widget):
    """Reads the rows of `variable` and `value` inputs as (name, value) pairs, without blank rows."""

    def value_from_datadict(self, data: Mapping[str, Any], files: Any, name: str) -> Pairs:
        """Return the pairs in the order of the rows."""
        if not isinstance(data, MultiValueDict):
            return []
        pairs = zip(data.getlist("variable"), data.getlist("value"), strict=False)
        return [(variable.strip(), value) for variable, value in pairs if variable.strip() or value]


class PairsField(forms.Field):
    """{name: value} from rows; refuses a duplicate name and a value without a name."""

    widget = PairsInput

    def to_python(self, value: Any) -> dict[str, str]:
        """Return the variables."""
        found: dict[str, str] = {}
        for name, text in value or []:
            if not name:
                raise forms.ValidationError(_("The value '%(value)s' has no variable name.") % {"value": text})
            if name in found:
                raise forms.ValidationError(_("%(name)s is given twice.") % {"name": name})
            found[name] = text
        return found


class DependenciesInput(forms.MultipleHiddenInput):
    """Reads what is chosen of each session, without those of which nothing is."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[str]:
        """Return the texts."""
        return [text for text in super().value_from_datadict(data, files, name) or () if text]


class DependenciesFormField(forms.Field):
    """{session id: what is waited for} from texts such as "after_any:ID"."""

    widget = DependenciesInput

    def to_python(self, value: Any) -> dict[str, DependencyKind]:
        """Return the kinds."""
        try:
            return dependencies.parse(value or ())
        except RejectedError as error:
            raise forms.ValidationError(list(error.errors.values())) from None


class FoldersInput(forms.Widget):
    """Reads the ticked folders as {id: (path, whether it is to be read-only)}."""

    def value_from_datadict(self, data: Mapping[str, Any], files: Any, name: str) -> ChosenFolders:
        """Return what was ticked, in the order of the page."""
        if not isinstance(data, MultiValueDict):
            return {}
        read_only = set(data.getlist("mount_read_only"))
        return {each: (data.get(f"mount_path_{each}", "").strip(), each in read_only) for each in data.getlist("mount")}


class FoldersField(forms.Field):
    """Folders to mount, which the form looks up."""

    widget = FoldersInput


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderRow:
    """A folder that the launch page offers, with what was typed beside it and what is wrong with that."""

    folder: Folder
    is_own: bool
    is_shared_read_only: bool
    is_chosen: bool = False
    path: str = ""
    is_read_only: bool = False
    problem: str = ""

    @property
    def path_in_session(self) -> str:
        """The absolute path at which it would be mounted."""
        return absolute_path(self.path, self.folder.name)

    @property
    def usual_path(self) -> str:
        """The absolute path at which it is mounted where none is given."""
        return absolute_path("", self.folder.name)


class FolderChoice:
    """The folders that a launch form offers: what was chosen of them in its field, and what is wrong with each."""

    def __init__(self, owner: User, offered: Sequence[OfferedFolder], field: forms.BoundField) -> None:
        self._owner = owner
        self._offered = offered
        self._field = field
        self.problems: dict[str, str] = {}  # by folder, once `mounts` was called

    def mounts(self, asked: ChosenFolders, group: ResourceGroup | None) -> list[MountRequest]:
        """Return what is to be mounted in a group. Raises ValidationError, with all that is wrong."""
        known = {each.folder.pk: each.folder for each in self._offered}
        if any(folder_id not in known for folder_id in asked):
            raise forms.ValidationError(
                _("A folder is not there any more, or no longer shared with you; choose again.")
            )
        requests = [
            MountRequest(folder=known[folder_id], path=path, is_read_only=is_read_only or None)
            for folder_id, (path, is_read_only) in asked.items()
        ]
        planned = mounts.plan(self._owner, requests)
        self.problems = {requests[at].folder.pk: problem for at, problem in planned.problems.items()}
        if errors := mounts.errors(group, requests, planned):
            raise forms.ValidationError(errors)
        return requests

    @property
    def always_mounted(self) -> list[Folder]:
        """The folders that every session of the user mounts."""
        return [each.folder for each in self._offered if each.is_automatic]

    @property
    def chosen(self) -> list[FolderRow]:
        """The rows of the folders that are to be mounted."""
        return [row for row in self.rows if row.is_chosen]

    @property
    def errors(self) -> list[str]:
        """The messages that stand at none of the folders."""
        return [str(error) for error in self._field.errors if error not in self.problems.values()]

    @cached_property
    def rows(self) -> list[FolderRow]:
        """The folders that can be chosen, with what was typed."""
        chosen: ChosenFolders = self._field.value() or {}
        return [
            FolderRow(
                folder=each.folder,
                is_own=each.folder.owner_id == self._owner.pk,
                is_shared_read_only=each.is_read_only,
                is_chosen=each.folder.pk in chosen,
                path=chosen.get(each.folder.pk, ("", False))[0],
                is_read_only=each.is_read_only or chosen.get(each.folder.pk, ("", False))[1],
                problem=self.problems.get(each.folder.pk, ""),
            )
            for each in self._offered
            if not each.is_automatic
        ]
