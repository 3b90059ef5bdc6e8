"""Serializers of launch requests."""

from collections.abc import Mapping
from typing import Any, Final

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from accounts.models import Project, User
from accounts.policies import MAX_PRIORITY
from accounts.serializers import StrictSerializer
from folders.mount_paths import MAX_PATH_LENGTH
from folders.names import MAX_NAME_LENGTH
from resources.amounts.fields import MAX_INTEGER, FgpuField, SizeField, SpanField
from resources.amounts.units import MIB
from resources.models import Image, Preset, ResourceGroup
from sessions.errors import RejectedError
from sessions.launching import dependencies, image_choice, validation
from sessions.launching.group_choice import MAX_GROUPS
from sessions.launching.mounts import MountRequest, folders_named
from sessions.launching.requests import ClusterRequest
from sessions.launching.services import LaunchRequest
from sessions.lifecycle import DependencyKind
from sessions.models import ClusterMode

AS_WRITTEN = (
    *("name", "count", "priority", "command", "time_limit", "not_before", "gpu_model", "min_gpu_memory", "gpu_memory"),
)
ANY_GROUP: Final = "any"
AMOUNTS = ("cpu", "memory", "shared_memory", "fgpu")
DEFAULT_SHARED_MEMORY = 64 * MIB


@extend_schema_field({"type": "object", "additionalProperties": {"type": ["string", "integer"]}})
class EnvironmentField(serializers.Field[dict[str, str], Any, Any, Any]):
    """Environment variables as an object of texts; integers are accepted as texts."""

    def to_internal_value(self, data: Any) -> dict[str, str]:
        """Return {name: value}; raise ValidationError with the name of an invalid variable."""
        if not isinstance(data, Mapping):
            raise ValidationError('Write an object such as {"NAME": "value"}.')
        for name, value in data.items():
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise ValidationError(f"The value of {name!r} must be a text.")
        return {str(name): str(value) for name, value in data.items()}


def dependencies_schema(*names: str) -> dict[str, Any]:
    """Return the schema of what is waited for; `names` are the properties of which one says of what."""
    kinds = {"type": "string", "enum": [kind.value for kind in DependencyKind]}
    properties = {**{name: {"type": "string"} for name in names}, "kind": kinds}
    described = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"type": "array", "items": {"oneOf": [{"type": "string"}, described]}}


@extend_schema_field(dependencies_schema("session"))
class DependenciesField(serializers.Field[dict[str, DependencyKind], Any, Any, Any]):
    """What a session waits for: ids of sessions, texts such as "after_any:ID", or objects with `session` and `kind`."""

    def to_internal_value(self, data: Any) -> dict[str, DependencyKind]:
        """Return the kinds by id; raise ValidationError for an invalid one."""
        try:
            return dependencies.parse(map(_dependency_text, data if isinstance(data, list) else [data]))
        except RejectedError as error:
            raise ValidationError(list(error.errors.values())) from None


def _dependency_text(asked: Any) -> str:
    """Return one as a text; "" for what is none."""
    if isinstance(asked, Mapping) and {"session"} <= asked.keys() <= {"session", "kind"}:
        asked = f"{asked.get('kind', DependencyKind.AFTER_OK)}:{asked['session']}"
    return asked if isinstance(asked, str) else ""


@extend_schema_field(
    {"oneOf": [{"type": "string", "enum": [ANY_GROUP]}, {"type": "array", "items": {"type": "string"}}]}
)
class GroupsField(serializers.Field[Any, Any, Any, Any]):
    """Names of resource groups, or "any"."""

    def to_internal_value(self, data: Any) -> str | list[str]:
        """Return the names, or `ANY_GROUP`; raise ValidationError for anything else."""
        if data == ANY_GROUP:
            return ANY_GROUP
        if not isinstance(data, list) or not all(isinstance(each, str) for each in data):
            raise ValidationError('Write a list of names of resource groups, or "any".')
        if len(data) > MAX_GROUPS:
            raise ValidationError(f"A launch names at most {MAX_GROUPS} resource groups.")
        return data


