"""Serializers of arrays: what is asked for, and what is shown."""

from typing import Any, Final

from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from accounts.serializers import StrictSerializer
from arrays import services, spaces
from arrays.models import Array, ArrayTask, TaskState
from arrays.services import ArrayRequest
from resources.amounts.fields import MAX_INTEGER
from restapi.fields import ShownSerializer
from sessions.launching.serializers import LaunchRequestSerializer

OF_THE_ARRAY: Final = ("tasks", "max_parallel", "retries", "name", "count", "project")  # the rest is of each session
SPACE: Final = {
    "oneOf": [
        {"type": "string", "description": 'Indices as Slurm writes them: "1-1000", "0-15:4%2", "1,3,7"'},
        {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "properties": {
                "indices": {"type": "string"},
                "grid": {
                    "type": "object",
                    "description": "{lr: [0.1, 0.01], seed: {from: 0, to: 9}}: each value with each other",
                },
                "random": {
                    "type": "object",
                    "description": "{count, seed, parameters: {lr: {loguniform: [0.001, 1]}}}; or uniform, int, choice",
                },
                "list": {"type": "array", "items": {"type": "object"}, "description": "The parameters of each task"},
            },
        },
    ]
}


@extend_schema_field(SPACE)
class SpaceField(serializers.Field[spaces.TaskSpace, Any, Any, Any]):
    """The tasks of an array: indices, or a grid, a random choice or a list of parameters."""

    def to_internal_value(self, data: Any) -> spaces.TaskSpace:
        """Return the tasks; raise ValidationError."""
        try:
            return spaces.read(data, settings.COMPUTE_MAX_ARRAY_TASKS)
        except spaces.SpaceError as error:
            raise ValidationError(str(error)) from error


class ArrayRequestSerializer(LaunchRequestSerializer):
    """A request for an array: that of a session with a command, and the tasks. Each task runs it once."""

    tasks = SpaceField(help_text="Its tasks: indices, or a grid, a random choice or a list of parameters")
    max_parallel = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=MAX_INTEGER, help_text="Tasks that run at once"
    )
    retries = serializers.IntegerField(
        default=0,
        min_value=0,
        max_value=services.MAX_RETRIES,
        help_text="How often a task that fails is started again by itself",
    )
    _own: dict[str, Any]

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of `LaunchRequest`; those of the array are for `array_request`."""
        self._own = {"space": attrs["tasks"], "max_parallel": attrs.get("max_parallel"), "retries": attrs["retries"]}
        return super().validate(attrs)

    def array_request(self) -> ArrayRequest:
        """Return the validated request."""
        launch = self.launch_request()
        body = {name: value for name, value in self.initial_data.items() if name not in OF_THE_ARRAY}
        if not {"resource_group", "resource_groups"} & body.keys():  # the only one today
            body["resource_group"] = launch.resource_group.name
        return ArrayRequest(launch=launch, body=body, **self._own)


class ArrayQuery(serializers.Serializer[Any]):
    """Query parameters of the list."""

    name = serializers.CharField(max_length=64, required=False, help_text="A part of it")
    owner = serializers.EmailField(required=False)
    project = serializers.CharField(max_length=64, required=False)
    ended = serializers.BooleanField(required=False, allow_null=True, default=None, help_text="When left out, all")


class TaskQuery(serializers.Serializer[Any]):
    """Query parameters of the list of tasks."""

    state = serializers.ChoiceField(choices=TaskState.values, required=False)
    parameter = serializers.CharField(max_length=1200, required=False, help_text="NAME=VALUE, of a parameter")
    order = serializers.CharField(
        max_length=80,
        default="index",
        help_text="index, state, started, ended, attempts, parameters.NAME or metrics.NAME; - is descending",
    )


class TaskIndicesSerializer(StrictSerializer):
    """Some tasks of an array."""

    tasks = serializers.CharField(
        required=False, max_length=80_000, help_text='Their indices, such as "1-500"; when left out, all'
    )

    def validate_tasks(self, text: str) -> list[int]:
        """Return the indices; raise ValidationError."""
        try:
            return spaces.read_indices(text, settings.COMPUTE_MAX_ARRAY_TASKS)[0]
        except spaces.SpaceError as error:
            raise ValidationError(str(error)) from error


class ArrayChangeSerializer(StrictSerializer):
    """Changes of an array."""

    name = serializers.CharField(required=False, max_length=64)
    max_parallel = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=MAX_INTEGER, help_text="Tasks that run at once"
    )


class TaskCountsSerializer(serializers.Serializer[Any]):
    """How many tasks are in each state."""

    waiting = serializers.IntegerField(help_text="Without a session")
    pending = serializers.IntegerField(help_text="In the queue")
    running = serializers.IntegerField()
    succeeded = serializers.IntegerField()
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField()


class ArraySerializer(ShownSerializer[Array]):
    """An array."""

    owner = serializers.EmailField(source="owner.email", read_only=True)
    project = serializers.CharField(source="project.name", default=None, read_only=True, allow_null=True)
    counts = TaskCountsSerializer(read_only=True)
    space = serializers.JSONField(
        read_only=True,
        allow_null=True,
        help_text="Indices or parameters as they were asked for; of a list, and of more than 16 KiB, the kind alone",
    )
    request = serializers.SerializerMethodField(
        help_text="The launch request of each task; null for anybody but the owner"
    )

    class Meta:
        model = Array
        fields = (
            *("id", "name", "owner", "project", "state", "reason", "size", "first_index", "last_index", "counts"),
            *("max_parallel", "retries", "space", "request", "created_at", "ended_at"),
        )

    def get_request(self, array: Array) -> dict[str, Any] | None:
        """Return what each task asks for, which may have secrets in its variables."""
        user = self.context["request"].user
        return array.request if user.is_superuser or user.pk == array.owner_id else None


class ArrayTaskSerializer(ShownSerializer[ArrayTask]):
    """A task of an array."""

    session = serializers.CharField(
        source="session_id", read_only=True, allow_null=True, help_text="Id of its last session"
    )
    parameters = serializers.DictField(read_only=True, help_text="Its parameters, variables of its session")
    metrics = serializers.DictField(
        child=serializers.FloatField(), read_only=True, help_text="What it wrote to its output as GP_METRICS {...}"
    )

    class Meta:
        model = ArrayTask
        fields = (
            *("index", "parameters", "state", "exit_code", "reason", "attempts", "metrics", "session"),
            *("started_at", "ended_at"),
        )
