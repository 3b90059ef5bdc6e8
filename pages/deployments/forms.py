"""Forms of deployments: of a new one, of a revision, of settings and of tokens. The rules are in `deployments`."""

from dataclasses import dataclass
from typing import Any, Final

from django import forms
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.models import Project, User
from deployments.models import Deployment, HealthKind, Revision, RuntimeVariant
from deployments.requests import DeploymentRequest, HealthCheck, RevisionRequest
from deployments.validation import HEALTH_NUMBERS, MAX_NOTE_LENGTH, name_error
from folders.models import Folder
from folders.mount_paths import MAX_PATH_LENGTH
from resources.amounts.fields import FgpuFormField, SizeFormField
from resources.amounts.units import GIB
from resources.models import Image, ResourceGroup
from sessions.errors import RejectedError
from sessions.forms.service_form import ServiceForm
from sessions.launching import mounts
from sessions.launching.mounts import MountRequest
from sessions.launching.serializers import DEFAULT_SHARED_MEMORY

MORE: Final = ("health",)  # sections that are closed at first
CODE: Final = {"rows": 3, "spellcheck": "false"}

STRATEGIES: Final = (
    ("rolling", gettext_lazy("Rolling: one replica after the other")),
    ("canary", gettext_lazy("Canary: a growing share of the requests, back if it does worse")),
    ("blue_green", gettext_lazy("Blue/green: all requests at once, when all replicas are healthy")),
)


def number_field(label: Any, help_text: Any = "", *, required: bool = True) -> forms.IntegerField:
    """Return the field of a whole number."""
    return forms.IntegerField(label=label, help_text=help_text, required=required)


def text_field(label: Any, help_text: Any = "", *, required: bool = False, **options: Any) -> forms.CharField:
    """Return the field of a text."""
    return forms.CharField(label=label, help_text=help_text, required=required, **options)


def checkbox(label: Any, help_text: Any = "") -> forms.BooleanField:
    """Return the field of a setting that is on or off."""
    return forms.BooleanField(label=label, help_text=help_text, required=False)


def _choice(queryset: Any, label: Any, help_text: Any = "", **options: Any) -> forms.ModelChoiceField[Any]:
    return forms.ModelChoiceField(queryset, label=label, help_text=help_text, **options)


@dataclass(frozen=True, slots=True)
class FormSection:
    """Fields that stand together."""

    key: str
    title: str | Promise
    fields: list[forms.BoundField]
    is_more: bool  # closed at first

    @property
    def has_errors(self) -> bool:
        """Whether one of the fields is refused."""
        return any(field.errors for field in self.fields)


class VariablesField(forms.CharField):
    """Environment variables, one NAME=VALUE a line."""

    def to_python(self, value: Any) -> Any:
        """Return {name: value}. Raises ValidationError."""
        found: dict[str, str] = {}
        for line in (super().to_python(value) or "").splitlines():
            name, separator, text = line.partition("=")
            if not line.strip():
                continue
            if not separator or not name.strip():
                raise forms.ValidationError(_("Write NAME=VALUE: %(line)s") % {"line": line[:60]})
            found[name.strip()] = text
        return found

    def prepare_value(self, value: Any) -> Any:
        """Return the lines of variables, and a text as it is."""
        return "\n".join(f"{name}={text}" for name, text in value.items()) if isinstance(value, dict) else value


class LinesField(forms.CharField):
    """Words without spaces, such as origins or host names, one a line."""

    def to_python(self, value: Any) -> Any:
        """Return the list of words."""
        return (super().to_python(value) or "").split()

    def prepare_value(self, value: Any) -> Any:
        """Return the lines of a list, and a text as it is."""
        return "\n".join(value) if isinstance(value, list) else value


class StepsField(forms.CharField):
    """Percentages of the steps of a canary, with commas between them."""

    def to_python(self, value: Any) -> Any:
        """Return the list of numbers. Raises ValidationError."""
        parts = (super().to_python(value) or "").replace("%", " ").replace(",", " ").split()
        if not all(part.isascii() and part.isdecimal() and len(part) <= 3 for part in parts):
            raise forms.ValidationError(_("Write whole percentages with commas between them, such as 5, 50."))
        return [int(part) for part in parts]

    def prepare_value(self, value: Any) -> Any:
        """Return a list as text, and a text as it is."""
        return ", ".join(map(str, value)) if isinstance(value, list) else value


