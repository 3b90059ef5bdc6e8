"""Serializers of sessions and their events."""

from collections.abc import Mapping
from typing import Any, Final

from django.utils.functional import cached_property
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from accounts.serializers import StrictSerializer
from resources.accelerators.kinds import named_for
from resources.amounts.fields import FgpuTextField, SpanField
from resources.amounts.units import fgpu_text
from resources.gpus.tiers import Tier
from resources.models import ResourceGroup
from restapi.fields import ShownSerializer
from sessions.access.app_serializers import EndpointSerializer
from sessions.access.ssh_command import ssh_command
from sessions.lifecycle import DependencyKind, DependencyState, Kind, Reason, Status, Tab
from sessions.models import (
    SESSION_ID,
    Cluster,
    ClusterMode,
    Mount,
    Session,
    SessionEvent,
    group_waits,
)
from sessions.search import DEFAULT_SORT, SORTS
from sessions.words import reason_text

MAX_TERMINATED: Final = 200  # sessions at once


class GpuShareSerializer(serializers.Serializer[Any]):
    """The share of one GPU that a session holds, and its enforcement tier."""

    uuid = serializers.CharField()
    fgpu = FgpuTextField()
    tier = serializers.ChoiceField(choices=[tier.value for tier in Tier])


class MountSerializer(ShownSerializer[Mount]):
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


class SessionSizeSerializer(serializers.Serializer[Any]):
    """Amounts that a session is resized to; memory in bytes."""

    cpu = serializers.IntegerField()
    memory = serializers.IntegerField()
    fgpu = FgpuTextField()


class GroupWaitSerializer(serializers.Serializer[Any]):
    """Why a session waits in one of the groups in which it may start."""

    resource_group = serializers.CharField()
    reason = serializers.ChoiceField(choices=[reason.value for reason in Reason])
    detail = serializers.CharField(help_text="The reason in words")
    eta = serializers.DateTimeField(allow_null=True, help_text="When it would start there")
    eta_reason = serializers.CharField(help_text="Why not before")


class StartRangeSerializer(serializers.Serializer[Any]):
    """Between which times a session that waits is likely to start, by how long others like it ran."""

    starts_from = serializers.DateTimeField(allow_null=True)
    starts_until = serializers.DateTimeField(allow_null=True)
    certainty = serializers.FloatField(allow_null=True, help_text="Part of the starts that lie in their range: 0.8")


class ClusterMemberSerializer(serializers.Serializer[Session]):
    """A member of a cluster, which is a session with an id of its own."""

    id = serializers.CharField()
    name = serializers.CharField(source="member_name", help_text="Its host name in the cluster: main1, sub1, sub2, ...")
    status = serializers.ChoiceField(choices=[status.value for status in Status])
    reason = serializers.ChoiceField(choices=[reason.value for reason in Reason], help_text="Of its status")
    cpu = serializers.IntegerField()
    memory = serializers.IntegerField()
    fgpu = FgpuTextField()
    gpu_memory = serializers.IntegerField(help_text="Bytes that it asked for in place of a share; 0: none")
    min_fgpu = FgpuTextField(help_text="With GPU memory: the least that it gets")
    host = serializers.CharField(source="host.name", default=None, allow_null=True)
    exit_code = serializers.IntegerField(allow_null=True)


class ClusterSerializer(serializers.Serializer[Cluster]):
    """The cluster of a session: its shape, and its members, the first of which has the session's own id."""

    size = serializers.IntegerField(help_text="Members with which it starts, the first one included")
    max_size = serializers.IntegerField(allow_null=True, help_text="To which it grows while there is room; null: size")
    mode = serializers.ChoiceField(choices=[mode.value for mode in ClusterMode])
    shares_gpus = serializers.BooleanField(help_text="Members may have parts of the same GPU")
    runs_on_all = serializers.BooleanField(help_text="Every member runs the command, not the first alone")
    main_differs = serializers.BooleanField(help_text="The first member has a size of its own, and is resized alone")
    max_restarts = serializers.IntegerField(help_text="How often it starts again as a whole after a member failed")
    restarts = serializers.IntegerField(help_text="How often it has")
    members = ClusterMemberSerializer(many=True, source="members.all")


class DependencySerializer(serializers.Serializer[Any]):
    """A session or an array for which a session waits, or has waited."""

    session = serializers.CharField(source="to_session_id", allow_null=True, help_text="Its id; null for an array")
    array = serializers.CharField(source="to_array_id", allow_null=True, help_text="Its id; null for a session")
    name = serializers.CharField(source="target.name")
    kind = serializers.ChoiceField(
        choices=[kind.value for kind in DependencyKind],
        help_text="It waits until that has started (after), succeeded (after_ok), failed (after_not_ok) or ended "
        "(after_any)",
    )
    state = serializers.ChoiceField(
        choices=[state.value for state in DependencyState],
        help_text="impossible: that can never come, and the session is cancelled if it still waits",
    )


