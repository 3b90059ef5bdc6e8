"""Sessions, and the record of every change of their status."""

import base64
import logging
import secrets
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from django.contrib.postgres.fields import ArrayField
from django.db import models, transaction
from django.db.models import Prefetch, Q
from django.utils import timezone
from django.utils.functional import cached_property

from accounts.models import Membership, Project, ProjectRole, ResourcePolicy, User
from accounts.policies import PolicyBounds, bounds_of, policies_of
from resources import clock
from resources.amounts.units import CORE_MILLI, PLAIN_WEIGHT
from resources.gpus.tiers import Tier, share_tiers
from resources.kick import kick_arrays, kick_scheduler
from resources.models import Host, Image, ResourceGroup
from sessions import lifecycle, notify
from sessions.lifecycle import FINAL, HOSTED, LIVE, STARTING, UNPLACED, Kind, Reason, Result, Status, whole_of
from sessions.models.cluster import OF_WHOLE, Cluster, member_name, whole_status
from sessions.models.ends import MIN_EXTENSION, end_of, extension_left
from sessions.models.lease import GpuShare, Lease
from sessions.models.session_constraints import CONSTRAINTS, INDEXES

logger = logging.getLogger(__name__)

STATUS_CHOICES = [(status.value, status.value.lower()) for status in Status]


class StaleSessionError(Exception):
    """The session's status changed since it was read, so the transition no longer applies."""


SESSION_ID: Final = "[a-z2-7]{16}"  # what `new_session_id` makes, as a regular expression


def new_session_id() -> str:
    """Return 80 random bits as 16 lower-case base32 characters: safe in URLs, host names and container names."""
    return base64.b32encode(secrets.token_bytes(10)).decode().lower()


# What counts against `max_parked`: parked, being parked, or waiting to be resumed.
COUNTS_AS_PARKED: Final = (
    Q(status=Status.PARKED)
    | Q(status=Status.PENDING, parked_on__isnull=False)
    | Q(status=Status.TERMINATING, is_parking=True)
)


def has_succeeded(path: str = "") -> Q:
    """Return the condition that the session behind `path` ended as it should."""
    return Q(**{f"{path}status": Status.TERMINATED}) & ~Q(**{f"{path}result": Result.FAILURE})


def visible_to(user: User) -> Q:
    """Return the condition on owner and project of what `user` may see: their own, of projects they manage, or all."""
    if user.is_superuser:
        return Q()
    managed = Membership.objects.filter(user=user, role=ProjectRole.MANAGER.value).values("project")
    return Q(owner=user) | Q(project__in=managed)


class SessionQuerySet(models.QuerySet["Session"]):
    """Questions about sessions."""

    def visible_to(self, user: User) -> "SessionQuerySet":
        """Return the sessions that `user` may see and end."""
        return self.filter(visible_to(user))

    def operable_by(self, user: User) -> "SessionQuerySet":
        """Return the sessions that `user` may enter and change: their own, or all for a superadmin."""
        return self if user.is_superuser else self.filter(owner=user)

    def allowed_as_dependencies_of(self, owner: User) -> "SessionQuerySet":
        """Return the sessions after which one of `owner` may start: their own, for superadmins too."""
        return self.mains().filter(owner=owner)

    def mains(self) -> "SessionQuerySet":
        """Return what lists show: of clusters the first members, which stand for the whole, and any other session."""
        return self.filter(rank=0)

    def outside_arrays(self) -> "SessionQuerySet":
        """Return those of them that no array stands for in lists."""
        return self.mains().filter(is_task=False)

    def mains_in(self, statuses: Collection[str]) -> "SessionQuerySet":
        """Return those of them that have one of these statuses, as a whole."""
        of_cluster = Q(cluster__isnull=False, whole__in=statuses)
        return self.mains().alias(whole=whole_status()).filter(Q(cluster=None, status__in=statuses) | of_cluster)

    def with_members(self) -> "SessionQuerySet":
        """Fetch the members of clusters, for `whole_status`; one query, none without clusters."""
        members = Prefetch("cluster__members", Session.objects.select_related("host").order_by("rank"))
        return self.select_related("cluster").prefetch_related(members)

    def live(self) -> "SessionQuerySet":
        """Return the sessions that have not ended."""
        return self.filter(status__in=LIVE)

    def waiting(self) -> "SessionQuerySet":
        """Return the sessions that wait to start. Elastic members of clusters do not: they run while there is room."""
        return self.filter(status=Status.PENDING, is_elastic=False)

    def waiting_in(self, group_id: int) -> "SessionQuerySet":
        """Return the sessions that wait to start in a resource group, be it one of several."""
        return self.waiting().filter(
            Q(resource_group=group_id, group_choices=[]) | Q(group_choices__contains=[group_id])
        )

    def in_queue_order(self) -> "SessionQuerySet":
        """Return the sessions as the queue serves them: higher priority first, then the longest waiting."""
        return self.order_by("-priority", "created_at", "id")


