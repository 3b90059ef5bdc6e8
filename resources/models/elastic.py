"""Pools of hosts that a provider makes when sessions wait, and takes away when they are idle; and those hosts."""

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext

from resources.elastic import host_types
from resources.elastic.kinds import KINDS
from resources.elastic.providers import Provider
from resources.models.machines import SPAN, Host, Installation, ResourceGroup
from translation.english import from_english

MAX_HOSTS: Final = 1000
END_BEFORE: Final = timedelta(minutes=2)  # the provider takes a host back by itself: what is on it ends


class ElasticPool(models.Model):
    """Makes a resource group elastic: which hosts are made for it, by what, and within which budget."""

    group = models.OneToOneField(ResourceGroup, on_delete=models.PROTECT, related_name="elastic_pool")
    is_enabled = models.BooleanField("enabled", default=True, help_text="Otherwise no hosts are made; idle ones go")
    provider = models.CharField(max_length=16, help_text="What makes the hosts: command")
    configuration = models.JSONField(
        default=dict, blank=True, help_text="Of the provider, as the documentation of its kind says"
    )
    host_types = models.JSONField("types of hosts", default=list, help_text="What the provider can make")
    min_hosts = models.PositiveSmallIntegerField(
        "hosts at least", default=0, validators=[MaxValueValidator(MAX_HOSTS)], help_text="Made without need, and kept"
    )
    max_hosts = models.PositiveSmallIntegerField(
        "hosts at most", default=1, validators=[MaxValueValidator(MAX_HOSTS)], help_text="Coming ones included"
    )
    hosts_per_hour = models.PositiveSmallIntegerField(
        default=10, validators=[MinValueValidator(1)], help_text="How many may be asked for within an hour"
    )
    cost_per_hour = models.DecimalField(
        "cost per hour at most",
        max_digits=9,
        decimal_places=3,
        null=True,
        blank=True,
        validators=[MinValueValidator(Decimal(0))],
        help_text="Of all its hosts together; empty: no limit",
    )
    cool_down = models.DurationField(
        default=timedelta(minutes=10), validators=[SPAN], help_text="A host that is idle for this long is given back"
    )
    give_up_after = models.DurationField(
        default=timedelta(minutes=15), validators=[SPAN], help_text="A host that has not joined by then is given back"
    )
    back_off = models.DurationField(
        default=timedelta(minutes=1),
        validators=[SPAN],
        help_text="Pause after a host that did not come; each further one doubles it, up to an hour",
    )
    max_parked_time = models.DurationField(
        "parked sessions for at most",
        default=timedelta(days=7),
        db_default=timedelta(days=7),
        validators=[SPAN],
        help_text="A session parked on one of its hosts ends after this, or by its policy, so that the host can go",
    )
    failures = models.PositiveSmallIntegerField(default=0, editable=False, help_text="Hosts in a row that did not come")
    problem = models.CharField(max_length=300, blank=True, editable=False, help_text="Why the last one did not come")
    retry_at = models.DateTimeField(null=True, blank=True, editable=False, help_text="No host is asked for before")
    silent_since = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Since when its provider has not answered"
    )
    silence = models.CharField(
        max_length=300, blank=True, editable=False, db_default="", help_text="What its provider said instead"
    )

    class Meta:
        ordering = ("group__name",)
        constraints = (
            models.CheckConstraint(condition=Q(min_hosts__lte=F("max_hosts")), name="pool_min_hosts_within_max"),
        )

    def __str__(self) -> str:
        return str(self.group)

    def clean(self) -> None:
        """Raise ValidationError where no provider works with the configuration, or a type of host is none."""
        problems: dict[str, Any] = {}
        try:
            self.host_types = host_types.checked(self.host_types)
        except ValidationError as error:
            problems["host_types"] = [from_english(text) for text in error.messages]
        if self.provider not in KINDS:
            problems["provider"] = gettext("There is: %(names)s.") % {"names": ", ".join(sorted(KINDS))}
        elif not isinstance(self.configuration, Mapping):
            problems["configuration"] = gettext("An object of JSON is needed.")
        else:
            try:
                self.make_provider()
            except ValidationError as error:
                problems["configuration"] = [from_english(text) for text in error.messages]
        if self.min_hosts is not None and self.max_hosts is not None and self.min_hosts > self.max_hosts:
            problems["min_hosts"] = gettext("More than the hosts at most.")
        if self.hosts_elsewhere():
            problems["provider"] = gettext(
                "Its hosts are with another: disable the pool, and wait until they are gone."
            )
        if problems:
            raise ValidationError(problems)

    def hosts_elsewhere(self) -> bool:
        """Return whether the pool as it is stored has hosts that another provider, or for another group, has made."""
        stored = ElasticPool.objects.filter(pk=self.pk).exclude(provider=self.provider, group=self.group_id)
        return ElasticHost.objects.filter(pool__in=stored).exclude(state__in=OVER).exists()

    @property
    def prefix(self) -> str:
        """How the names of its hosts begin, on whatever provider: those of no other pool or installation do so."""
        return f"gp{Installation.current_key()[:10]}-{self.pk or 0}-"

    def make_provider(self) -> Provider:
        """Return what makes its hosts. Raises ValidationError."""
        return KINDS[self.provider](self.configuration, self.prefix)

    @property
    def possible_types(self) -> list[dict[str, Any]]:
        """The types of hosts that it may make, as they are stored."""
        return self.host_types if self.is_enabled and self.max_hosts else []

    def host_type(self, name: str) -> dict[str, Any] | None:
        """Return a type of its hosts as it is stored; None if there is none of this name any more."""
        return next((row for row in self.host_types if row["name"] == name), None)


