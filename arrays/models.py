"""Arrays and their tasks. Tasks are narrow rows; sessions exist for those alone that run, or are about to."""

from typing import Any, ClassVar, Final

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import Count, Exists, F, OuterRef, Q
from django.utils import timezone

from accounts.models import Membership, Project, ProjectRole, User
from sessions.models import Session, new_session_id


class ArrayState(models.TextChoices):
    """What becomes of an array."""

    ACTIVE = "ACTIVE", "active"  # its tasks are started as there is room
    HELD = "HELD", "held"  # no more tasks are started until it is released
    SUCCEEDED = "SUCCEEDED", "succeeded"  # all tasks have succeeded
    FAILED = "FAILED", "failed"  # all have ended, one or more of them without success
    CANCELLED = "CANCELLED", "cancelled"  # none has failed, but some were cancelled


class TaskState(models.TextChoices):
    """What becomes of a task."""

    WAITING = "WAITING", "waiting"  # it has no session
    PENDING = "PENDING", "pending"  # its session waits to start
    RUNNING = "RUNNING", "running"
    SUCCEEDED = "SUCCEEDED", "succeeded"
    FAILED = "FAILED", "failed"
    CANCELLED = "CANCELLED", "cancelled"


IN_SESSION: Final = (TaskState.PENDING, TaskState.RUNNING)
ENDED: Final = (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED)
OPEN: Final = (ArrayState.ACTIVE, ArrayState.HELD)
MAX_INDEX_DIGITS: Final = 9  # of what is looked up as one
COUNTS: Final = tuple(state.value.lower() for state in TaskState)  # the columns of an array that count its tasks


class ArrayQuerySet(models.QuerySet["Array"]):
    """Questions about arrays."""

    def visible_to(self, user: User) -> "ArrayQuerySet":
        """Return the arrays that `user` may see and cancel: their own, those of projects that they manage, or all."""
        if user.is_superuser:
            return self
        managed = Membership.objects.filter(user=user, role=ProjectRole.MANAGER.value).values("project")
        return self.filter(Q(owner=user) | Q(project__in=managed))

    def operable_by(self, user: User) -> "ArrayQuerySet":
        """Return the arrays that `user` may change: their own, or all for a superadmin."""
        return self if user.is_superuser else self.filter(owner=user)

    def matching(self, text: str) -> "ArrayQuerySet":
        """Return those that a search finds: by a part of the name, the id's beginning, or a task's name or session."""
        found = Q(name__icontains=text) | Q(pk__startswith=text.lower())
        found |= Q(pk__in=ArrayTask.objects.filter(session=text.lower()).values("array"))
        name, _dash, index = text.rpartition("-")
        if name and index.isascii() and index.isdigit() and len(index) <= MAX_INDEX_DIGITS:
            found |= Q(Exists(ArrayTask.objects.filter(array=OuterRef("pk"), index=int(index))), name__iexact=name)
        return self.filter(found)

    def live(self) -> "ArrayQuerySet":
        """Return those that have not ended."""
        return self.filter(ended_at=None)


