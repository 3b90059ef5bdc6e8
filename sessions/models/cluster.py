"""Clusters: several sessions that are placed, started and ended together, with a network of their own.

All are of one size, but for the first where it has its own.
"""

from typing import Final

from django.db import models
from django.db.models import Case, F, OuterRef, Q, Subquery, Value, When

from sessions.lifecycle import PROGRESS, Status

MAX_MEMBERS: Final = 64
OF_WHOLE: Final = (Status.RUNNING, Status.TERMINATING)  # states of elastic members that count in that of the whole


class ClusterMode(models.TextChoices):
    """On which hosts the members of a cluster may be."""

    ANY = "any", "one host where all fit, else the fewest"
    SINGLE_HOST = "single-host", "all on one host"
    SPREAD = "spread", "each on a host of its own"


class Cluster(models.Model):
    """What the members of a cluster have in common; each is a session, the first of which has this id as well."""

    id = models.CharField(primary_key=True, max_length=16, editable=False)
    size = models.PositiveSmallIntegerField(help_text="Members with which it starts, the first one included")
    max_size = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Members to which it grows while there is room; empty: it does not"
    )
    mode = models.CharField(max_length=16, choices=ClusterMode.choices, default=ClusterMode.ANY.value)
    shares_gpus = models.BooleanField(default=False, help_text="Members may have parts of the same GPU")
    runs_on_all = models.BooleanField(default=False, help_text="Every member runs the command, not the first alone")
    max_restarts = models.PositiveSmallIntegerField(
        default=0, help_text="How often it starts again as a whole after a member failed"
    )
    restarts = models.PositiveSmallIntegerField(default=0, editable=False)
    network = models.CharField(
        max_length=18, null=True, unique=True, editable=False, help_text="Its addresses while it is placed, as a /24"
    )
    host_addresses = models.JSONField(
        default=list,
        editable=False,
        help_text="Where it is placed: the address of each member's host, by rank; empty without",
    )
    first_port = models.PositiveIntegerField(
        null=True,
        editable=False,
        help_text="While it is placed and has the network of its hosts: of the ports that are its own there",
    )
    main_differs = models.BooleanField(
        default=False, db_default=False, editable=False, help_text="The first member has a size of its own"
    )
    private_key = models.TextField(blank=True, editable=False, help_text="By which its members log in to each other")
    public_key = models.TextField(blank=True, editable=False)
    started_at = models.DateTimeField(null=True, editable=False, help_text="When the last of its members ran")
    ended_at = models.DateTimeField(null=True, editable=False, help_text="When all of its members had ended")

    class Meta:
        indexes = (models.Index(fields=("id",), condition=Q(ended_at=None), name="cluster_live"),)
        constraints = (
            models.CheckConstraint(
                condition=Q(size__gte=2, size__lte=MAX_MEMBERS, max_size=None)
                | Q(size__gte=1, max_size__gt=F("size"), max_size__lte=MAX_MEMBERS),
                name="cluster_has_members",
            ),
        )

    def __str__(self) -> str:
        return f"{self.id} x {self.size}"

    @property
    def most(self) -> int:
        """How many members it has at most."""
        return self.max_size or self.size


def member_name(rank: int) -> str:
    """Return the host name of a member within its cluster: main1, sub1, sub2, ..."""
    return f"sub{rank}" if rank else "main1"


def in_whole(path: str = "") -> Q:
    """Return the condition that the member behind `path` counts in its cluster's status: elastic ones do at work."""
    return Q(**{f"{path}is_elastic": False}) | Q(**{f"{path}status__in": OF_WHOLE})


def whole_status() -> Case:
    """Return the expression of a session's status; of a cluster's first member, of that of the whole.

    As `whole_of` of the members `in_whole`.
    """
    cases = (When(members__status=status, then=Value(at)) for at, status in enumerate(PROGRESS))
    progress = Case(*cases, default=Value(len(PROGRESS)))
    members = Cluster.objects.filter(in_whole("members__"), pk=OuterRef("cluster")).order_by(progress, "members__rank")
    least = Subquery(members.values("members__status")[:1])
    return Case(When(Q(cluster=None) | Q(rank__gt=0), then=F("status")), default=least)
