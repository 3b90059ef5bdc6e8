"""Serializers of sessions and of launch requests."""

import re
from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from accounts.models import User
from accounts.serializers import StrictSerializer
from folders.mount_paths import MAX_PATH_LENGTH
from folders.names import MAX_NAME_LENGTH
from resources.fields import MAX_INTEGER, FgpuField, FgpuTextField, SizeField, SpanField
from resources.models import Image, Preset, ResourceGroup
from resources.tiers import Tier
from resources.units import MIB
from sessions import image_choice, validation
from sessions.app_serializers import EndpointSerializer
from sessions.errors import RejectedError
from sessions.lifecycle import Kind, Reason, Status, Tab
from sessions.models import Mount, Session, SessionEvent
from sessions.mounts import MountRequest, folders_named
from sessions.services import LaunchRequest
from sessions.ssh_command import ssh_command
from sessions.stats import StatsWindow

AS_WRITTEN = ("name", "count", "priority", "command", "time_limit", "not_before")
SESSION_ID = re.compile("[a-z2-7]{16}")
AMOUNTS = ("cpu", "memory", "shared_memory", "fgpu")
DEFAULT_SHARED_MEMORY = 64 * MIB
DEFAULT_PRIORITY: int = Session._meta.get_field("priority").default
MAX_PRIORITY = 100


class GpuShareSerializer(serializers.Serializer[Any]):
    """The share of one GPU that a session holds, and its enforcement tier."""

    uuid = serializers.CharField()
    fgpu = FgpuTextField()
    tier = serializers.ChoiceField(choices=[tier.value for tier in Tier])


class MountSerializer(serializers.ModelSerializer[Mount]):
    """A folder of a session, and where it is mounted."""

    folder = serializers.CharField(source="folder_id", allow_null=True, help_text="Its id; null once it was deleted")
    name = serializers.CharField(source="folder_name", help_text="As it was at launch")
    read_only = serializers.BooleanField(source="is_read_only")  # type: ignore[assignment]  # the metaclass collects it
    automatic = serializers.BooleanField(source="is_automatic", help_text="Because the folder's name begins with a dot")
    over_quota = serializers.BooleanField(
        source="is_held_read_only", help_text="Read-only at present, since its owner uses more storage than allowed"
    )
    problem = serializers.CharField(help_text="Why it is not mounted; empty if it is")

    class Meta:
        model = Mount
        fields = ("folder", "name", "path", "read_only", "automatic", "over_quota", "problem")
        read_only_fields = fields


class SessionSerializer(serializers.ModelSerializer[Session]):
    """A session as its owner and superadmins see it. Memory in bytes; `gpus` is empty while it holds none."""

    owner = serializers.EmailField(source="owner.email", read_only=True)
    status = serializers.ChoiceField(choices=[status.value for status in Status], read_only=True)
    reason = serializers.ChoiceField(choices=[reason.value for reason in Reason], read_only=True)
    detail = serializers.CharField(read_only=True, help_text="The reason in words")
    image = serializers.CharField(source="image.reference", read_only=True)
    environment = serializers.CharField(source="image.environment", read_only=True)
    version = serializers.CharField(source="image.version", read_only=True)
    resource_group = serializers.CharField(source="resource_group.name", read_only=True)
    fgpu = FgpuTextField(read_only=True)
    host = serializers.CharField(source="host.name", default=None, read_only=True, allow_null=True)
    gpus = serializers.SerializerMethodField()
    env = serializers.SerializerMethodField(help_text="Environment variables; null for anybody but the owner")

    ssh = serializers.SerializerMethodField(help_text="Command to connect over SSH; empty while not possible")

    apps = EndpointSerializer(source="endpoints", many=True, read_only=True, help_text="Open apps")

    kind = serializers.ChoiceField(choices=[kind.value for kind in Kind], read_only=True)
    command = serializers.SerializerMethodField(help_text="Command of a batch session; null for anybody but the owner")
    time_limit = SpanField(read_only=True, allow_null=True, help_text="Seconds from its start to its end")
    ends_at = serializers.DateTimeField(
        read_only=True, allow_null=True, help_text="When it reaches its limits, extensions included"
    )
    depends_on = serializers.PrimaryKeyRelatedField[Session](
        many=True, read_only=True, help_text="Sessions that must succeed before it starts"
    )
    eta = serializers.DateTimeField(read_only=True, help_text="When a waiting session starts, as far as is known")
    eta_reason = serializers.CharField(read_only=True, help_text="Why not before")
    mounts = MountSerializer(many=True, read_only=True, help_text="Folders that it mounts")
    result = serializers.CharField(read_only=True, help_text="SUCCESS or FAILURE of a batch session that has ended")

    class Meta:
        model = Session
        fields = (
            *("id", "name", "owner", "status", "reason", "detail", "image", "environment", "version"),
            *("resource_group", "cpu", "memory", "shared_memory", "fgpu", "host", "gpus", "env", "priority"),
            *("kind", "command", "time_limit", "not_before", "depends_on", "eta", "eta_reason", "result"),
            *("attempt", "exit_code", "created_at", "status_at", "started_at", "ends_at", "ended_at"),
            *("last_activity_at", "ssh", "apps", "mounts"),
        )
        read_only_fields = fields

    @extend_schema_field(GpuShareSerializer(many=True))
    def get_gpus(self, session: Session) -> Any:
        """Return the shares of the session's lease, which the view has fetched."""
        held = [
            {"uuid": share.gpu.uuid, "fgpu": share.milli, "tier": tier.value} for share, tier in session.held_shares
        ]
        return GpuShareSerializer(held, many=True).data

    def get_ssh(self, session: Session) -> str:
        """Return the command to connect over SSH, or ""."""
        return ssh_command(session)

    def get_command(self, session: Session) -> str | None:
        """Return the command for the owner, else None: it may hold secrets."""
        return session.command if self.context["request"].user == session.owner else None

    def get_env(self, session: Session) -> dict[str, str] | None:
        """Return the variables for the owner, else None: they may hold secrets."""
        return session.environment if self.context["request"].user == session.owner else None


