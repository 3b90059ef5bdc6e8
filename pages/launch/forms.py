"""The launch form: parses its fields and shows each message at its field. The rules are in `services`."""

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS
from django.utils.datastructures import MultiValueDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.models import Project, User
from arrays.models import Array
from imports import services as imports
from imports.models import Import
from pages.launch import beginnings
from pages.launch.beginnings import AMOUNTS, Initial
from pages.launch.fields import (
    DEPENDENCY_WORDS,
    DependenciesFormField,
    FolderChoice,
    FoldersField,
    ImageInput,
    PairsField,
)
from pages.launch.offer import LaunchOffer
from resources.amounts.fields import FgpuFormField, SizeFormField, SpanFormField
from resources.models import Image, Preset, ResourceGroup
from sessions.errors import GENERAL, RejectedError
from sessions.launching import dependencies, image_choice, services, validation
from sessions.launching.mounts import MountRequest
from sessions.launching.requests import ClusterRequest, MemberSize
from sessions.lifecycle import DependencyKind
from sessions.models import ClusterMode, Session

MOMENTS: Final = ("%Y-%m-%dT%H:%M:%S.%f%z", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M")  # UTC unless it says otherwise
IN_GROUPS: Final = ("other_groups", "is_any_group", "gpu_model", "min_gpu_memory")
ADVANCED: Final = ("command", "time_limit", "not_before", "is_preemptible", "depends_on", *IN_GROUPS)
CLUSTER: Final = tuple(f"cluster_{name}" for name in ClusterRequest.__dataclass_fields__)
NEEDED: Final = ("image", "resource_group", *AMOUNTS)  # for `services.problems`
REQUESTED: Final = frozenset(field.name for field in fields(services.LaunchRequest))


class LaunchForm(forms.Form):
    """A launch request; `save` submits it and shows messages of a rejected one at the fields."""

    image = forms.ModelChoiceField(
        Image.objects.none(),
        required=False,
        widget=ImageInput,
        error_messages={
            "invalid_choice": gettext_lazy("This environment is not offered at present; choose another."),
        },
    )
    image_name = forms.CharField(required=False, max_length=255)
    from_import = forms.ModelChoiceField(
        Import.objects.none(),
        required=False,
        error_messages={"invalid_choice": gettext_lazy("This import is gone. Begin it again, or launch without it.")},
    )
    import_installs = forms.BooleanField(required=False)
    from_template = forms.CharField(required=False, max_length=32)  # id and version, which the sessions then say
    name = forms.CharField(required=False)
    environment = PairsField(required=False)
    resource_group = forms.ModelChoiceField(
        ResourceGroup.objects.none(),
        error_messages={
            "required": gettext_lazy("Choose a resource group."),
            "invalid_choice": gettext_lazy("You may not use this resource group; choose another."),
        },
    )
    project = forms.ModelChoiceField(
        Project.objects.none(),
        required=False,
        error_messages={
            "invalid_choice": gettext_lazy("You are not a member of this project any more; choose another."),
        },
    )
    preset = forms.ModelChoiceField(
        Preset.objects.none(),
        required=False,
        error_messages={"invalid_choice": gettext_lazy("This preset is not offered at present; choose another.")},
    )
    cpu = forms.IntegerField(required=False, error_messages={"invalid": gettext_lazy("Write a whole number of cores.")})
    memory = SizeFormField(required=False)
    shared_memory = SizeFormField(required=False)
    fgpu = FgpuFormField(required=False)
    count = forms.IntegerField(
        initial=1,
        error_messages={
            "required": gettext_lazy("Say how many sessions."),
            "invalid": gettext_lazy("Write a whole number of sessions."),
        },
    )

    cluster_size = forms.IntegerField(
        required=False, initial=1, error_messages={"invalid": gettext_lazy("Write a whole number of members.")}
    )
    cluster_max_size = forms.IntegerField(
        required=False, error_messages={"invalid": gettext_lazy("Write a whole number of members.")}
    )
    cluster_mode = forms.ChoiceField(required=False, choices=ClusterMode.choices)
    cluster_shares_gpus = forms.BooleanField(required=False)
    cluster_runs_on_all = forms.BooleanField(required=False)
    cluster_max_restarts = forms.IntegerField(
        required=False, error_messages={"invalid": gettext_lazy("Write a whole number of restarts.")}
    )
    cluster_main_cpu = forms.IntegerField(
        required=False, error_messages={"invalid": gettext_lazy("Write a whole number of cores.")}
    )
    cluster_main_memory = SizeFormField(required=False)
    cluster_main_fgpu = FgpuFormField(required=False)
    command = forms.CharField(required=False)
    time_limit = SpanFormField(required=False)
    not_before = forms.DateTimeField(
        required=False,
        input_formats=MOMENTS,
        error_messages={"invalid": gettext_lazy("Write a moment such as 2030-01-31 14:20.")},
    )
    is_preemptible = forms.BooleanField(required=False)
    other_groups = forms.ModelMultipleChoiceField(ResourceGroup.objects.none(), required=False)
    is_any_group = forms.BooleanField(required=False)
    gpu_model = forms.CharField(required=False, max_length=validation.MAX_GPU_MODEL_LENGTH)
    min_gpu_memory = SizeFormField(required=False)
    gpu_memory = SizeFormField(required=False)
    depends_on = DependenciesFormField(required=False)
    mounts = FoldersField(required=False)
    dependency_kinds = tuple(DEPENDENCY_WORDS.items())

    def __init__(
        self,
        owner: User,
        data: Any = None,
        *,
        offer: LaunchOffer | None = None,
        initial: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Take what was posted; before that, the values to begin with."""
        self.owner = owner
        self.offer = offer or LaunchOffer(owner)
        self.link_problems: Mapping[str, str] = {}  # of the link that it began with, by field
        super().__init__(data, initial=beginnings.from_nothing(self.offer) | dict(initial))
        self.folders = FolderChoice(owner, self.offer.folders, self["mounts"])
        _offer(self.fields["image"], LaunchOffer.images_of(owner))
        _offer(self.fields["resource_group"], ResourceGroup.objects.usable_by(owner))
        _offer(self.fields["from_import"], self.offer.imports)
        _offer(self.fields["other_groups"], ResourceGroup.objects.usable_by(owner))
        _offer(self.fields["project"], LaunchOffer.projects_of(owner))
        _offer(self.fields["preset"], LaunchOffer.presets_of(self.offer.groups))

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
        return self.folders.mounts(self.cleaned_data["mounts"], self.cleaned_data.get("resource_group"))

    def clean_depends_on(self) -> dependencies.Dependencies:
        """Return the sessions that are waited for, by what is waited for."""
        try:
            return dependencies.find(self.owner, self.cleaned_data["depends_on"])
        except RejectedError as error:
            raise forms.ValidationError(list(error.errors.values())) from None

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
            self.add_error("preset", _("%(preset)s belongs to another resource group.") % {"preset": preset.name})
        if preset:
            self.errors.pop("gpu_memory", None)
            cleaned["gpu_memory"] = preset.gpu_memory
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
                    self.show(error.errors)
        elif not cleaned.get("image") and "image" not in self.errors:
            self.add_error("image", _("Choose an environment."))

    @property
    def has_image_name(self) -> bool:
        """True if an image was named instead of chosen."""
        return bool(str(self["image_name"].value() or "").strip())

    @property
    def offers_image_name(self) -> bool:
        """True for a user whose policy allows any image, or who has one that was made for them."""
        has_own = any(image.owner_id for image in self.offer.images)
        return self.owner.policy.allow_unlisted_images or has_own or self.has_image_name

    def _add_problems(self) -> None:
        """Add messages for what can never be granted, so that all messages show at once."""
        found = services.problems(self.owner, self.launch_request())
        self.show({name: message for name, message in found.items() if name not in self.errors})

    def launch_request(self) -> services.LaunchRequest:
        """Return the request, with its defaults in place of invalid fields."""
        asked = {name: value for name, value in self.cleaned_data.items() if name in REQUESTED and value is not None}
        asked |= {"other_groups": list(asked.get("other_groups", ())), "cluster": self.cluster}
        return services.LaunchRequest(**asked | {"is_preemptible": asked.get("is_preemptible") or None})

    @property
    def cluster(self) -> ClusterRequest | None:
        """The cluster that is asked for, with defaults in place of invalid fields; None for one container."""
        asked = self.cleaned_data
        size, most = asked.get("cluster_size"), asked.get("cluster_max_size")
        if size is None or (size == 1 and most in (None, 1)):
            return None
        return ClusterRequest(
            size=size,
            max_size=most,
            mode=ClusterMode(asked.get("cluster_mode") or ClusterMode.ANY),
            shares_gpus=asked["cluster_shares_gpus"],
            runs_on_all=asked["cluster_runs_on_all"],
            max_restarts=asked.get("cluster_max_restarts") or 0,
            **{f"main_{name}": asked.get(f"cluster_main_{name}") for name in ("cpu", "memory", "fgpu")},
        )

    @property
    def _each(self) -> MemberSize | None:
        """The size of each member; None without valid amounts, whatever else is wrong."""
        amounts = [self.cleaned_data.get(name) for name in MemberSize._fields]
        return None if None in amounts else MemberSize._make(amounts)

    @property
    def together(self) -> MemberSize | None:
        """What all members of the cluster have; None without a cluster, or without valid amounts."""
        return self.cluster.together(self._each) if self.cluster and self._each else None

    @property
    def main(self) -> MemberSize | None:
        """The size of the cluster's first member, where it has one of its own, and that of all is valid."""
        return self.cluster.main_of(self._each) if self.cluster and self._each else None

    def save(self) -> list[Session]:
        """Submit and return the sessions; [] if the request is rejected, with messages at the fields."""
        chosen, order = self.cleaned_data["from_import"], self.launch_request()
        try:
            if chosen:
                return imports.launch(self.owner, chosen, order, installs=self.cleaned_data["import_installs"])
            return services.submit(self.owner, order)
        except RejectedError as error:
            self.show(error.errors)
            return []

    @classmethod
    def values_of(cls, draft: MultiValueDict[str, str]) -> Initial:
        """Return the initial values that a draft stands for."""
        return {name: field.widget.value_from_datadict(draft, {}, name) for name, field in cls.base_fields.items()}

    def messages(self) -> dict[str, list[str]]:
        """Return the messages by the ids of the elements that show them: fields, folders, or "general"."""
        found = {name: [str(each) for each in errors] for name, errors in self.errors.items() if name != "mounts"}
        if general := found.pop(NON_FIELD_ERRORS, []):
            found["general"] = general
        if self.folders.errors:
            found["mounts"] = self.folders.errors
        return found | {f"mount-{folder_id}": [text] for folder_id, text in self.folders.problems.items()}

    @property
    def variables(self) -> list[tuple[str, str]]:
        """The environment variables as they were typed."""
        return list(self["environment"].value() or [])

    @property
    def others(self) -> list[tuple[Session | Array, str]]:
        """The sessions and arrays that are offered to wait for, each with what is waited for, if anything."""
        chosen = {pk: kind for kind, _colon, pk in (text.rpartition(":") for text in self["depends_on"].value() or ())}
        default = DependencyKind.AFTER_OK.value
        return [(each, chosen[each.pk] or default if each.pk in chosen else "") for each in self.offer.others]

    @property
    def chosen_other_groups(self) -> list[str]:
        """The ids of the other groups that are chosen, as texts."""
        return [str(getattr(each, "pk", each)) for each in self["other_groups"].value() or ()]

    @property
    def cluster_is_open(self) -> bool:
        """True if a field under "Cluster" has a value, or is wrong."""
        numbers = {str(self[name].value()) for name in ("cluster_size", "cluster_max_size")}
        return not numbers <= {"", "None", "1"} or any(self[name].errors for name in CLUSTER)

    @property
    def advanced_is_open(self) -> bool:
        """True if a field under "Advanced" has a value."""
        return any(self[name].value() for name in ADVANCED)

    def _require_amounts(self, cleaned: dict[str, Any]) -> None:
        cleaned["fgpu"] = 0 if cleaned.get("fgpu") is None else cleaned["fgpu"]
        missing = {
            "cpu": _("Say how many CPU cores."),
            "memory": _("Say how much RAM."),
            "shared_memory": _("Say how much shared memory."),
        }
        for name, text in missing.items():
            if cleaned.get(name) is None and name not in self.errors:
                self.add_error(name, text)

    def show(self, errors: Mapping[str, str]) -> None:
        """Show each message at its field: for an amount that comes from a preset, at the preset."""
        for name, message in errors.items():
            field: str | None = name
            if name in (*AMOUNTS, "gpu_memory") and self.cleaned_data.get("preset"):
                field = "preset"
            elif name == "image" and self.has_image_name:
                field = "image_name"
            elif name == "resource_groups":
                field = "other_groups"
            elif name == GENERAL or name not in self.fields:
                field = None
            self.add_error(field, message)


def _offer(field: forms.Field, queryset: Any) -> None:
    assert isinstance(field, forms.ModelChoiceField)
    field.queryset = queryset
