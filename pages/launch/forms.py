"""The launch form: parses its fields and shows each message at its field. The rules are in `services`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django import forms
from django.db.models import Q
from django.utils.datastructures import MultiValueDict

from accounts.models import User
from folders.models import Folder
from resources.fields import FgpuFormField, SizeFormField, SpanFormField
from resources.images import builds
from resources.models import Image, Preset, ResourceGroup
from resources.units import GIB, MIB, fgpu_text, size_text
from sessions import image_choice, mounts, services, validation
from sessions.errors import GENERAL, RejectedError
from sessions.models import Session
from sessions.mounts import MountRequest

AMOUNTS: Final = ("cpu", "memory", "shared_memory", "fgpu")
MOMENTS: Final = ("%Y-%m-%dT%H:%M:%S.%f%z", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M")  # UTC unless it says otherwise
MAX_OFFERED: Final = 50  # sessions to depend on
ADVANCED: Final = ("command", "time_limit", "not_before", "depends_on")
NEEDED: Final = ("image", "resource_group", *AMOUNTS)  # for `services.problems`
FALLBACKS: Final[dict[str, Any]] = {
    "name": "",
    "count": 1,
    "environment": {},
    "command": "",
    "time_limit": None,
    "not_before": None,
    "depends_on": (),
    "mounts": (),
}  # in place of invalid fields
PRIVATE_GROUP: Final = "My environments"
CUSTOM: Final = ""  # the preset field's value for custom allocation


class PairsInput(forms.Widget):
    """Reads the rows of `variable` and `value` inputs as (name, value) pairs, without blank rows."""

    def value_from_datadict(self, data: Mapping[str, Any], files: Any, name: str) -> list[tuple[str, str]]:
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
                raise forms.ValidationError(f"The value {text!r} has no variable name.")
            if name in found:
                raise forms.ValidationError(f"{name} is given twice.")
            found[name] = text
        return found


class FoldersInput(forms.Widget):
    """Reads the ticked folders as {id: (path, whether it is to be read-only)}."""

    def value_from_datadict(self, data: Mapping[str, Any], files: Any, name: str) -> dict[str, tuple[str, bool]]:
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


class LaunchForm(forms.Form):
    """A launch request; `save` submits it and shows messages of a rejected one at the fields."""

    image = forms.ModelChoiceField(
        Image.objects.none(),
        required=False,
        error_messages={
            "invalid_choice": "This environment is not offered at present; choose another.",
        },
    )
    image_name = forms.CharField(required=False, max_length=255)
    name = forms.CharField(required=False)
    environment = PairsField(required=False)
    resource_group = forms.ModelChoiceField(
        ResourceGroup.objects.none(),
        error_messages={
            "required": "Choose a resource group.",
            "invalid_choice": "You may not use this resource group; choose another.",
        },
    )
    preset = forms.ModelChoiceField(
        Preset.objects.none(),
        required=False,
        error_messages={"invalid_choice": "This preset is not offered at present; choose another."},
    )
    cpu = forms.IntegerField(required=False, error_messages={"invalid": "Write a whole number of cores."})
    memory = SizeFormField(required=False)
    shared_memory = SizeFormField(required=False)
    fgpu = FgpuFormField(required=False)
    count = forms.IntegerField(
        initial=1,
        error_messages={"required": "Say how many sessions.", "invalid": "Write a whole number of sessions."},
    )

    command = forms.CharField(required=False)
    time_limit = SpanFormField(required=False)
    not_before = forms.DateTimeField(
        required=False, input_formats=MOMENTS, error_messages={"invalid": "Write a moment such as 2030-01-31 14:20."}
    )
    depends_on = forms.ModelMultipleChoiceField(Session.objects.none(), required=False)
    mounts = FoldersField(required=False)

    def __init__(self, owner: User, data: Any = None, *, folder_id: str = "") -> None:
        """Take what was posted; before that, the id of the folder to begin with."""
        self.owner = owner
        self.folders = mounts.offered_folders(owner)
        self.always_mounted = [each.folder for each in self.folders if each.is_automatic]
        self._first_folder_id = folder_id
        self._mount_problems: dict[str, str] = {}
        groups = ResourceGroup.objects.usable_by(owner)
        offered = Image.objects.usable_by(owner).select_related("build")
        self.images = sorted(offered, key=lambda image: image.owner_id is not None)
        self.groups = list(groups)
        self.presets = list(Preset.objects.filter(Q(group=None) | Q(group__in=self.groups)).select_related("group"))
        self.others = list(Session.objects.filter(owner=owner).live()[:MAX_OFFERED])
        super().__init__(data, initial=self._starting_values())
        _offer(self.fields["image"], offered)
        _offer(self.fields["resource_group"], groups)
        _offer(self.fields["depends_on"], Session.objects.filter(owner=owner))
        _offer(self.fields["preset"], Preset.objects.filter(Q(group=None) | Q(group__in=self.groups)))

    def clean_name(self) -> str:
        """Validate the name, so that its message shows together with those of other fields."""
        name: str = self.cleaned_data["name"]
        if name and (error := validation.name_error(name)):
            raise forms.ValidationError(error)
        return name

    def clean_environment(self) -> dict[str, str]:
        """Validate the variables, for the same reason."""
        variables: dict[str, str] = self.cleaned_data["environment"]
        if error := validation.environment_error(variables):
            raise forms.ValidationError(error)
        return variables

    def clean_mounts(self) -> list[MountRequest]:
        """Return the mounts; all that is wrong with them shows at once, at the folders too."""
        asked: dict[str, tuple[str, bool]] = self.cleaned_data["mounts"]
        known = {each.folder.pk: each.folder for each in self.folders}
        if any(folder_id not in known for folder_id in asked):
            raise forms.ValidationError("A folder is not there any more, or no longer shared with you; choose again.")
        requests = [
            MountRequest(folder=known[folder_id], path=path, is_read_only=is_read_only or None)
            for folder_id, (path, is_read_only) in asked.items()
        ]
        planned = mounts.plan(self.owner, requests)
        self._mount_problems = {requests[at].folder.pk: problem for at, problem in planned.problems.items()}
        if errors := mounts.errors(self.cleaned_data.get("resource_group"), requests, planned):
            raise forms.ValidationError(errors)
        return requests

    def clean_command(self) -> str:
        """Return the command with the line ends of a shell: browsers send those of forms as CR LF."""
        command: str = self.cleaned_data["command"]
        return command.replace("\r\n", "\n")

    def clean(self) -> dict[str, Any]:
        """Return the cleaned data, with the amounts from the preset, or require all amounts."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        self._choose_image(cleaned)
        preset, group = cleaned.get("preset"), cleaned.get("resource_group")
        if preset and preset.group_id and group and preset.group_id != group.pk:
            self.add_error("preset", f"{preset.name} belongs to another resource group.")
        if preset:
            for name in AMOUNTS:
                self.errors.pop(name, None)
                cleaned[name] = getattr(preset, name)
        elif "preset" not in self.errors:
            self._require_amounts(cleaned)
        if self.errors and all(cleaned.get(name) is not None for name in NEEDED):
            self._add_problems()
        return cleaned

    def _choose_image(self, cleaned: dict[str, Any]) -> None:
        """Take the image that was named, else the one that was chosen."""
        if self.has_image_name:
            self.errors.pop("image", None)
            cleaned["image"] = None
            if "image_name" not in self.errors:
                try:
                    cleaned["image"] = image_choice.find_by_name(self.owner, cleaned["image_name"])
                except RejectedError as error:
                    self._show(error.errors)
        elif not cleaned.get("image") and "image" not in self.errors:
            self.add_error("image", "Choose an environment.")

    @property
    def has_image_name(self) -> bool:
        """True if an image was named instead of chosen."""
        return bool(str(self["image_name"].value() or "").strip())

    @property
    def environments(self) -> list[tuple[str, list[Image]]]:
        """The images by environment, those of the owner alone as the last."""
        groups: dict[str, list[Image]] = {}
        for image in self.images:
            groups.setdefault(PRIVATE_GROUP if image.owner_id else image.environment, []).append(image)
        return list(groups.items())

    def _add_problems(self) -> None:
        """Add messages for what can never be granted, so that all messages show at once."""
        found = services.problems(self.owner, self.launch_request())
        self._show({name: message for name, message in found.items() if name not in self.errors})

    def launch_request(self) -> services.LaunchRequest:
        """Return the request, with fallbacks for invalid fields."""
        cleaned = FALLBACKS | self.cleaned_data
        return services.LaunchRequest(
            image=cleaned["image"],
            resource_group=cleaned["resource_group"],
            name=cleaned["name"],
            count=cleaned["count"],
            environment=cleaned["environment"],
            depends_on=list(cleaned["depends_on"]),
            mounts=cleaned["mounts"],
            **{name: cleaned[name] for name in (*AMOUNTS, "command", "time_limit", "not_before")},
        )

    def save(self) -> list[Session]:
        """Submit and return the sessions; [] if the request is rejected, with messages at the fields."""
        try:
            return services.submit(self.owner, self.launch_request())
        except RejectedError as error:
            self._show(error.errors)
            return []

    @property
    def environment_rows(self) -> list[tuple[str, str]]:
        """The variables that were typed, and a blank row."""
        return [*(self["environment"].value() or []), ("", "")]

    @property
    def folder_errors(self) -> list[str]:
        """The messages on folders that stand at none of them."""
        return [str(error) for error in self.errors.get("mounts", []) if error not in self._mount_problems.values()]

    @property
    def always_names(self) -> str:
        """The names of the folders that are always mounted, as JSON."""
        return json.dumps([folder.name for folder in self.always_mounted])

    @property
    def folder_rows(self) -> list[FolderRow]:
        """The folders that can be chosen, with what was typed."""
        chosen: dict[str, tuple[str, bool]] = self["mounts"].value() or {}
        if not self.is_bound:
            chosen = {self._first_folder_id: ("", False)}
        return [
            FolderRow(
                folder=each.folder,
                is_own=each.folder.owner_id == self.owner.pk,
                is_shared_read_only=each.is_read_only,
                is_chosen=each.folder.pk in chosen,
                path=chosen.get(each.folder.pk, ("", False))[0],
                is_read_only=each.is_read_only or chosen.get(each.folder.pk, ("", False))[1],
                problem=self._mount_problems.get(each.folder.pk, ""),
            )
            for each in self.folders
            if not each.is_automatic
        ]

    @property
    def advanced_is_open(self) -> bool:
        """True if a field under "Advanced" has a value."""
        return any(self[name].value() for name in ADVANCED)

    def _starting_values(self) -> dict[str, Any]:
        """Return the initial values: the first preset of the first group, else small amounts."""
        group = self.groups[0] if self.groups else None
        fitting = [preset for preset in self.presets if preset.group_id is None or preset.group == group]
        start = fitting[0] if fitting else Preset(cpu=1, memory=2 * GIB, shared_memory=64 * MIB)
        return {
            "image": min(self.images, key=_offered_first).pk if self.images else None,
            "resource_group": group.pk if group else None,
            "preset": start.pk or CUSTOM,
            "cpu": start.cpu,
            "memory": size_text(start.memory),
            "shared_memory": size_text(start.shared_memory),
            "fgpu": fgpu_text(start.fgpu),
        }

    def _require_amounts(self, cleaned: dict[str, Any]) -> None:
        cleaned["fgpu"] = 0 if cleaned.get("fgpu") is None else cleaned["fgpu"]
        for name, words in (("cpu", "CPU cores"), ("memory", "RAM"), ("shared_memory", "shared memory")):
            if cleaned.get(name) is None and name not in self.errors:
                self.add_error(name, f"Say how much: {words}.")

    def _show(self, errors: Mapping[str, str]) -> None:
        """Show each message at its field: for an amount that comes from a preset, at the preset."""
        for name, message in errors.items():
            field: str | None = name
            if name in AMOUNTS and self.cleaned_data.get("preset"):
                field = "preset"
            elif name == "image" and self.has_image_name:
                field = "image_name"
            elif name == GENERAL or name not in self.fields:
                field = None
            self.add_error(field, message)


def _offer(field: forms.Field, queryset: Any) -> None:
    assert isinstance(field, forms.ModelChoiceField)
    field.queryset = queryset


def _offered_first(image: Image) -> tuple[bool, int, bool]:
    """Return the sorting key of the image to begin with: a usable default, else what is built next."""
    build = builds.build_of(image)
    if build is None or build.is_usable:
        return False, 0, not image.is_default
    return True, build.position, not image.is_default
