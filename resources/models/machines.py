"""Hosts, GPUs, resource groups and presets."""

import uuid
from datetime import timedelta
from decimal import Decimal
from typing import ClassVar, Final

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import Project, User
from resources.accelerators.kinds import KIND_LENGTH, NVIDIA, kind_name, kind_problem
from resources.amounts.units import MIB, fgpu_text, guaranteed_milli, size_text
from resources.gpus.shares import SHARING_WORDS, Sharing
from resources.gpus.tiers import Tier


class Installation(models.Model):
    """A single row with the key that labels this platform's containers, since others may share the engine."""

    key = models.UUIDField(default=uuid.uuid4, editable=False)
    singleton = models.BooleanField(default=True, unique=True, editable=False)

    class Meta:
        constraints = (models.CheckConstraint(condition=Q(singleton=True), name="installation_is_one_row"),)

    def __str__(self) -> str:
        return self.key.hex

    @classmethod
    def current_key(cls) -> str:
        """Return this installation's key as 32 hex digits, created on first use."""
        return cls.objects.get_or_create(singleton=True)[0].key.hex


class ResourceGroupQuerySet(models.QuerySet["ResourceGroup"]):
    """Queries of resource groups."""

    def usable_by(self, user: User) -> "ResourceGroupQuerySet":
        """Return the active groups in which `user` may start sessions, for themselves or for one of their projects.

        Superadmins may use all of them.
        """
        groups = self.filter(is_active=True)
        if user.is_superuser:
            return groups
        return groups.filter(
            Q(open_to_all=True)
            | Q(pk__in=self.model.users.through.objects.filter(user=user).values("resourcegroup"))
            | Q(
                pk__in=self.model.projects.through.objects.filter(project__in=Project.objects.usable_by(user)).values(
                    "resourcegroup"
                )
            )
        )

    def usable_for(self, user: User, project: Project | None) -> "ResourceGroupQuerySet":
        """Return the active groups in which a session of `user` for `project`, or for none, may start.

        A grant to a project is for its sessions alone; what is granted to a user is for all of theirs.
        """
        groups = self.filter(is_active=True)
        if user.is_superuser:
            return groups
        granted = Q(open_to_all=True) | Q(
            pk__in=self.model.users.through.objects.filter(user=user).values("resourcegroup")
        )
        if project is not None:
            granted |= Q(pk__in=project.resource_groups.values("pk"))
        return groups.filter(granted)


class PlacementChoice(models.TextChoices):
    """Placement policies: which of the hosts that fit gets a session; see docs/scheduling.md."""

    PACK = "pack", "pack: fill up hosts, keep whole GPUs whole"
    SPREAD = "spread", "spread: as few neighbours as possible"
    BALANCE = "balance", "balance: keep free GPUs useful for what is usually asked for"


class QueueOrderChoice(models.TextChoices):
    """Which session a group serves next."""

    FIFO = "fifo", "fifo: who waits longest"
    FAIR = "fair", "fair: the user who has used least for their weight"


def validate_kind(kind: str) -> None:
    """Raise ValidationError unless this is a kind of accelerators."""
    if problem := kind_problem(kind):
        raise ValidationError(problem)


SPAN = MinValueValidator(limit_value=timedelta(minutes=1))


