"""What the API takes of deployments, and the requests to the services that it becomes."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from accounts.models import User
from accounts.serializers import StrictSerializer
from deployments import services
from deployments.hosts import MAX_HOSTS
from deployments.models import MAX_HOST_NAME_LENGTH, HealthKind, Revision, RolloutStrategy, RuntimeVariant
from deployments.requests import DeploymentRequest, HealthCheck, RevisionRequest
from deployments.validation import (
    HEALTH_NUMBERS,
    MAX_CANARY_STEPS,
    MAX_NOTE_LENGTH,
    MAX_ORIGINS,
    RANGES,
)
from folders.models import Folder
from resources.amounts.fields import MAX_INTEGER, FgpuField, SizeField
from resources.models import Image
from restapi.fields import RowNameField
from sessions.errors import RejectedError
from sessions.launching import image_choice
from sessions.launching.mounts import MountRequest, folders_named
from sessions.launching.serializers import (
    DEFAULT_SHARED_MEMORY,
    EnvironmentField,
    MountQuery,
    MountsField,
    group_for,
    project_for,
)
from sessions.launching.validation import MAX_COMMAND_BYTES

NAME_PATTERN: Final = r"^[a-z](-?[a-z0-9])*\Z"
ORIGIN_PATTERN: Final = r"^(\*|https?://[a-z0-9.:\[\]-]+)\Z"
STICKY_PATTERN: Final = r"^(cookie|header:[A-Za-z0-9-]{1,64})?\Z"


def number(name: str, **options: Any) -> serializers.IntegerField:
    """Return the field of a number with the bounds that the services have for it."""
    low, high = RANGES[name]
    return serializers.IntegerField(min_value=low, max_value=high, required=False, **options)


def share(name: str, **options: Any) -> serializers.FloatField:
    """Return the field of a number with a fraction, with the bounds that the services have for it."""
    low, high = RANGES[name]
    return serializers.FloatField(min_value=low, max_value=high, required=False, **options)


def origins() -> serializers.ListField:
    """Return the field of the origins whose pages may use a deployment."""
    child = serializers.RegexField(ORIGIN_PATTERN, max_length=280)
    help_text = 'Whose pages may use it, such as https://app.example.org; "*" alone: those of all'
    return serializers.ListField(child=child, max_length=MAX_ORIGINS, required=False, help_text=help_text)


class HealthBody(StrictSerializer):
    """How a replica is asked whether it serves."""

    kind = serializers.ChoiceField(choices=HealthKind.values, required=False, help_text="http when left out")
    path = serializers.CharField(
        max_length=255, required=False, allow_blank=True, help_text="Answered below 400; the variant's when left out"
    )
    start_seconds = number("start_seconds", help_text="Until a replica must be healthy; 300 when left out")
    interval_seconds = number("interval_seconds", help_text="Between two probes; 5 when left out")
    timeout_seconds = number("timeout_seconds", help_text="Of a probe; 2 when left out")
    retries = number("retries", help_text="Probes in a row that may fail; 3 when left out")


class RevisionBody(StrictSerializer):
    """What replicas run. What is left out is as in the current revision.

    Of a first revision, or one with another variant, command, port, health path and variables are the variant's.
    """

    image = serializers.CharField(max_length=255, required=False, help_text="Its reference; a first revision needs it")
    variant = RowNameField[RuntimeVariant](
        slug_field="name", queryset=RuntimeVariant.objects.filter(is_enabled=True), required=False, allow_null=True
    )
    command = serializers.CharField(
        max_length=MAX_COMMAND_BYTES, required=False, allow_blank=True, help_text="A line of the shell"
    )
    port = number("port", help_text="At which it serves")
    env = EnvironmentField(required=False, help_text="Environment variables beside the variant's, PORT and MODEL_PATH")
    cpu = serializers.IntegerField(min_value=1, max_value=MAX_INTEGER, required=False)
    memory = SizeField(required=False)
    shared_memory = SizeField(required=False, help_text="64 MiB when left out of a first revision")
    fgpu = FgpuField(required=False, help_text="0 when left out of a first revision")
    gpu_memory = SizeField(
        required=False,
        help_text="Of one GPU, whatever its size, in place of `fgpu`, which beside it is the least share",
    )
    model_folder = MountQuery(
        required=False,
        allow_null=True,
        help_text="With the model, read-only and at /srv/model unless it says otherwise",
    )
    mounts = MountsField(required=False, help_text="Folders besides")
    health = HealthBody(required=False)
    note = serializers.CharField(max_length=MAX_NOTE_LENGTH, required=False, allow_blank=True)

    def revision_request(self, owner: User, current: Revision | None = None) -> RevisionRequest:
        """Return the request for the owner's deployment. Raises ValidationError with all names that do not exist."""
        asked = self.validated_data
        errors: dict[str, Any] = {}
        found: dict[str, Any] = {}
        resolvers = (_image, _amounts, _model_folder, _mounts)
        for resolve in resolvers:
            try:
                found |= resolve(owner, asked, current)
            except ValidationError as error:
                errors |= error.detail  # type: ignore[arg-type]  # the functions below raise mappings
        if errors:
            raise ValidationError(errors)
        return RevisionRequest(**found, **_program(asked, current), note=asked.get("note", ""))