class SessionSerializer(ShownSerializer[Session]):
    """A session as its owner, managers of its project and superadmins see it.

    Memory in bytes; `gpus` is empty while it holds none. The first member of a cluster stands for the whole: its
    `status` is that of the member that is least far.
    """

    owner = serializers.EmailField(source="owner.email", read_only=True)
    status = serializers.ChoiceField(source="whole_status", choices=[status.value for status in Status], read_only=True)
    reason = serializers.ChoiceField(choices=[reason.value for reason in Reason], read_only=True)
    detail = serializers.SerializerMethodField(help_text="The reason in words")
    project = serializers.CharField(
        source="project.name", default=None, read_only=True, allow_null=True, help_text="Whose limits apply as well"
    )
    image = serializers.CharField(source="image.reference", read_only=True)
    environment = serializers.CharField(source="image.environment", read_only=True)
    version = serializers.CharField(source="image.version", read_only=True)
    resource_group = serializers.CharField(source="resource_group.name", read_only=True)
    resource_groups = serializers.SerializerMethodField(help_text="Groups in which it may start; its own if just one")
    waits = serializers.SerializerMethodField(
        help_text="Of a session that may start in several groups: why it waits in each, the preferred first"
    )
    fgpu = FgpuTextField(read_only=True)
    min_fgpu = FgpuTextField(read_only=True, help_text="With GPU memory: the least that it gets")
    host = serializers.CharField(source="host.name", default=None, read_only=True, allow_null=True)
    gpus = serializers.SerializerMethodField()
    resizing = SessionSizeSerializer(
        source="whole_resize.to",
        default=None,
        read_only=True,
        allow_null=True,
        help_text="What its host is changing it to, or that of a member; until then it holds the greater of each",
    )
    cpu_guaranteed_milli = serializers.IntegerField(
        read_only=True,
        help_text="Thousandths of a core that it gets in any case; up to `cpu` cores while others leave theirs idle",
    )
    env = serializers.SerializerMethodField(help_text="Environment variables; null for anybody but the owner")

    ssh = serializers.SerializerMethodField(help_text="Command to connect over SSH; empty while not possible")

    apps = EndpointSerializer(source="endpoints", many=True, read_only=True, help_text="Open apps")

    kind = serializers.ChoiceField(choices=[kind.value for kind in Kind], read_only=True)
    command = serializers.SerializerMethodField(help_text="Command of a batch session; null for anybody but the owner")
    time_limit = SpanField(read_only=True, allow_null=True, help_text="Seconds from its start to its end")
    ends_at = serializers.DateTimeField(
        read_only=True, allow_null=True, help_text="When it reaches its limits, extensions included"
    )
    preemptible = serializers.BooleanField(
        source="is_preemptible", read_only=True, help_text="Whether it may be ended for others, after a warning"
    )
    preempt_by = serializers.DateTimeField(
        read_only=True, allow_null=True, help_text="When it is ended for another session; null if it is not"
    )
    idle_ends_at = serializers.DateTimeField(
        source="idle_notice.ends_at",
        default=None,
        read_only=True,
        allow_null=True,
        help_text="When it ends because it is idle, unless it is used before; null while it is not idle",
    )
    depends_on = serializers.SerializerMethodField(help_text="Ids of what it waits for, or has waited")
    dependencies = DependencySerializer(
        source="shown_dependencies", many=True, read_only=True, help_text="The same, by kind"
    )
    eta = serializers.DateTimeField(
        read_only=True, allow_null=True, help_text="When a waiting session starts, as far as is known"
    )
    eta_reason = serializers.SerializerMethodField(help_text="Why not before")
    estimate = serializers.SerializerMethodField(
        help_text="Between which times a waiting session is likely to start; null where nothing is known"
    )
    mounts = MountSerializer(many=True, read_only=True, help_text="Folders that it mounts")
    cluster = ClusterSerializer(read_only=True, allow_null=True, help_text="Of which it is a member")
    result = serializers.CharField(read_only=True, help_text="SUCCESS or FAILURE of a batch session that has ended")

    class Meta:
        model = Session
        fields = (
            *("id", "name", "owner", "project", "status", "reason", "detail", "image", "environment", "version"),
            *("resource_group", "resource_groups", "waits", "gpu_model", "min_gpu_memory", "gpu_memory", "min_fgpu"),
            *(
                "cpu",
                "cpu_guaranteed_milli",
                "memory",
                "shared_memory",
                "fgpu",
                "resizing",
                "host",
                "gpus",
                "env",
                "priority",
            ),
            *("cluster", "kind", "command", "time_limit", "not_before", "depends_on", "dependencies"),
            *("eta", "eta_reason", "estimate", "result"),
            *("attempt", "exit_code", "created_at", "status_at", "started_at", "ends_at", "ended_at"),
            *("preemptible", "preempt_by", "preemptions"),
            "idle_ends_at",
            *("last_activity_at", "ssh", "apps", "mounts"),
        )

    def get_detail(self, session: Session) -> str:
        """Return what is said of its status, with what its group's devices are called."""
        return named_for(session.resource_group.accelerator_name, reason_text(session.reason, session.detail))

    def get_eta_reason(self, session: Session) -> str:
        """Return what it waits for until then, likewise."""
        return named_for(session.resource_group.accelerator_name, session.eta_reason)

    @extend_schema_field(GpuShareSerializer(many=True))
    def get_gpus(self, session: Session) -> Any:
        """Return the shares of the session's lease, which the view has fetched.

        As GpuShareSerializer would; to make one for each session takes longer than all else of a list.
        """
        return [
            {"uuid": share.gpu.uuid, "fgpu": fgpu_text(share.milli), "tier": tier.value}
            for share, tier in session.held_shares
        ]

    @extend_schema_field(StartRangeSerializer(allow_null=True))
    def get_estimate(self, session: Session) -> Any:
        """Return the range, which the view has fetched, while the session waits."""
        estimate = getattr(session, "start_estimate", None) if session.status == Status.PENDING else None
        return None if estimate is None else StartRangeSerializer(estimate).data

    def get_resource_groups(self, session: Session) -> list[str]:
        """Return their names, the preferred first."""
        if not session.group_choices:
            return [session.resource_group.name]
        return [self._group_names[pk] for pk in session.group_choices if pk in self._group_names]

    @extend_schema_field(GroupWaitSerializer(many=True))
    def get_waits(self, session: Session) -> Any:
        """Return the entries of its groups, none once it waits no longer."""
        if session.status != Status.PENDING or not session.group_waits:
            return []
        waits = group_waits.by_name(session.group_waits, session.group_choices, self._group_names)
        return GroupWaitSerializer([{"resource_group": name, **wait._asdict()} for name, wait in waits], many=True).data

    @cached_property
    def _group_names(self) -> Mapping[int, str]:
        """The names of all groups, read once for all sessions of a response."""
        return dict(ResourceGroup.objects.values_list("pk", "name"))

    def get_depends_on(self, session: Session) -> list[str]:
        """Return the ids, which the view has fetched."""
        return sorted(each.target_id for each in session.shown_dependencies)

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