class SettingsForm(ServiceForm):
    """Settings of a deployment."""

    is_public = checkbox(gettext_lazy("Public"), gettext_lazy("Anybody who knows the address may use it."))
    concurrency = number_field(gettext_lazy("Requests at once"), gettext_lazy("That a replica serves; 0: any number"))
    queue = number_field(gettext_lazy("Requests that wait"), gettext_lazy("At most, while all replicas are busy"))
    sticky = text_field(
        gettext_lazy("One client, one replica"), gettext_lazy('By "cookie", or "header:NAME"; empty: no')
    )
    max_surge = number_field(gettext_lazy("More replicas in a rollout"), gettext_lazy("Beyond those wanted"))
    max_unavailable = number_field(gettext_lazy("Fewer replicas in a rollout"), gettext_lazy("Than are wanted"))
    drain_seconds = number_field(gettext_lazy("Seconds to finish"), gettext_lazy("That requests get as a replica ends"))
    strategy = forms.ChoiceField(
        label=gettext_lazy("Strategy of rollouts"),
        help_text=gettext_lazy("How a new revision takes the place of the one before"),
        choices=STRATEGIES,
    )
    canary_steps = StepsField(
        label=gettext_lazy("Steps of a canary"),
        help_text=gettext_lazy("Percent of the requests for the new revision, rising, such as 5, 50"),
    )
    step_seconds = number_field(
        gettext_lazy("Seconds of a step"), gettext_lazy("At least; old replicas stay so long after blue/green")
    )
    max_error_points = forms.FloatField(
        label=gettext_lazy("More errors than before"),
        help_text=gettext_lazy("In percentage points; beyond them a canary goes back"),
    )
    max_p95_ratio = forms.FloatField(
        label=gettext_lazy("Slower than before"),
        help_text=gettext_lazy("Times the 95th percentile; beyond it a canary goes back"),
    )
    allowed_origins = LinesField(
        label=gettext_lazy("Pages of other origins"),
        help_text=gettext_lazy("Which may use it, such as https://app.example.org, one a line; * for all"),
        required=False,
        empty_value="",
        widget=forms.Textarea(attrs=CODE),
    )

    @classmethod
    def of(cls, deployment: Deployment, data: Any = None) -> "SettingsForm":
        """Return the form with the values of now, or what was posted."""
        names = tuple(cls.base_fields)
        return cls(data, initial={name: getattr(deployment, name) for name in names}, prefix="settings")


class HostsForm(ServiceForm):
    """The host names of a deployment."""

    hosts = LinesField(
        label=gettext_lazy("Host names"),
        help_text=gettext_lazy("Such as models.example.org, one a line; DNS and TLS must lead them to this platform."),
        required=False,
        empty_value="",
        widget=forms.Textarea(attrs=CODE),
    )

    @classmethod
    def of(cls, deployment: Deployment, data: Any = None) -> "HostsForm":
        """Return the form with the names of now, or what was posted."""
        return cls(data, initial={"hosts": [host.name for host in deployment.hosts.all()]}, prefix="names")