class MountQuery(StrictSerializer):
    """A folder to mount."""

    folder = serializers.RegexField(
        r"^[A-Za-z0-9._-]+\Z", max_length=MAX_NAME_LENGTH, help_text="Its id, or the name of one of your own"
    )
    path = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=MAX_PATH_LENGTH,
        help_text="Absolute, or seen from the home folder; the folder's name when left out",
    )
    read_only = serializers.BooleanField(  # type: ignore[assignment]  # the metaclass collects it
        required=False, allow_null=True, help_text="When left out, only if the folder is shared read-only"
    )


@extend_schema_field(MountQuery(many=True))
class MountsField(serializers.Field[list[dict[str, Any]], Any, Any, Any]):
    """Folders to mount."""

    def to_internal_value(self, data: Any) -> list[dict[str, Any]]:
        """Return the valid mounts; raise ValidationError with the messages of the others."""
        if not isinstance(data, list):
            raise ValidationError('Write a list such as [{"folder": "data"}].')
        if len(data) > validation.MAX_MOUNTS:
            raise ValidationError(f"A session mounts at most {validation.MAX_MOUNTS} folders.")
        queries = [MountQuery(data=each) for each in data]
        problems = [{} if query.is_valid() else query.errors for query in queries]
        if any(problems):
            raise ValidationError(problems)
        return [query.validated_data for query in queries]


class MainQuery(StrictSerializer):
    """What the first member of a cluster has of its own; what is left out is as in the others."""

    cpu = serializers.IntegerField(required=False, min_value=1, max_value=MAX_INTEGER)
    memory = SizeField(required=False)
    fgpu = FgpuField(required=False, help_text="As each other member has, or 0, or any where the others have none")


class ClusterQuery(StrictSerializer):
    """A cluster of equal members, each with the amounts of the request, but for the first where it has its own."""

    size = serializers.IntegerField(
        min_value=1, max_value=MAX_INTEGER, help_text="Members with which it starts, the first one included"
    )
    max_size = serializers.IntegerField(
        default=None,
        allow_null=True,
        min_value=1,
        max_value=MAX_INTEGER,
        help_text="Members to which it grows while there is room that nobody waits for; null: it does not",
    )
    mode = serializers.ChoiceField(
        choices=ClusterMode.values,
        default=ClusterMode.ANY.value,
        help_text="any: one host where all fit, else the fewest; single-host: all on one; spread: each on its own",
    )
    shares_gpus = serializers.BooleanField(default=False, help_text="Members may have parts of the same GPU")
    runs_on_all = serializers.BooleanField(
        default=False, help_text="Every member runs the command with its rank, not the first alone"
    )
    max_restarts = serializers.IntegerField(
        default=0, min_value=0, max_value=MAX_INTEGER, help_text="How often all start again after a member failed"
    )
    main = MainQuery(required=False, allow_null=True, help_text="The size of the first member, main1")

    def validate_mode(self, mode: str) -> ClusterMode:
        """Return the member of the enumeration."""
        return ClusterMode(mode)


def _cluster_of(asked: Mapping[str, Any] | None) -> ClusterRequest | None:
    if not asked:
        return None
    main = {f"main_{name}": amount for name, amount in (asked.get("main") or {}).items()}
    return ClusterRequest(**{name: value for name, value in asked.items() if name != "main"}, **main)