class ResourceGroup(models.Model):
    """A pool of hosts, usually with the same type of GPU."""

    name = models.CharField(max_length=64, unique=True)
    description = models.CharField(max_length=200, blank=True)
    fgpu_per_gpu = models.PositiveSmallIntegerField(
        "fGPU per GPU",
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(100)],
        help_text="One physical GPU is this many fGPU. It cannot change while sessions hold shares.",
    )
    accelerator = models.CharField(
        "kind of accelerators",
        max_length=KIND_LENGTH,
        default=NVIDIA,
        db_default=NVIDIA,
        validators=[validate_kind],
        help_text="What its hosts lend, such as nvidia.com/gpu, amd.com/gpu or intel.com/gpu; what else they have is "
        "left out. Only those of NVIDIA can be lent in parts. It cannot change while hosts here lend some.",
    )
    host_loss_grace = models.DurationField(
        default=timedelta(minutes=10), help_text="How long sessions on a silent host are kept before they end"
    )
    cpu_overcommit = models.DecimalField(
        "CPU overcommit factor",
        max_digits=4,
        decimal_places=2,
        default=Decimal(1),
        db_default=Decimal(1),
        validators=[MinValueValidator(Decimal(1)), MaxValueValidator(Decimal(32))],
        help_text="Hosts take sessions for this many times their CPU cores. Each is guaranteed its cores divided by "
        "the factor, and may use all of them while others leave theirs idle. Memory and GPUs are never overcommitted. "
        "Sessions keep the factor with which they were placed.",
    )
    use_mps = models.BooleanField(
        "share compute through MPS",
        default=False,
        help_text="For users who trust each other: a fault of one session can end others on the same GPU. Hosts that "
        "name an MPS folder follow when their workers start next.",
    )
    sharing = models.CharField(
        "idle GPU time",
        max_length=8,
        choices=[(sharing.value, f"{sharing.value}: {words}") for sharing, words in SHARING_WORDS.items()],
        default=Sharing.CAP.value,
        help_text="What sessions leave idle of their shares of a GPU's time is lost (cap), or used by the others on "
        "that GPU and given back within a fifth of a second (burst). It holds for running sessions within seconds. "
        "Memory is never lent, and GPUs shared through MPS are not affected.",
    )
    deny_private_networks = models.BooleanField(
        default=False,
        help_text="Sessions reach the internet, but no machines at private addresses (10.x, 172.16-31.x, 192.168.x, "
        "100.64-127.x, and fc00::/7 of IPv6) other than the host's name servers. It holds for running sessions within "
        "seconds and cuts their open connections. It takes the hosts' firewall rules (COMPUTE_FIREWALL).",
    )
    cluster_host_network = models.BooleanField(
        "host network for clusters",
        default=False,
        db_default=False,
        help_text="For users who are trusted with the hosts, where these have InfiniBand or RoCE. Members of clusters "
        "that may be on several hosts run in the network of their hosts, with the devices of /dev/infiniband. Nothing "
        "then keeps them from the hosts' own services, from other sessions there and from private networks, and they "
        "offer no apps. It holds for clusters that start from then on.",
    )
    placement = models.CharField(
        max_length=8,
        choices=PlacementChoice.choices,
        default=PlacementChoice.PACK.value,
        help_text="Which host takes a session",
    )
    queue_order = models.CharField(
        max_length=8,
        choices=QueueOrderChoice.choices,
        default=QueueOrderChoice.FIFO.value,
        help_text="Who is served first",
    )
    ageing = models.DurationField(
        default=timedelta(hours=6),
        validators=[SPAN],
        help_text="In fifo order: waiting this long counts as one point of priority",
    )
    reservation_delay = models.DurationField(
        default=timedelta(hours=1),
        help_text="Wait after which a whole host is reserved for the first session, where time limits promise no start",
    )
    half_life = models.DurationField(
        default=timedelta(days=1),
        validators=[SPAN],
        help_text="In fair order: after this long, use counts half",
    )
    starvation_limit = models.DurationField(
        default=timedelta(days=1),
        validators=[SPAN],
        help_text="In fair order: who has held nothing for this long, and waited, is served first",
    )
    preemption_grace = models.DurationField(
        default=timedelta(minutes=2),
        validators=[MinValueValidator(limit_value=timedelta(0))],
        help_text="How long before its end a preemptible session is warned that it is ended for another",
    )
    preemptible_charge_percent = models.PositiveSmallIntegerField(
        "charge of preemptible sessions (%)",
        default=50,
        validators=[MaxValueValidator(100)],
        help_text="In fair order: part of their use that counts",
    )
    end_gpu_overuse = models.BooleanField(
        "end sessions above their GPU time",
        default=False,
        help_text="Sessions that take more of a GPU's time than their share for half a minute are ended; otherwise it "
        "is noted and superadmins are told. What drivers say of GPU time is coarse: watch it on your cards first.",
    )
    start_allowance = models.DurationField(
        default=timedelta(minutes=5),
        validators=[MinValueValidator(limit_value=timedelta(0))],
        help_text="How long a start may take before the time limit counts: what others were told rests on it",
    )
    max_lifetime = models.DurationField(
        null=True,
        blank=True,
        validators=[SPAN],
        help_text="A session ends this long after it started running here, or earlier by its owner's policy; empty: by "
        "the policy alone",
    )
    pending_timeout = models.DurationField(
        null=True, blank=True, validators=[SPAN], help_text="Sessions that wait for longer are cancelled; empty: never"
    )
    is_active = models.BooleanField(default=True, help_text="Inactive groups start no sessions")
    open_to_all = models.BooleanField(default=False, help_text="Every user may use this group")
    users = models.ManyToManyField(User, blank=True, related_name="resource_groups")
    projects = models.ManyToManyField(
        Project,
        blank=True,
        related_name="resource_groups",
        help_text="Whose sessions may start here, whoever of the members starts them",
    )
    allow_interactive = models.BooleanField(
        "interactive sessions", default=True, help_text="Sessions without a command of their own may start here"
    )
    allow_batch = models.BooleanField(
        "batch sessions", default=True, help_text="Sessions that run a command and end with it may start here"
    )

    objects: ClassVar[ResourceGroupQuerySet] = ResourceGroupQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ("name",)
        constraints = (
            models.CheckConstraint(condition=Q(fgpu_per_gpu__gte=1), name="group_cuts_a_gpu_into_at_least_one"),
            models.CheckConstraint(
                condition=Q(cpu_overcommit__gte=1, cpu_overcommit__lte=32), name="group_overcommits_cpu_within_bounds"
            ),
            models.CheckConstraint(condition=Q(ageing__gt=timedelta(0)), name="group_ages_by_a_span"),
            models.CheckConstraint(condition=Q(half_life__gt=timedelta(0)), name="group_halves_use_after_a_span"),
            models.CheckConstraint(
                condition=Q(allow_interactive=True) | Q(allow_batch=True), name="group_allows_a_kind_of_session"
            ),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def gpu_capacity(self) -> int:
        """Milli-fGPU that one GPU of this group holds."""
        return self.fgpu_per_gpu * 1000

    @property
    def accelerator_name(self) -> str:
        """What people call a device of its hosts, such as "GPU" or "AMD GPU"."""
        return kind_name(self.accelerator)

    @property
    def core_milli(self) -> int:
        """Thousandths of a core that are guaranteed to a session for each of its cores."""
        return guaranteed_milli(self.cpu_overcommit)


TOPOLOGY: Final = r"^[\w.-]+(/[\w.-]+){0,7}\Z"  # a path of names, such as row1/rack3


class HostStatus(models.TextChoices):
    """Whether sessions can be placed on a host."""

    JOINING = "JOINING", "joining"  # registered, but not reconciled yet, so nothing is placed on it
    READY = "READY", "ready"  # takes sessions unless cordoned
    LOST = "LOST", "lost"  # silent for too long


class Host(models.Model):
    """A GPU server on which a host worker runs."""

    name = models.CharField(max_length=64, unique=True)
    group = models.ForeignKey(ResourceGroup, on_delete=models.PROTECT, related_name="hosts")
    status = models.CharField(max_length=8, choices=HostStatus.choices, default=HostStatus.JOINING.value)
    is_cordoned = models.BooleanField("cordoned", default=False, help_text="Place no new sessions here")
    cordon_reason = models.CharField(
        "why it is cordoned", max_length=200, blank=True, help_text="Shown to everybody who sees the host"
    )
    drain_by = models.DateTimeField(
        null=True, blank=True, help_text="Sessions that run here then are ended; empty: they may finish"
    )
    topology = models.CharField(
        max_length=200,
        blank=True,
        db_default="",
        validators=[
            RegexValidator(TOPOLOGY, "Use names of letters, digits and . - _ with / between them, eight at most.")
        ],
        help_text="Where it stands, from far to near, such as row1/rack3: clusters go to hosts near each other",
    )
    cpu = models.PositiveIntegerField("CPU cores")
    memory = models.PositiveBigIntegerField("memory (bytes)")
    architecture = models.CharField(max_length=16, blank=True, help_text="Of its CPU, such as amd64, as images name it")
    heartbeat_at = models.DateTimeField(default=timezone.now)
    lost_at = models.DateTimeField(null=True, blank=True, help_text="Since when the host is silent")
    gateway_url = models.CharField(
        max_length=200, blank=True, help_text="Where its terminals and apps are reached from other machines"
    )

    cluster_address = models.CharField(
        max_length=45,
        blank=True,
        db_default="",
        editable=False,
        help_text="By which other hosts reach it for the networks of clusters; empty: it can have none",
    )
    machine_id = models.CharField(max_length=64, blank=True, editable=False, help_text="Of /etc/machine-id")
    engine_id = models.CharField(max_length=128, blank=True, editable=False, help_text="Of its container engine")
    boot_id = models.CharField(max_length=64, blank=True, editable=False, help_text="Of the boot whose worker beats")
    gpu_topology = models.JSONField(
        "GPU topology",
        default=dict,
        blank=True,
        editable=False,
        help_text="How its GPUs are connected, as nvidia-smi topo -m writes it; empty: the driver does not say",
    )

    gpu_driver = models.CharField("GPU driver", max_length=64, blank=True, db_default="", editable=False)

    class Meta:
        ordering = ("name",)
        constraints = (
            models.CheckConstraint(condition=Q(drain_by=None) | Q(is_cordoned=True), name="host_drained_is_cordoned"),
        )

    def __str__(self) -> str:
        return self.name


class HostHealth(models.Model):
    """Starts in a row that failed by the host's fault; where they were too many, when it is probed. Made when needed.

    Sessions without a GPU cannot tell whether the host's GPUs work, so those with one are counted apart.
    """

    host = models.OneToOneField(Host, on_delete=models.CASCADE, primary_key=True, related_name="health")
    failures = models.PositiveSmallIntegerField(default=0, help_text="In a row, of sessions without a GPU")
    gpu_failures = models.PositiveSmallIntegerField(default=0, help_text="In a row, of sessions with a GPU")
    problem = models.CharField(max_length=300, blank=True, help_text="What the last failure or probe said")
    faulty_since = models.DateTimeField(
        null=True, blank=True, help_text="When the platform cordoned it; empty: it did not"
    )
    probe_at = models.DateTimeField(null=True, blank=True, help_text="When it is probed next")
    probe_pause = models.DurationField(default=timedelta(seconds=30), help_text="Between the last two probes")
    returned_at = models.DateTimeField(null=True, blank=True, help_text="When a probe last put it back into service")

    class Meta:
        constraints = (
            models.CheckConstraint(
                condition=Q(faulty_since=None, probe_at=None) | Q(faulty_since__isnull=False, probe_at__isnull=False),
                name="health_faulty_is_probed",
            ),
        )

    def __str__(self) -> str:
        return f"health of {self.host_id}"


class Gpu(models.Model):
    """A GPU or another accelerator, whole, a partition, or simulated, identified by its UUID on whatever host."""

    uuid = models.CharField("UUID", max_length=64, unique=True)
    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="gpus")
    index = models.PositiveSmallIntegerField(help_text="Position on the host, as NVML counts")
    kind = models.CharField(
        max_length=KIND_LENGTH, default=NVIDIA, db_default=NVIDIA, help_text="Vendor and class, such as amd.com/gpu"
    )
    name = models.CharField("model", max_length=96)
    memory = models.PositiveBigIntegerField("memory (bytes)")
    is_simulated = models.BooleanField("simulated", default=False)
    tier = models.CharField(
        "enforcement",
        max_length=8,
        choices=[(tier.value, tier.value) for tier in Tier],
        default=Tier.HOOK.value,
        help_text="What holds the sessions that share it apart",
    )
    is_present = models.BooleanField("present", default=True, help_text="Seen when its host last registered")
    problem = models.CharField(
        max_length=200, blank=True, default="", db_default="", help_text="Why its host lends it to nobody"
    )

    class Meta:
        ordering = ("host", "index")
        verbose_name = "GPU"

    def __str__(self) -> str:
        return f"{self.name} {self.uuid}"