class SnoozeSerializer(StrictSerializer):
    """By how much the end of an idle session is put off."""

    by = SpanField(help_text='Seconds, or a text such as "30m"')


class SessionEventSerializer(ShownSerializer[SessionEvent]):
    """One change of status; `old_status` is empty for the first."""

    actor = serializers.EmailField(source="actor.email", default=None, read_only=True, allow_null=True)

    class Meta:
        model = SessionEvent
        fields = ("at", "old_status", "new_status", "reason", "detail", "actor")


class RenameSerializer(serializers.Serializer[Any]):
    """Another name of a session."""

    name = serializers.CharField()


class SessionQuery(serializers.Serializer[Any]):
    """Query parameters of the session list."""

    tab = serializers.ChoiceField(choices=[tab.value for tab in Tab], required=False)
    status = serializers.ChoiceField(choices=[status.value for status in Status], required=False)
    name = serializers.CharField(required=False, max_length=64, help_text="A part of the name, in any case")
    owner = serializers.CharField(
        required=False, max_length=254, help_text="E-mail address; for superadmins and managers of projects"
    )
    project = serializers.CharField(required=False, max_length=64, help_text="The name of a project")
    search = serializers.CharField(
        required=False, max_length=200, help_text="A part of name, image or id; for superadmins of owner and host, too"
    )
    environment = serializers.CharField(required=False, max_length=64)
    resource_group = serializers.CharField(required=False, max_length=64)
    kind = serializers.ChoiceField(
        choices=[kind.value for kind in Kind], required=False, help_text='"replica" is one of a deployment'
    )
    array = serializers.RegexField(
        rf"^{SESSION_ID}\Z", required=False, help_text="Id of an array: the sessions of its tasks, else left out"
    )
    order = serializers.ChoiceField(
        choices=[f"{sign}{name}" for name in SORTS for sign in ("", "-")],
        default=DEFAULT_SORT,
        help_text="- is descending",
    )


class TerminatedSerializer(StrictSerializer):
    """Sessions to end."""

    ids = serializers.ListField(
        child=serializers.RegexField(rf"^{SESSION_ID}\Z"),
        min_length=1,
        max_length=MAX_TERMINATED,
        help_text="Of sessions",
    )


class MemberField(serializers.CharField):
    """The name of a member of a cluster whose output is asked for, or `all`."""

    def __init__(self, **kwargs: Any) -> None:
        by_default = "by default all by the id of the session, and itself by that of a member"
        kwargs |= {"default": "", "max_length": 8, "help_text": f"Of a cluster: main1, sub1, ... or all; {by_default}"}
        super().__init__(**kwargs)


class LogsQuery(serializers.Serializer[Any]):
    """Query parameters of the log."""

    tail = serializers.IntegerField(default=1000, min_value=1, max_value=999_999, help_text="Lines from the end")
    member = MemberField()
    previous = serializers.BooleanField(default=False, help_text="Of the attempt before: it was started again")