class RevisionForm(ServiceForm):
    """What replicas run."""

    variant = _choice(
        RuntimeVariant.objects.filter(is_enabled=True),
        gettext_lazy("Runtime"),
        gettext_lazy("The program that serves: it has a command, a port and a health check of its own."),
        required=False,
        empty_label=gettext_lazy("A command of your own"),
    )
    image = _choice(Image.objects.none(), gettext_lazy("Environment"), gettext_lazy("What is installed"))
    model_folder = _choice(
        Folder.objects.none(),
        gettext_lazy("Model folder"),
        gettext_lazy("Mounted read-only; its path is in $MODEL_PATH."),
        required=False,
        empty_label=gettext_lazy("None"),
    )
    model_path = text_field(gettext_lazy("Mounted at"), gettext_lazy("Empty: /srv/model"), max_length=MAX_PATH_LENGTH)
    folders = forms.ModelMultipleChoiceField(
        Folder.objects.none(), label=gettext_lazy("Other folders"), required=False, widget=forms.CheckboxSelectMultiple
    )
    command = text_field(
        gettext_lazy("Command"),
        gettext_lazy("Run by /bin/sh; it is to listen on 0.0.0.0 at $PORT. Empty: the runtime's."),
        widget=forms.Textarea(attrs=CODE),
    )
    environment = VariablesField(
        label=gettext_lazy("Environment variables"),
        help_text=gettext_lazy("One NAME=VALUE a line"),
        required=False,
        widget=forms.Textarea(attrs=CODE),
    )
    port = number_field(gettext_lazy("Port"), gettext_lazy("Empty: the runtime's"), required=False)
    cpu = number_field(gettext_lazy("CPU cores"))
    memory = SizeFormField(widget=forms.TextInput, label=gettext_lazy("RAM"), help_text=gettext_lazy("Such as 16g"))
    shared_memory = SizeFormField(
        widget=forms.TextInput, label=gettext_lazy("Shared memory"), help_text=gettext_lazy("A part of the RAM")
    )
    fgpu = FgpuFormField(
        widget=forms.TextInput,
        label="fGPU",
        help_text=gettext_lazy("Of a GPU, such as 0.5; 0: none. Beside GPU memory: the least share"),
    )
    gpu_memory = SizeFormField(
        widget=forms.TextInput,
        label=gettext_lazy("GPU memory"),
        help_text=gettext_lazy(
            "In place of a share, such as 12g: the smallest share that has it, on whichever GPU it fits"
        ),
        required=False,
    )
    health_path = text_field(
        gettext_lazy("Health path"),
        gettext_lazy("A replica gets requests while it answers there. Empty: the runtime's, else /"),
    )
    is_tcp = checkbox(gettext_lazy("Only look whether the port accepts connections"))
    start_seconds = number_field(gettext_lazy("Seconds to start"), gettext_lazy("Until a replica must answer"))
    interval_seconds = number_field(gettext_lazy("Seconds between two probes"))
    timeout_seconds = number_field(gettext_lazy("Seconds for an answer"))
    retries = number_field(gettext_lazy("Failures in a row"), gettext_lazy("After which a replica gets no requests"))
    note = text_field(gettext_lazy("Note"), gettext_lazy("About this revision"), max_length=MAX_NOTE_LENGTH)

    SECTIONS: Any = {
        "program": (
            gettext_lazy("What it runs"),
            ("variant", "image", "model_folder", "model_path", "command", "port", "note", "environment", "folders"),
        ),
        "amounts": (gettext_lazy("What each replica has"), ("cpu", "memory", "shared_memory", "fgpu", "gpu_memory")),
        "health": (
            gettext_lazy("Health check"),
            ("health_path", "is_tcp", "start_seconds", "interval_seconds", "timeout_seconds", "retries"),
        ),
    }

    def __init__(self, owner: User, data: Any = None, *, current: Revision | None = None) -> None:
        """Take what was posted; before that, what the current revision has, if there is one."""
        super().__init__(data, initial=_of_revision(current) if current else _of_nothing())
        self.owner = owner
        self.current = current
        self._kept = {row.folder_id: row for row in current.mounts.all()} if current else {}
        offered = [each.folder.pk for each in mounts.offered_folders(owner)]
        folders = Folder.objects.filter(pk__in=[*offered, *filter(None, self._kept)]).select_related("root", "owner")
        images = Image.objects.usable_by(owner)
        if current:
            images = images | Image.objects.filter(pk=current.image_id)
        _offer(self.fields["image"], images.distinct().order_by("environment", "version"))
        _offer(self.fields["model_folder"], folders)
        _offer(self.fields["folders"], folders)
        if not folders:
            del self.fields["folders"]

    @property
    def sections(self) -> list[FormSection]:
        """The fields as the page groups them."""
        return [
            FormSection(key, title, [self[name] for name in names if name in self.fields], key in MORE)
            for key, (title, names) in self.SECTIONS.items()
            if any(name in self.fields for name in names)
        ]

    def revision_request(self) -> RevisionRequest:
        """Return the request of the valid form."""
        data = self.cleaned_data
        as_written = ("image", "variant", "command", "port", "environment", "cpu", "memory", "shared_memory", "fgpu")
        model = data.get("model_folder")
        kind = HealthKind.TCP if data["is_tcp"] else HealthKind.HTTP
        health = HealthCheck(
            kind=kind, path=data["health_path"].strip(), **{name: data[name] for name in HEALTH_NUMBERS}
        )
        return RevisionRequest(
            **{name: data[name] for name in as_written},
            gpu_memory=data["gpu_memory"] or 0,
            model_folder=self._mount(model, data["model_path"].strip()) if model else None,
            mounts=[self._mount(folder) for folder in data.get("folders", ()) if folder != model],
            health=health,
            note=data["note"].strip(),
        )

    def refuse(self, refusal: RejectedError) -> None:
        """Show the messages of a refusal at their fields, those of mounts where a folder was chosen."""
        self.service_fields = {"mounts": "folders" if self.cleaned_data.get("folders") else "model_folder"}
        super().refuse(refusal)

    def _mount(self, folder: Folder, path: str | None = None) -> MountRequest:
        """Return the request for a folder; what it does not say is as in the current revision, if it is there."""
        row = self._kept.get(folder.pk)
        path = (row.path if row else "") if path is None else path
        return MountRequest(folder=folder, path=path, is_read_only=row.is_read_only if row else None)