class NewRevisionBody(RevisionBody):
    """A revision to make."""

    activate = serializers.BooleanField(default=True, help_text="Have the replicas replaced by such as run it")


class RolloutSettingsBody(StrictSerializer):
    """How revisions are rolled out."""

    strategy = serializers.ChoiceField(
        choices=RolloutStrategy.choices, required=False, help_text="How a revision takes the place of the one before"
    )
    canary_steps = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=99),
        min_length=1,
        max_length=MAX_CANARY_STEPS,
        required=False,
        help_text="Percent of the requests that a new revision gets, rising",
    )
    step_seconds = number(
        "step_seconds", help_text="Of each step of a canary, and for which old replicas stay after blue/green"
    )
    max_error_points = share("max_error_points", help_text="Percentage points more failed requests than before")
    max_p95_ratio = share("max_p95_ratio", help_text="The 95th percentile of durations, to that of the old revision")


class PromotionBody(StrictSerializer):
    """How far a rollout by steps is to go on."""

    to_all = serializers.BooleanField(default=False, help_text="Past all steps that are left")


class HostsBody(StrictSerializer):
    """The host names that are to lead to a deployment, beside its own address."""

    hosts = serializers.ListField(
        child=serializers.CharField(max_length=MAX_HOST_NAME_LENGTH),
        max_length=MAX_HOSTS,
        allow_empty=True,
        help_text="All of them, such as models.example.org; those left out are removed at once",
    )


class SettingsBody(RolloutSettingsBody):
    """Settings of a deployment, as far as they are to change; another resource group replaces its replicas."""

    replicas = number("replicas", help_text="How many are wanted; 0 stops it, and it keeps its address")
    resource_group = serializers.CharField(max_length=64, required=False)
    public = serializers.BooleanField(required=False, help_text="No token is needed")
    sticky = serializers.RegexField(
        STICKY_PATTERN, required=False, allow_blank=True, help_text='One client, one replica: "cookie" or "header:NAME"'
    )
    max_surge = number("max_surge", help_text="Replicas beyond those wanted, during a rollout")
    max_unavailable = number("max_unavailable", help_text="Replicas that may be missing, during a rollout")
    concurrency = number("concurrency", help_text="Requests that a replica serves at once; 0: any")
    queue = number("queue", help_text="Requests that wait at most while all replicas are busy")
    drain_seconds = number("drain_seconds", help_text="That requests get to finish as a replica ends")
    allowed_origins = origins()

    def settings(self) -> dict[str, Any]:
        """Return {name of a setting: value}, without replicas and resource group."""
        return settings_of(self.validated_data)


class NewDeploymentBody(RolloutSettingsBody, RevisionBody):
    """A deployment to make, with its first revision."""

    name = serializers.RegexField(
        NAME_PATTERN, max_length=20, help_text="Part of its address: lower-case letters, digits and single hyphens"
    )
    project = serializers.CharField(required=False, allow_null=True, max_length=64, help_text="One of the caller's")
    replicas = number("replicas", help_text="1 when left out")
    resource_group = serializers.CharField(max_length=64, required=False)
    public = serializers.BooleanField(required=False, help_text="No token is needed")
    sticky = serializers.RegexField(STICKY_PATTERN, required=False, allow_blank=True)
    max_surge = number("max_surge")
    max_unavailable = number("max_unavailable")
    concurrency = number("concurrency", help_text="Default 64; 0: any")
    queue = number("queue")
    drain_seconds = number("drain_seconds")
    allowed_origins = origins()

    def deployment_request(self, owner: User) -> DeploymentRequest:
        """Return the request. Raises ValidationError with all names that do not exist."""
        asked = self.validated_data
        errors: dict[str, Any] = {}
        found: dict[str, Any] = {}
        steps: dict[str, Callable[[], Any]] = {
            "project": lambda: project_for(owner, asked.get("project")),
            "resource_group": lambda: group_for(owner, asked.get("resource_group"), found.get("project")),
            "revision": lambda: self.revision_request(owner),
        }
        for name, step in steps.items():
            try:
                found[name] = step()
            except ValidationError as error:
                errors |= error.detail  # type: ignore[arg-type]  # the functions raise mappings
        if errors:
            raise ValidationError(errors)
        given = {"replicas": asked["replicas"]} if "replicas" in asked else {}
        return DeploymentRequest(name=asked["name"], **found, **given, **settings_of(asked))