class Array(models.Model):
    """A request for sessions with the parameters of its tasks. What it counts is written with its tasks, in one
    transaction that has locked its row.
    """

    id = models.CharField(primary_key=True, max_length=16, default=new_session_id, editable=False)
    owner = models.ForeignKey(User, on_delete=models.PROTECT, related_name="arrays", db_index=False)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, blank=True, related_name="arrays")
    name = models.CharField(max_length=64)
    request = models.JSONField(
        encoder=DjangoJSONEncoder, help_text="The launch request of each task, as the API takes it"
    )
    space = models.JSONField(null=True, help_text="Indices or parameters, as they were asked for")
    max_parallel = models.PositiveIntegerField(null=True, blank=True, help_text="Tasks that run at once; empty: any")
    retries = models.PositiveSmallIntegerField(
        default=0, help_text="How often a failed task is started again by itself"
    )
    state = models.CharField(max_length=9, choices=ArrayState.choices, default=ArrayState.ACTIVE.value, editable=False)
    reason = models.CharField(max_length=300, blank=True, editable=False, help_text="Why it is held, or was cancelled")
    refused_until = models.DateTimeField(null=True, editable=False, help_text="No task is started until then")
    size = models.PositiveIntegerField(editable=False, help_text="How many tasks it has")
    first_index = models.PositiveIntegerField(editable=False)
    last_index = models.PositiveIntegerField(editable=False)
    waiting = models.PositiveIntegerField(default=0, editable=False)
    pending = models.PositiveIntegerField(default=0, editable=False)
    running = models.PositiveIntegerField(default=0, editable=False)
    succeeded = models.PositiveIntegerField(default=0, editable=False)
    failed = models.PositiveIntegerField(default=0, editable=False)
    cancelled = models.PositiveIntegerField(default=0, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    started_at = models.DateTimeField(null=True, editable=False, help_text="When its first task started")
    ended_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects: ClassVar[ArrayQuerySet] = ArrayQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ("-created_at", "-id")
        indexes = (
            models.Index(fields=("owner", "-created_at"), name="array_owner_created"),
            models.Index(fields=("created_at",), condition=Q(ended_at=None), name="array_live"),
        )
        constraints = (
            models.UniqueConstraint(
                fields=("owner", "name"), condition=Q(ended_at=None), name="array_live_name_unique"
            ),
            models.CheckConstraint(condition=Q(max_parallel=None) | Q(max_parallel__gt=0), name="array_runs_some"),
            models.CheckConstraint(
                condition=Q(ended_at=None, state__in=[each.value for each in OPEN])
                | Q(ended_at__isnull=False) & ~Q(state__in=[each.value for each in OPEN]),
                name="array_ended_has_its_state",
            ),
            models.CheckConstraint(
                condition=Q(size=sum((F(name) for name in COUNTS[1:]), F(COUNTS[0]))), name="array_counts_all_tasks"
            ),
        )

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"

    @property
    def has_ended(self) -> bool:
        """Whether all tasks have ended."""
        return self.ended_at is not None

    @property
    def has_succeeded(self) -> bool:
        """Whether all tasks have succeeded."""
        return self.state == ArrayState.SUCCEEDED

    @property
    def counts(self) -> dict[str, int]:
        """How many tasks are in each state."""
        return {name: getattr(self, name) for name in COUNTS}

    @property
    def ended_tasks(self) -> int:
        """How many tasks have ended."""
        return self.succeeded + self.failed + self.cancelled

    def notable_tasks(self) -> "models.QuerySet[ArrayTask]":
        """Return the tasks that run or have failed, with their sessions."""
        states = (TaskState.RUNNING, TaskState.FAILED)
        return self.tasks.filter(state__in=states).select_related("session").order_by("index")

    def counted(self) -> dict[str, int]:
        """Return the same, from its tasks; one query."""
        rows = self.tasks.order_by().values_list("state").annotate(tasks=Count("pk"))
        return dict.fromkeys(COUNTS, 0) | {state.lower(): tasks for state, tasks in rows}


class ArrayTask(models.Model):
    """One set of parameters, with the session that runs it."""

    array = models.ForeignKey(Array, on_delete=models.CASCADE, related_name="tasks", db_index=False)
    index = models.PositiveIntegerField()
    parameters = models.JSONField(default=dict)
    state = models.CharField(max_length=9, choices=TaskState.choices, default=TaskState.WAITING.value)
    attempts = models.PositiveSmallIntegerField(default=0, help_text="How many sessions it has had")
    session = models.OneToOneField(
        Session, on_delete=models.SET_NULL, null=True, related_name="array_task", help_text="The last one"
    )
    is_cancelled = models.BooleanField(default=False, help_text="Its session is to be ended")
    not_before = models.DateTimeField(null=True, help_text="It is started again then, after it failed")
    exit_code = models.IntegerField(null=True)
    metrics = models.JSONField(default=dict, help_text="Numbers that it has written to its output")
    reason = models.CharField(max_length=300, blank=True, help_text="Why it failed, or was cancelled")
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("array", "index")
        indexes = (
            models.Index(fields=("array", "state", "index"), name="array_task_state"),
            models.Index(fields=("array",), condition=Q(is_cancelled=True), name="array_task_to_end"),
        )
        constraints = (models.UniqueConstraint(fields=("array", "index"), name="array_task_index_unique"),)

    def __str__(self) -> str:
        return f"{self.array_id}[{self.index}]"

    @property
    def texts(self) -> dict[str, str]:
        """Its parameters as variables of its session."""
        return {name: text_of(value) for name, value in self.parameters.items()}


def text_of(value: Any) -> str:
    """Return a parameter as a program reads it from its environment."""
    return str(value).lower() if isinstance(value, bool) else str(value)