class GpuReading(models.Model):
    """What the driver last said of a device as a whole; null where it does not say."""

    gpu = models.OneToOneField(Gpu, on_delete=models.CASCADE, primary_key=True, related_name="reading")
    at = models.DateTimeField(default=timezone.now)
    utilisation = models.PositiveSmallIntegerField("utilisation (%)", null=True)
    memory_used = models.PositiveBigIntegerField("memory in use (bytes)", null=True)
    temperature = models.SmallIntegerField("temperature (°C)", null=True)
    power = models.PositiveIntegerField("power (W)", null=True)

    def __str__(self) -> str:
        return f"{self.gpu_id} at {self.at}"


class Preset(models.Model):
    """A named set of resources, in one group or, without one, in all."""

    name = models.CharField(max_length=64)
    group = models.ForeignKey(ResourceGroup, on_delete=models.CASCADE, null=True, blank=True, related_name="presets")
    cpu = models.PositiveIntegerField("CPU cores", validators=[MinValueValidator(1)])
    memory = models.PositiveBigIntegerField("memory (bytes)", validators=[MinValueValidator(MIB)])
    shared_memory = models.PositiveBigIntegerField("shared memory (bytes)", default=64 * MIB)
    fgpu = models.PositiveIntegerField("milli-fGPU", default=0, help_text="1000 is 1 fGPU")
    gpu_memory = models.PositiveBigIntegerField(
        "GPU memory (bytes)",
        default=0,
        db_default=0,
        blank=True,
        help_text="In place of a share, which is then the least",
    )

    class Meta:
        ordering = ("fgpu", "cpu", "name")
        constraints = (
            models.UniqueConstraint(fields=("group", "name"), name="preset_name_unique_in_group", nulls_distinct=False),
            models.CheckConstraint(
                condition=Q(shared_memory__lte=models.F("memory")), name="preset_shared_memory_within_memory"
            ),
        )

    def __str__(self) -> str:
        gpu = f"{size_text(self.gpu_memory)} of GPU memory" if self.gpu_memory else f"{fgpu_text(self.fgpu)} fGPU"
        return f"{self.name} ({gpu})"