class DeploymentForm(RevisionForm):
    """A deployment to make, with its first revision."""

    name = text_field(
        gettext_lazy("Name"),
        gettext_lazy("Part of its address, which stays: lower-case letters, digits and hyphens"),
        required=True,
        max_length=20,
    )
    resource_group = _choice(ResourceGroup.objects.none(), gettext_lazy("Resource group"), empty_label=None)
    project = _choice(
        Project.objects.none(),
        gettext_lazy("Project"),
        gettext_lazy("Its members see the deployment and may use it; its limits apply as well."),
        required=False,
        empty_label=gettext_lazy("None"),
    )
    replicas = number_field(gettext_lazy("Replicas"), gettext_lazy("How many serve"))
    is_public = SettingsForm.base_fields["is_public"]

    SECTIONS: Any = {
        "name": (gettext_lazy("Name and access"), ("name", "replicas", "resource_group", "project", "is_public")),
        **RevisionForm.SECTIONS,
    }

    def __init__(self, owner: User, data: Any = None) -> None:
        super().__init__(owner, data)
        self.initial["replicas"] = 1
        projects = Project.objects.usable_by(owner)
        _offer(self.fields["resource_group"], ResourceGroup.objects.usable_by(owner))
        _offer(self.fields["project"], projects)
        if not projects:
            del self.fields["project"]

    def clean_name(self) -> str:
        """Return the name; refused here, a wrong one is told together with the other fields."""
        name: str = self.cleaned_data["name"]
        if error := name_error(name):
            raise forms.ValidationError(error)
        return name

    def deployment_request(self) -> DeploymentRequest:
        """Return the request of the valid form."""
        data = self.cleaned_data
        return DeploymentRequest(
            **{name: data[name] for name in ("name", "resource_group", "replicas", "is_public")},
            project=data.get("project"),
            revision=self.revision_request(),
        )


def variants() -> dict[str, dict[str, str]]:
    """Return what runtime variants fill into the form, by the values of its choice."""
    return {
        str(variant.pk): {
            "command": variant.command,
            "port": str(variant.port),
            "health_path": variant.health_path,
            "environment": "\n".join(f"{name}={text}" for name, text in variant.environment.items()),
        }
        for variant in RuntimeVariant.objects.filter(is_enabled=True)
    }


def _offer(field: forms.Field, queryset: Any) -> None:
    if isinstance(field, forms.ModelChoiceField):
        field.queryset = queryset


def _of_nothing() -> dict[str, Any]:
    usual = HealthCheck()
    numbers = {name: getattr(usual, name) for name in HEALTH_NUMBERS}
    return {"cpu": 2, "memory": 8 * GIB, "shared_memory": DEFAULT_SHARED_MEMORY, "fgpu": 0, **numbers}


def _of_revision(revision: Revision) -> dict[str, Any]:
    rows = [row for row in revision.mounts.all() if row.folder_id]
    names = ("variant", "image", "command", "environment", "port", "cpu", "memory", "shared_memory", "fgpu")
    return {
        **{name: getattr(revision, name) for name in (*names, "health_path", *HEALTH_NUMBERS)},
        "fgpu": revision.asked_fgpu,
        "gpu_memory": revision.gpu_memory or None,
        "is_tcp": revision.health_kind == HealthKind.TCP,
        "model_folder": next((row.folder_id for row in rows if row.is_model), None),
        "model_path": next((row.path for row in rows if row.is_model), ""),
        "folders": [row.folder_id for row in rows if not row.is_model],
    }