class Session(models.Model):
    """A user's container with its resources. `status` is written by `move_to` alone."""

    id = models.CharField(primary_key=True, max_length=16, default=new_session_id, editable=False)
    owner = models.ForeignKey(User, on_delete=models.PROTECT, related_name="compute_sessions", db_index=False)
    project = models.ForeignKey(
        Project,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="sessions",
        db_index=False,
        help_text="Whose limits apply as well, and whose managers see and end it",
    )
    name = models.CharField(max_length=64)
    image = models.ForeignKey(Image, on_delete=models.PROTECT, related_name="sessions", db_index=False)
    resource_group = models.ForeignKey(ResourceGroup, on_delete=models.PROTECT, related_name="sessions", db_index=False)
    cpu = models.PositiveIntegerField("CPU cores")
    core_milli = models.PositiveSmallIntegerField(
        "guaranteed of each core (thousandths)",
        default=CORE_MILLI,
        db_default=CORE_MILLI,
        editable=False,
        help_text="By its resource group, when it was last placed",
    )
    memory = models.PositiveBigIntegerField("memory (bytes)")
    shared_memory = models.PositiveBigIntegerField("shared memory (bytes)")
    fgpu = models.PositiveIntegerField("milli-fGPU", default=0)
    gpu_memory = models.PositiveBigIntegerField(
        "GPU memory (bytes)",
        default=0,
        db_default=0,
        editable=False,
        help_text="Asked for in place of a share, which follows from its GPU once it is placed; 0: it asks for a share",
    )
    min_fgpu = models.PositiveIntegerField(
        "least milli-fGPU", default=0, db_default=0, editable=False, help_text="That it gets with this GPU memory"
    )
    resize = models.JSONField(
        null=True, blank=True, editable=False, help_text="What its host is to change these amounts to, while it runs"
    )
    environment = models.JSONField(default=dict, blank=True, help_text="Environment variables")
    priority = models.SmallIntegerField(default=10)
    allow_sudo = models.BooleanField(default=False, editable=False)
    charge_percent = models.PositiveSmallIntegerField(
        default=100, editable=False, help_text="Part of its use that counts in fair share"
    )
    gpu_weight_milli = models.PositiveIntegerField(
        "weight of its GPUs (thousandths)",
        default=PLAIN_WEIGHT,
        db_default=PLAIN_WEIGHT,
        editable=False,
        help_text="Of their models, the mean over what it holds, when it was last placed",
    )
    group_choices = ArrayField(
        models.BigIntegerField(),
        default=list,
        editable=False,
        help_text="Resource groups in which it may start, the preferred first; empty: its own alone",
    )
    group_waits = models.JSONField(
        default=dict, editable=False, help_text="Why it waits in each of several resource groups, by id"
    )
    gpu_model = models.CharField(
        "GPU model", max_length=96, blank=True, editable=False, help_text="Of all GPUs of its host; empty: any"
    )
    min_gpu_memory = models.PositiveBigIntegerField(
        "least GPU memory (bytes)", default=0, editable=False, help_text="That it gets on one GPU; 0: any"
    )
    is_preemptible = models.BooleanField(
        default=False, help_text="May be ended for others, after a warning; in return its use counts less in fair share"
    )
    preempt_by = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When it is ended for another session, as its owner was warned"
    )
    preempted_for = models.CharField(
        max_length=16, blank=True, editable=False, help_text="Id of the waiting session for which it is ended"
    )
    preemptions = models.PositiveSmallIntegerField(
        default=0, editable=False, help_text="How often it was ended for another session"
    )
    claim = models.JSONField(
        null=True, blank=True, editable=False, help_text="What others are ended for: its host, its GPU shares, and when"
    )
    kind = models.CharField(
        max_length=16, choices=[(kind.value, kind.value) for kind in Kind], default=Kind.INTERACTIVE.value
    )
    command = models.TextField(blank=True, help_text="What a batch session or a replica runs, as a line of the shell")
    time_limit = models.DurationField(null=True, blank=True, help_text="It ends this long after it started")
    extension = models.DurationField(
        default=timedelta(0), editable=False, help_text="How much longer than its limits allow it was let run"
    )
    not_before = models.DateTimeField(null=True, blank=True, help_text="It starts then at the earliest")
    required_roots = ArrayField(
        models.BigIntegerField(), default=list, editable=False, help_text="Storage roots that its host must have"
    )
    wanted_roots = ArrayField(
        models.BigIntegerField(), default=list, editable=False, help_text="The same, if any host of its group has them"
    )
    cluster = models.ForeignKey(
        Cluster,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        editable=False,
        related_name="members",
        db_index=False,
        help_text="Of which it is a member",
    )
    rank = models.PositiveSmallIntegerField(
        default=0, db_default=0, editable=False, help_text="In its cluster; its first member, and any other session: 0"
    )
    is_elastic = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text="Not one with which its cluster starts: it runs while there is room, and ends before others",
    )
    is_task = models.BooleanField(
        default=False, db_default=False, editable=False, help_text="It runs a task of an array, which lists show for it"
    )
    depends_on = models.ManyToManyField(
        "self",
        through="Dependency",
        through_fields=("from_session", "to_session"),
        symmetrical=False,
        blank=True,
        related_name="dependents",
        help_text="Sessions for which it waits",
    )

    status = models.CharField(max_length=16, choices=STATUS_CHOICES, default=Status.PENDING.value, editable=False)
    reason = models.CharField(max_length=32, default=Reason.SUBMITTED.value, editable=False)
    detail = models.CharField("reason in words", max_length=300, blank=True, editable=False)
    eta = models.DateTimeField("estimated start", null=True, blank=True, editable=False)
    eta_reason = models.CharField("why not before", max_length=300, blank=True, editable=False)
    result = models.CharField(
        max_length=8, choices=[(result.value, result.value.lower()) for result in Result], blank=True, editable=False
    )
    attempt = models.PositiveIntegerField(default=0, editable=False, help_text="How often it was placed")
    host = models.ForeignKey(
        Host, on_delete=models.PROTECT, null=True, blank=True, related_name="sessions", editable=False, db_index=False
    )
    avoided_hosts = ArrayField(
        models.BigIntegerField(), default=list, editable=False, help_text="Those that failed an earlier attempt"
    )
    refused_until = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Not placed until then, as the database refused it before"
    )
    start_failures = models.PositiveSmallIntegerField(
        default=0, editable=False, help_text="How often a host failed to start it since it was submitted"
    )
    is_parking = models.BooleanField(default=False, editable=False, help_text="It is being stopped to be parked")
    parked_on = models.ForeignKey(
        Host,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="parked_sessions",
        editable=False,
        db_index=False,
        help_text="The host that saved its container, on which alone it can be resumed",
    )
    parked_attempt = models.PositiveIntegerField(
        default=0, editable=False, help_text="The attempt whose container was saved last; 0: it was never parked"
    )
    parked_bytes = models.PositiveBigIntegerField(
        default=0, editable=False, help_text="What its saved containers had written, which counts as its disk"
    )
    container_id = models.CharField(max_length=64, blank=True, editable=False)
    address = models.GenericIPAddressField(null=True, editable=False, help_text="Of its container, on its host")
    last_activity_at = models.DateTimeField(null=True, blank=True, editable=False, help_text="When it was last used")
    ssh_public_key = models.TextField(blank=True, editable=False, help_text="Of the key in its home, id_container")
    pulled_bytes = models.PositiveBigIntegerField(null=True, editable=False, help_text="Of its image, compressed")
    pull_bytes = models.PositiveBigIntegerField(null=True, editable=False, help_text="In all, as far as known")
    exit_code = models.IntegerField(null=True, blank=True, editable=False)
    log_tail = models.TextField(blank=True, editable=False, help_text="Last output, kept when the container goes")
    previous_output = models.TextField(
        default="", db_default="", blank=True, editable=False, help_text="The same of the attempt before"
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    status_at = models.DateTimeField(default=timezone.now, editable=False, help_text="When it entered its status")
    start_by = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Its limits count from its start, but from then at the latest"
    )
    started_at = models.DateTimeField(null=True, blank=True, editable=False)
    ended_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects: ClassVar[SessionQuerySet] = SessionQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ("-created_at", "-id")
        indexes = INDEXES
        constraints = CONSTRAINTS

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"

    @property
    def full_name(self) -> str:
        """Its name and, of a cluster's other members than the first, which one it is: "train.sub1"."""
        return f"{self.name}.{self.member_name}" if self.rank else self.name

    @property
    def member_name(self) -> str:
        """Its host name in its cluster, if it is in one."""
        return member_name(self.rank)

    @property
    def has_host_network(self) -> bool:
        """Whether its container has the network of its host, and so no address of its own."""
        return self.cluster is not None and self.cluster.first_port is not None

    @property
    def whole_status(self) -> str:
        """Its status; of a cluster's first member, that of the whole. `with_members` fetches what it needs."""
        counted = (each for each in self.stands_for if each == self or not each.is_elastic or each.status in OF_WHOLE)
        return whole_of(member.status for member in counted)

    @property
    def stands_for(self) -> "list[Session]":
        """What it stands for: of a cluster's first member, all by rank; else it alone. Fetched by `with_members`."""
        if self.rank or self.cluster is None:
            return [self]
        return sorted(self.cluster.members.all(), key=lambda each: each.rank)

    @cached_property
    def shown_dependencies(self) -> "list[Any]":
        """What it waits for, as users know it; `Dependency` has a `state` then. Lists fetch it with their sessions."""
        return list(self.dependencies.shown()) if self.dependencies.exists() else []  # few have some, and it costs more

    @property
    def shown_by(self) -> set[str]:
        """The ids of the sessions whose pages show it: its own, and that of the member that stands for its cluster."""
        return {self.pk, self.cluster_id or self.pk}

    @property
    def whole_resize(self) -> dict[str, Any] | None:
        """The resize that its host has still to apply, or that of one of the members for which it stands."""
        return next((member.resize for member in self.stands_for if member.resize), None)

    @property
    def main(self) -> "Session":
        """The session that users know: of a cluster, its first member."""
        return self if self.rank == 0 else Session.objects.select_related("host").get(pk=self.cluster_id)

    @property
    def members(self) -> SessionQuerySet:
        """All members of its cluster by rank; it alone, where it is in none."""
        one = Q(pk=self.pk) if self.cluster_id is None else Q(cluster=self.cluster_id)
        return Session.objects.filter(one).order_by("rank")

    @property
    def is_absent(self) -> bool:
        """Whether it is an elastic member that its cluster does without at present."""
        return self.is_elastic and self.status in UNPLACED | FINAL

    @property
    def is_final(self) -> bool:
        """True once the session has ended."""
        return self.status in FINAL

    @property
    def policies(self) -> tuple[ResourcePolicy, ...]:
        """The policies that bind it, its owner's first; fetch `owner__policy` and `project__policy` with it."""
        return policies_of(self.owner, self.project)

    @property
    def bounds(self) -> PolicyBounds:
        """The strictest bounds of these policies."""
        return bounds_of(self.owner, self.project)

    @property
    def cpu_guaranteed_milli(self) -> int:
        """Thousandths of a core that its host guarantees it; while it waits, those that its group would today."""
        return self.cpu * (self.resource_group.core_milli if self.status in UNPLACED else self.core_milli)

    @property
    def is_cpu_shared(self) -> bool:
        """True if less than all of its cores is guaranteed."""
        return self.cpu_guaranteed_milli < self.cpu * CORE_MILLI

    @property
    def held_shares(self) -> list[tuple[GpuShare, Tier]]:
        """The shares of its lease with what holds each apart, in the devices' order; none without a lease."""
        lease = getattr(self, "lease", None)
        shares = sorted(lease.shares.all(), key=lambda share: share.gpu.index) if lease else []
        tiers = share_tiers([(share.milli, share.gpu.tier) for share in shares], self.resource_group.gpu_capacity)
        return list(zip(shares, tiers, strict=True))

    @property
    def ends_at(self) -> datetime | None:
        """When a started session is ended at the latest; None if nothing ends it. `end_expression` in queries."""
        return end_of(self)

    @property
    def drained_at(self) -> datetime | None:
        """When its host is to be free of sessions; None if it is not drained, or lets its sessions finish."""
        return self.host.drain_by if self.host else None

    @property
    def extension_left(self) -> timedelta:
        """How much longer its owner's policy lets it run."""
        return extension_left(self)

    @property
    def may_be_extended(self) -> bool:
        """True where its owner's policy lets it run longer; `extensions.allowed` knows by how much."""
        return self.status == Status.RUNNING and self.extension_left >= MIN_EXTENSION

    @property
    def has_succeeded(self) -> bool:
        """True once the session has ended as it should; `has_succeeded()` in queries."""
        return self.status == Status.TERMINATED and self.result != Result.FAILURE

    def move_to(
        self,
        target: Status,
        reason: Reason,
        detail: str = "",
        *,
        actor: User | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """Move from the status this object was read in to `target`, as one compare-and-set; the only such writer.

        Leaves an event, sets the time stamps, and frees the lease when `target` holds none. Raises StaleSessionError
        when the row has moved meanwhile or the move is not in the table; the object is then as it was.
        """
        old, now = Status(self.status), clock.now()
        changes = {"status": target.value, "reason": reason.value, "detail": detail, "status_at": now, **(fields or {})}
        if old == Status.PENDING:
            changes |= {"eta": None, "eta_reason": "", "claim": None}
        if target in FINAL:
            changes |= {"ended_at": now, "result": lifecycle.result_of(self.kind, target, reason)}
        if target == Status.RUNNING:
            changes["started_at"] = now
        if target == Status.PARKED:  # on its host, with nothing of a start
            changes |= {"started_at": None, "start_by": None, "address": None, "preempt_by": None, "preempted_for": ""}
            changes["host_id"] = changes.get("parked_on_id", self.parked_on_id)
        with transaction.atomic():
            row = Session.objects.filter(pk=self.pk, status=old.value, attempt=self.attempt)
            if old not in lifecycle.sources(target) or not row.update(**changes):
                raise StaleSessionError(f"session {self.pk}: {old} -> {target}")
            if target not in HOSTED:
                Lease.objects.filter(session=self.pk).delete()
            self.events.create(
                at=now, old_status=old.value, new_status=target.value, reason=reason.value, detail=detail, actor=actor
            )
            self._tell(old, target)
        for name, value in changes.items():
            setattr(self, name, value)
        logger.info("session %s: %s -> %s (%s) %s", self.pk, old, target, reason, detail)

    def _kick_once_all_run(self) -> None:
        """Have a cluster settled as its last member runs; on a host that has joined, as its last one there does."""
        if not Session.objects.filter(cluster=self.cluster_id, status__in=STARTING).exists():
            kick_scheduler()

    def _tell(self, old: Status, target: Status) -> None:
        """Tell browsers, app proxies and, of a cluster's member, the scheduler of a move, once it is committed."""
        notify.sessions_changed((pk, self.owner_id, self.project_id) for pk in self.shown_by)
        if self.cluster_id and target == Status.RUNNING:
            transaction.on_commit(self._kick_once_all_run, robust=True)  # settled every few seconds anyway
        elif self.cluster_id and target not in STARTING:
            kick_scheduler()
        if old == Status.RUNNING:
            notify.routes_changed(self.pk)
        if self.is_task and target in FINAL:
            kick_arrays()