class ExtensionSerializer(StrictSerializer):
    """By how much longer a session is to run."""

    by = SpanField(help_text='Seconds, or a text such as "90m"')


class SessionEventSerializer(serializers.ModelSerializer[SessionEvent]):
    """One change of status; `old_status` is empty for the first."""

    actor = serializers.EmailField(source="actor.email", default=None, read_only=True, allow_null=True)

    class Meta:
        model = SessionEvent
        fields = ("at", "old_status", "new_status", "reason", "detail", "actor")
        read_only_fields = fields


class RenameSerializer(serializers.Serializer[Any]):
    """Another name of a session."""

    name = serializers.CharField()


class StatsPointSerializer(serializers.Serializer[Any]):
    """What the session used around a moment; null is what could not be measured."""

    at = serializers.DateTimeField()
    cpu_milli = serializers.IntegerField(allow_null=True, help_text="Mean use of CPU, in thousandths of a core")
    memory = serializers.IntegerField(allow_null=True, help_text="Most bytes held, without page cache")
    received = serializers.IntegerField(allow_null=True, help_text="Mean bytes per second from the network")
    sent = serializers.IntegerField(allow_null=True, help_text="Mean bytes per second to the network")
    gpu_memory = serializers.IntegerField(allow_null=True, help_text="Most bytes held of its GPUs' memory")
    gpu_utilisation = serializers.IntegerField(
        allow_null=True, help_text="Mean percent of its GPUs' time; null if it cannot be measured per session"
    )
    gpu_share_utilisation = serializers.IntegerField(allow_null=True, help_text="The same, in percent of its share")


class StatsSerializer(serializers.Serializer[Any]):
    """What a session uses, oldest first, and what it may use; no points if nothing was recorded."""

    window = serializers.ChoiceField(choices=[window.value for window in StatsWindow])
    step = SpanField(help_text="Seconds that a point stands for")
    cpu_milli = serializers.IntegerField(help_text="Thousandths of a core that it may use")
    memory = serializers.IntegerField(help_text="Bytes that it may use")
    gpu_memory_share = serializers.IntegerField(allow_null=True, help_text="Bytes that it may use; null without a GPU")
    gpu_memory_cards = serializers.IntegerField(allow_null=True, help_text="Bytes that its GPUs have in all")
    points = StatsPointSerializer(many=True)


class StatsQuery(serializers.Serializer[Any]):
    """Query parameters of the statistics."""

    window = serializers.ChoiceField(
        choices=[window.value for window in StatsWindow],
        required=False,
        help_text="The last hour or the whole life; if left out, the hour while it runs, and the life afterwards",
    )


class SessionQuery(serializers.Serializer[Any]):
    """Query parameters of the session list."""

    tab = serializers.ChoiceField(choices=[tab.value for tab in Tab], required=False)
    status = serializers.ChoiceField(choices=[status.value for status in Status], required=False)
    name = serializers.CharField(required=False, max_length=64, help_text="A part of the name, in any case")
    owner = serializers.CharField(required=False, max_length=254, help_text="E-mail address; for superadmins")


class LogsQuery(serializers.Serializer[Any]):
    """Query parameters of the log."""

    tail = serializers.IntegerField(default=1000, min_value=1, max_value=10_000, help_text="Lines from the end")


@extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
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