class LaunchRequestSerializer(StrictSerializer):
    """A request for sessions: an image, and a preset or the amounts of resources.

    The image is given by its reference (`image`), or by `environment` and `version`. The resource group may be left
    out if the caller can use only one.
    """

    image = serializers.CharField(required=False, max_length=255, help_text="The image's reference")
    environment = serializers.CharField(required=False, max_length=64, help_text="With `version`, instead of `image`")
    version = serializers.CharField(required=False, max_length=64)
    name = serializers.CharField(required=False, allow_blank=True, max_length=64, help_text="Random when left out")
    resource_group = serializers.CharField(required=False, max_length=64)
    resource_groups = GroupsField(
        required=False,
        help_text='Other groups in which the sessions may start as well, or "any": every group that you may use. They '
        "start where they can first; among groups where they can at once, in the first, `resource_group` before all",
    )
    gpu_model = serializers.CharField(
        required=False, allow_blank=True, max_length=validation.MAX_GPU_MODEL_LENGTH, help_text="Of their GPUs"
    )
    min_gpu_memory = SizeField(
        required=False, help_text="That each gets on one GPU: of its share, or of each of several whole GPUs"
    )
    gpu_memory = SizeField(
        required=False,
        help_text="That each gets of one GPU, whatever its size: in place of `fgpu`, which is then the least beside it",
    )
    preset = serializers.CharField(required=False, max_length=64, help_text="Instead of the four amounts")
    cpu = serializers.IntegerField(required=False, min_value=1, max_value=MAX_INTEGER)
    memory = SizeField(required=False)
    shared_memory = SizeField(required=False, help_text="64 MiB when left out")
    fgpu = FgpuField(required=False, help_text="0 when left out")
    count = serializers.IntegerField(default=1, min_value=1, max_value=validation.MAX_COUNT)
    env = EnvironmentField(required=False, help_text="Environment variables")
    priority = serializers.IntegerField(
        required=False, min_value=0, max_value=MAX_PRIORITY, help_text="The higher, the earlier; 10 when left out"
    )
    project = serializers.CharField(
        required=False, allow_null=True, max_length=64, help_text="One of the caller's, whose limits apply as well"
    )

    cluster = ClusterQuery(
        required=False, allow_null=True, help_text="Several containers as one session, started and ended together"
    )
    command = serializers.CharField(
        required=False,
        max_length=validation.MAX_COMMAND_BYTES,
        help_text="Makes it a batch session, which ends with it",
    )
    time_limit = SpanField(required=False, allow_null=True, help_text="The session ends this long after its start")
    not_before = serializers.DateTimeField(required=False, allow_null=True, help_text="It starts then at the earliest")
    preemptible = serializers.BooleanField(
        required=False,
        allow_null=True,
        help_text="It may be ended for others, after a warning; as your policy says when left out",
    )
    depends_on = DependenciesField(
        required=False,
        help_text="Sessions and arrays before it: ids of those that must succeed, or with a kind, as after_any:ID. "
        "It starts after they have started (after), succeeded (after_ok), failed (after_not_ok) or ended (after_any)",
    )
    mounts = MountsField(required=False, help_text="Folders to mount beside those that are always mounted")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of `LaunchRequest`; raise ValidationError with all names that do not exist."""
        errors: dict[str, str] = {}
        found: dict[str, Any] = {}
        resolvers = (
            *(self._find_image, self._find_project, self._find_group),
            *(_find_amounts, self._find_dependencies, self._find_mounts),
        )
        for resolve in resolvers:
            try:
                found |= resolve({**attrs, **found})
            except ValidationError as error:
                errors |= error.detail  # type: ignore[arg-type]  # the functions above raise mappings
        if errors:
            raise ValidationError(errors)
        return {
            **{name: attrs[name] for name in AS_WRITTEN if name in attrs},
            **{name: found[name] for name in ("image", "project", "resource_group", "depends_on", "mounts", *AMOUNTS)},
            **{name: found[name] for name in ("other_groups", "is_any_group", "gpu_memory") if name in found},
            "environment": attrs.get("env", {}),
            "is_preemptible": attrs.get("preemptible"),
            "cluster": _cluster_of(attrs.get("cluster")),
        }

    def launch_request(self) -> LaunchRequest:
        """Return the validated request."""
        return LaunchRequest(**self.validated_data)

    @property
    def _user(self) -> User:
        user: User = self.context["request"].user
        return user

    def _find_image(self, attrs: Mapping[str, Any]) -> dict[str, Image]:
        reference, environment, version = (attrs.get(name) for name in ("image", "environment", "version"))
        try:
            if reference is not None and (environment, version) == (None, None):
                return {"image": image_choice.find_by_name(self._user, reference)}
            if reference is not None or environment is None:
                raise ValidationError({"image": "Name an image, or an environment and its version."})
            if version is None:
                raise ValidationError({"version": "Name the version of the environment."})
            return {"image": image_choice.find_version(self._user, environment, version)}
        except RejectedError as error:
            raise ValidationError(error.errors) from None

    def _find_group(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the preferred group, and the others: without a name, the first of them is preferred."""
        project = attrs.get("project")
        if isinstance(project, str):  # unknown, and reported already
            return {}
        name, others = attrs.get("resource_group"), attrs.get("resource_groups", [])
        if others == ANY_GROUP:
            usable = ResourceGroup.objects.usable_for(self._user, project)
            first = usable.order_by("name").first() if name is None else None
            return {"resource_group": first or group_for(self._user, name, project), "is_any_group": True}
        group = group_for(self._user, others[0] if others and name is None else name, project)
        known = {each.name: each for each in ResourceGroup.objects.usable_by(self._user)} if others else {}
        if unknown := [each for each in others if each not in known]:
            raise ValidationError({"resource_groups": f"There is no resource group {unknown[0]!r} that you may use."})
        return {"resource_group": group, "other_groups": [known[each] for each in others]}

    def _find_project(self, attrs: Mapping[str, Any]) -> dict[str, Project | None]:
        return {"project": project_for(self._user, attrs.get("project"))}

    def _find_dependencies(self, attrs: Mapping[str, Any]) -> dict[str, dependencies.Dependencies]:
        try:
            return {"depends_on": dependencies.find(self._user, attrs.get("depends_on", {}))}
        except RejectedError as error:
            raise ValidationError(error.errors) from None

    def _find_mounts(self, attrs: Mapping[str, Any]) -> dict[str, list[MountRequest]]:
        asked = attrs.get("mounts", [])
        found = folders_named(self._user, {each["folder"] for each in asked}) if asked else {}
        if unknown := [each["folder"] for each in asked if each["folder"] not in found]:
            raise ValidationError(
                {"mounts": [f"There is no folder {name!r} of yours; others are named by their id." for name in unknown]}
            )
        return {
            "mounts": [
                MountRequest(
                    folder=found[each["folder"]], path=each.get("path", ""), is_read_only=each.get("read_only")
                )
                for each in asked
            ]
        }