def settings_of(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return {name of a setting: value} of those that a body has."""
    given = {name: asked[name] for name in services.SETTINGS if name in asked and name != "resource_group"}
    return given | ({"is_public": asked["public"]} if "public" in asked else {})


def current_mounts(revision: Revision | None, *, is_model: bool) -> list[MountRequest]:
    """Return the model folder, or the other mounts, of a stored revision. Raises ValidationError for a deleted one."""
    rows = revision.mounts.filter(is_model=is_model).select_related("folder__root") if revision else ()
    if gone := [row.folder_name for row in rows if row.folder is None]:
        raise ValidationError({"model_folder" if is_model else "mounts": [f"The folder {gone[0]} was deleted."]})
    return [MountRequest(folder=row.folder, path=row.path, is_read_only=row.is_read_only) for row in rows if row.folder]


def health_of(revision: Revision) -> HealthCheck:
    """Return the health check of a stored revision."""
    numbers = {name: getattr(revision, name) for name in HEALTH_NUMBERS}
    return HealthCheck(kind=HealthKind(revision.health_kind), path=revision.health_path, **numbers)


def _image(owner: User, asked: Mapping[str, Any], current: Revision | None) -> dict[str, Image]:
    if "image" not in asked:
        if current is None:
            raise ValidationError({"image": "Name an image."})
        return {"image": current.image}
    try:
        return {"image": image_choice.find_by_name(owner, asked["image"])}
    except RejectedError as error:
        raise ValidationError(error.errors) from None


def _amounts(owner: User, asked: Mapping[str, Any], current: Revision | None) -> dict[str, int]:
    names = ("cpu", "memory", "shared_memory", "fgpu")
    usual = {name: getattr(current, name) for name in names} | {"fgpu": current.asked_fgpu} if current else {}
    if current and "gpu_memory" in asked and bool(asked["gpu_memory"]) != bool(current.gpu_memory):
        usual["fgpu"] = 0  # memory takes the place of a share, or goes
    found = {"shared_memory": DEFAULT_SHARED_MEMORY, "fgpu": 0, **usual, **{n: asked[n] for n in names if n in asked}}
    usual_memory = current.gpu_memory if current and "fgpu" not in asked else 0  # a share takes its place
    found["gpu_memory"] = asked.get("gpu_memory", usual_memory)
    if missing := [name for name in names if name not in found]:
        raise ValidationError(dict.fromkeys(missing, "Say how much."))
    return found


def _model_folder(owner: User, asked: Mapping[str, Any], current: Revision | None) -> dict[str, MountRequest | None]:
    if "model_folder" in asked:
        given = asked["model_folder"]
        return {"model_folder": _mount_requests(owner, [given], "model_folder")[0] if given else None}
    return {"model_folder": next(iter(current_mounts(current, is_model=True)), None)}


def _mounts(owner: User, asked: Mapping[str, Any], current: Revision | None) -> dict[str, list[MountRequest]]:
    if "mounts" in asked:
        return {"mounts": _mount_requests(owner, asked["mounts"], "mounts")}
    return {"mounts": current_mounts(current, is_model=False)}


def _mount_requests(owner: User, asked: list[Mapping[str, Any]], field: str) -> list[MountRequest]:
    found: Mapping[str, Folder] = folders_named(owner, {each["folder"] for each in asked}) if asked else {}
    if unknown := [each["folder"] for each in asked if each["folder"] not in found]:
        text = "There is no folder {!r} of yours; others are named by their id."
        raise ValidationError({field: [text.format(name) for name in unknown]})
    return [
        MountRequest(folder=found[each["folder"]], path=each.get("path", ""), is_read_only=each.get("read_only"))
        for each in asked
    ]


def _program(asked: Mapping[str, Any], current: Revision | None) -> dict[str, Any]:
    """Return what a replica runs: of the current revision unless another variant is named, and what is given."""
    is_same_variant = current is not None and asked.get("variant", current.variant) == current.variant
    usual: dict[str, Any] = {"variant": asked.get("variant")}
    health = health_of(current) if current else HealthCheck()
    if current is not None and is_same_variant:
        usual = {name: getattr(current, name) for name in ("variant", "command", "port", "environment")}
    elif current is not None:
        health = replace(health, kind=HealthKind.HTTP, path="")
    given = {name: asked[name] for name in ("command", "port") if name in asked}
    if "env" in asked:
        given["environment"] = asked["env"]
    checked = dict(asked.get("health", {}))
    if "kind" in checked:
        checked["kind"] = HealthKind(checked["kind"])
    elif checked.get("path"):
        checked["kind"] = HealthKind.HTTP
    return {**usual, **given, "health": replace(health, **checked)}