@extend_schema_field({"type": "array", "items": {"type": "string"}})
class SessionsField(serializers.Field[list[str], Any, Any, Any]):
    """Session ids."""

    def to_internal_value(self, data: Any) -> list[str]:
        """Return the ids; raise ValidationError for an invalid one."""
        if not isinstance(data, list) or not all(isinstance(each, str) and SESSION_ID.fullmatch(each) for each in data):
            raise ValidationError("Write a list of session ids.")
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
    """Folders to mount; the messages of all of them are in one list."""

    def to_internal_value(self, data: Any) -> list[dict[str, Any]]:
        """Return the valid mounts; raise ValidationError with the messages of the others."""
        if not isinstance(data, list):
            raise ValidationError('Write a list such as [{"folder": "data"}].')
        if len(data) > validation.MAX_MOUNTS:
            raise ValidationError(f"A session mounts at most {validation.MAX_MOUNTS} folders.")
        queries = [MountQuery(data=each) for each in data]
        problems = [
            f"Folder {number}, {field}: {message}"
            for number, query in enumerate(queries, 1)
            if not query.is_valid()
            for field, messages in query.errors.items()
            for message in messages
        ]
        if problems:
            raise ValidationError(problems)
        return [query.validated_data for query in queries]


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
    preset = serializers.CharField(required=False, max_length=64, help_text="Instead of the four amounts")
    cpu = serializers.IntegerField(required=False, min_value=1, max_value=MAX_INTEGER)
    memory = SizeField(required=False)
    shared_memory = SizeField(required=False, help_text="64 MiB when left out")
    fgpu = FgpuField(required=False, help_text="0 when left out")
    count = serializers.IntegerField(default=1, min_value=1, max_value=validation.MAX_COUNT)
    env = EnvironmentField(required=False, help_text="Environment variables")
    priority = serializers.IntegerField(default=DEFAULT_PRIORITY, min_value=0, max_value=MAX_PRIORITY)

    command = serializers.CharField(
        required=False,
        max_length=validation.MAX_COMMAND_BYTES,
        help_text="Makes it a batch session, which ends with it",
    )
    time_limit = SpanField(required=False, allow_null=True, help_text="The session ends this long after its start")
    not_before = serializers.DateTimeField(required=False, allow_null=True, help_text="It starts then at the earliest")
    depends_on = SessionsField(required=False, help_text="Ids of sessions that must succeed before it starts")
    mounts = MountsField(required=False, help_text="Folders to mount beside those that are always mounted")

    def validate_priority(self, priority: int) -> int:
        """Return the priority; raise ValidationError above the default unless the caller is a superadmin."""
        if priority > DEFAULT_PRIORITY and not self._user.is_superuser:
            raise ValidationError(f"Only superadmins may ask for more than {DEFAULT_PRIORITY}.")
        return priority

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of `LaunchRequest`; raise ValidationError with all names that do not exist."""
        errors: dict[str, str] = {}
        found: dict[str, Any] = {}
        for resolve in (self._find_image, self._find_group, _find_amounts, self._find_dependencies, self._find_mounts):
            try:
                found |= resolve({**attrs, **found})
            except ValidationError as error:
                errors |= error.detail  # type: ignore[arg-type]  # the functions above raise mappings
        if errors:
            raise ValidationError(errors)
        return {
            **{name: attrs[name] for name in AS_WRITTEN if name in attrs},
            **{name: found[name] for name in ("image", "resource_group", "depends_on", "mounts", *AMOUNTS)},
            "environment": attrs.get("env", {}),
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

    def _find_group(self, attrs: Mapping[str, Any]) -> dict[str, ResourceGroup]:
        return {"resource_group": group_for(self._user, attrs.get("resource_group"))}

    def _find_dependencies(self, attrs: Mapping[str, Any]) -> dict[str, list[Session]]:
        ids = attrs.get("depends_on", [])
        found = list(Session.objects.visible_to(self._user).filter(pk__in=ids)) if ids else []
        if unknown := set(ids) - {session.pk for session in found}:
            raise ValidationError({"depends_on": f"There is no session {min(unknown)!r} of yours."})
        return {"depends_on": found}

    def _find_mounts(self, attrs: Mapping[str, Any]) -> dict[str, list[MountRequest]]:
        asked = attrs.get("mounts", [])
        found = folders_named(self._user, {each["folder"] for each in asked}) if asked else {}
        if unknown := [each["folder"] for each in asked if each["folder"] not in found]:
            raise ValidationError(
                {"mounts": [f"There is no folder {name!r} of yours or shared with you." for name in unknown]}
            )
        return {
            "mounts": [
                MountRequest(
                    folder=found[each["folder"]], path=each.get("path", ""), is_read_only=each.get("read_only")
                )
                for each in asked
            ]
        }


def group_for(user: User, name: str | None) -> ResourceGroup:
    """Return the group of this name, or the only one that the user may use. Raises ValidationError; one query."""
    groups = list(ResourceGroup.objects.usable_by(user))
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
    if any(name in attrs for name in AMOUNTS):
        raise ValidationError({"preset": "Name a preset or the amounts, not both."})
    group = attrs.get("resource_group")
    if not isinstance(group, ResourceGroup):  # invalid, and reported already
        return {}
    presets = {preset.group_id: preset for preset in Preset.objects.filter(name=attrs["preset"])}
    preset = presets.get(group.pk) or presets.get(None)
    if preset is None:
        raise ValidationError({"preset": f"There is no preset {attrs['preset']!r} in {group}."})
    return {name: getattr(preset, name) for name in AMOUNTS}