def project_for(user: User, name: str | None) -> Project | None:
    """Return the project of this name, None for none. Raises ValidationError; one query at most."""
    if name is None:
        return None
    try:
        return Project.objects.usable_by(user).select_related("policy").get(name=name)
    except Project.DoesNotExist:
        raise ValidationError({"project": f"You are not a member of an active project {name!r}."}) from None


def group_for(user: User, name: str | None, project: Project | None = None) -> ResourceGroup:
    """Return the group of this name, or the only one that the user may use for the project, or for none.

    One that is named may be granted to another project of the user: `policy_checks.group_errors` says so, as it does
    on the page. Raises ValidationError; one query.
    """
    found = ResourceGroup.objects.usable_for(user, project) if name is None else ResourceGroup.objects.usable_by(user)
    groups = list(found)
    wanted = [group for group in groups if name in (None, group.name)]
    if len(wanted) == 1:
        return wanted[0]
    if name is not None:
        message = f"There is no resource group {name!r} that you may use."
    elif groups:
        message = f"Choose one of your resource groups: {', '.join(group.name for group in groups)}."
    else:
        message = "You may not use any resource group yet; ask an administrator."
    raise ValidationError({"resource_group": message})


def _find_amounts(attrs: Mapping[str, Any]) -> dict[str, int]:
    if "preset" in attrs:
        return _preset_amounts(attrs)
    if missing := [name for name in ("cpu", "memory") if name not in attrs]:
        raise ValidationError(dict.fromkeys(missing, "Say how much, or name a preset."))
    defaults = {"shared_memory": DEFAULT_SHARED_MEMORY, "fgpu": 0}
    return {name: attrs.get(name, defaults.get(name)) for name in AMOUNTS}


def _preset_amounts(attrs: Mapping[str, Any]) -> dict[str, int]:
    """Return the amounts of the preset; one of the group takes precedence over one of all groups."""
    if any(name in attrs for name in (*AMOUNTS, "gpu_memory")):
        raise ValidationError({"preset": "Name a preset or the amounts, not both."})
    group = attrs.get("resource_group")
    if not isinstance(group, ResourceGroup):  # invalid, and reported already
        return {}
    presets = {preset.group_id: preset for preset in Preset.objects.filter(name=attrs["preset"])}
    preset = presets.get(group.pk) or presets.get(None)
    if preset is None:
        raise ValidationError({"preset": f"There is no preset {attrs['preset']!r} in {group}."})
    return {name: getattr(preset, name) for name in (*AMOUNTS, "gpu_memory")}