class ElasticState(models.TextChoices):
    """What becomes of a host that is made for a pool."""

    REQUESTED = "REQUESTED", "requested"  # decided, and counted in the budget
    CREATING = "CREATING", "creating"  # the provider is asked, or was when a process died
    JOINING = "JOINING", "joining"  # the provider has agreed; it has not joined yet
    UP = "UP", "up"  # takes sessions
    DRAINING = "DRAINING", "draining"  # takes no new sessions, since it was idle or ends soon
    DELETING = "DELETING", "deleting"  # the provider is to take it back
    ENDED = "ENDED", "ended"  # given back
    FAILED = "FAILED", "failed"  # it never joined, or was lost; given back


COMING: Final = (ElasticState.REQUESTED, ElasticState.CREATING, ElasticState.JOINING)
OVER: Final = (ElasticState.ENDED, ElasticState.FAILED)
NEXT: Final[dict[ElasticState, frozenset[ElasticState]]] = {
    ElasticState.REQUESTED: frozenset({ElasticState.CREATING, ElasticState.DELETING}),
    ElasticState.CREATING: frozenset({ElasticState.JOINING, ElasticState.DELETING}),
    ElasticState.JOINING: frozenset({ElasticState.UP, ElasticState.DELETING}),
    ElasticState.UP: frozenset({ElasticState.DRAINING, ElasticState.DELETING}),
    ElasticState.DRAINING: frozenset({ElasticState.UP, ElasticState.DELETING}),
    ElasticState.DELETING: frozenset({ElasticState.ENDED, ElasticState.FAILED}),
    ElasticState.ENDED: frozenset(),
    ElasticState.FAILED: frozenset(),
}


class ElasticHost(models.Model):
    """One host that was asked for, from then until it was given back."""

    pool = models.ForeignKey(ElasticPool, on_delete=models.PROTECT, related_name="hosts")
    name = models.CharField(max_length=64, unique=True, help_text="Of the host, and in what the provider lists")
    type_name = models.CharField("type", max_length=32)
    cost_per_hour = models.DecimalField(max_digits=9, decimal_places=3)
    state = models.CharField(
        max_length=9, choices=ElasticState.choices, default=ElasticState.REQUESTED.value, db_index=True
    )
    reason = models.CharField(max_length=300, blank=True, help_text="Why it is in this state")
    has_failed = models.BooleanField(default=False, help_text="It did not come, or was lost")
    identifier = models.CharField(max_length=200, blank=True, help_text="The provider's own")
    host = models.OneToOneField(Host, on_delete=models.SET_NULL, null=True, related_name="elastic_host")
    created_at = models.DateTimeField(default=timezone.now)
    state_at = models.DateTimeField(default=timezone.now)
    expected_at = models.DateTimeField(null=True, help_text="When it is expected to take sessions; null: it is late")
    joined_at = models.DateTimeField(null=True)
    idle_since = models.DateTimeField(null=True)
    ends_at = models.DateTimeField(null=True, help_text="When its provider takes it back by itself")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-created_at", "name")

    def __str__(self) -> str:
        return self.name

    def move_to(self, state: ElasticState, at: Any, reason: str = "", **fields: Any) -> bool:
        """Change the state, unless another process has done so meanwhile; return whether it was this one."""
        if state not in NEXT[ElasticState(self.state)]:
            raise ValueError(f"{self.name}: {self.state} -> {state}")
        fields |= {"state": state.value, "state_at": at, "reason": reason[:300]}
        if not ElasticHost.objects.filter(pk=self.pk, state=self.state).update(**fields):
            return False
        for name, value in fields.items():
            setattr(self, name, value)
        return True
