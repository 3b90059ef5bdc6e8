"""Hosts, GPUs, resource groups, presets, images and their apps."""

import uuid
from datetime import timedelta
from typing import ClassVar, Final

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import User
from resources.tiers import Tier
from resources.units import MIB, fgpu_text

APP_NAME: Final = "[a-z0-9]{1,20}"  # part of a host name; `p` and a number is reserved for ports that users open
DECLARED_NAME: Final = f"^(?!p[0-9]+$){APP_NAME}$"
APP_PATH: Final = r"^/(?![/\\])[!-~]*$"  # on the app's origin: no host, no control characters
VARIABLE_NAME: Final = "^[A-Za-z_][A-Za-z0-9_]*$"


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
        """Return the active groups in which `user` may start sessions; superadmins may use all of them."""
        groups = self.filter(is_active=True)
        if user.is_superuser:
            return groups
        return groups.filter(Q(open_to_all=True) | Q(users=user)).distinct()


class PlacementChoice(models.TextChoices):
    """Placement policies: which of the hosts that fit gets a session; see docs/scheduling.md."""

    PACK = "pack", "pack: fill up hosts, keep whole GPUs whole"
    SPREAD = "spread", "spread: as few neighbours as possible"
    FGD = "fgd", "fgd: least fragmentation of the GPUs"
    BALANCE = "balance", "balance: least fragmentation, cores matched to GPUs"


class QueueOrderChoice(models.TextChoices):
    """The queue order among sessions of equal priority."""

    FIFO = "fifo", "fifo: who waits longest"
    DRF = "drf", "drf: the user who holds the smallest part of the group"


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
    host_loss_grace = models.DurationField(
        default=timedelta(minutes=10), help_text="How long sessions on a silent host are kept before they end"
    )
    use_mps = models.BooleanField(
        "share compute through MPS",
        default=False,
        help_text="For users who trust each other: a fault of one session can end others on the same GPU. Hosts that "
        "name an MPS folder follow when their workers start next.",
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
        default=timedelta(hours=6), validators=[SPAN], help_text="Waiting this long counts as one point of priority"
    )
    reservation_delay = models.DurationField(
        default=timedelta(hours=1),
        help_text="Wait after which a whole host is reserved for the first session, where time limits promise no start",
    )
    pending_timeout = models.DurationField(
        null=True, blank=True, validators=[SPAN], help_text="Sessions that wait for longer are cancelled; empty: never"
    )
    is_active = models.BooleanField(default=True, help_text="Inactive groups start no sessions")
    open_to_all = models.BooleanField(default=False, help_text="Every user may use this group")
    users = models.ManyToManyField(User, blank=True, related_name="resource_groups")

    objects: ClassVar[ResourceGroupQuerySet] = ResourceGroupQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ("name",)
        constraints = (
            models.CheckConstraint(condition=Q(fgpu_per_gpu__gte=1), name="group_cuts_a_gpu_into_at_least_one"),
            models.CheckConstraint(condition=Q(ageing__gt=timedelta(0)), name="group_ages_by_a_span"),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def gpu_capacity(self) -> int:
        """Milli-fGPU that one GPU of this group holds."""
        return self.fgpu_per_gpu * 1000


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
    cpu = models.PositiveIntegerField("CPU cores")
    memory = models.PositiveBigIntegerField("memory (bytes)")
    heartbeat_at = models.DateTimeField(default=timezone.now)
    lost_at = models.DateTimeField(null=True, blank=True, help_text="Since when the host is silent")
    gateway_url = models.CharField(
        max_length=200, blank=True, help_text="Where its terminals and apps are reached from other machines"
    )

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Gpu(models.Model):
    """A physical, MIG or simulated GPU, identified by its UUID on whatever host."""

    uuid = models.CharField("UUID", max_length=64, unique=True)
    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="gpus")
    index = models.PositiveSmallIntegerField(help_text="Position on the host, as NVML counts")
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

    class Meta:
        ordering = ("host", "index")
        verbose_name = "GPU"

    def __str__(self) -> str:
        return f"{self.name} {self.uuid}"


class Preset(models.Model):
    """A named set of resources, in one group or, without one, in all."""

    name = models.CharField(max_length=64)
    group = models.ForeignKey(ResourceGroup, on_delete=models.CASCADE, null=True, blank=True, related_name="presets")
    cpu = models.PositiveIntegerField("CPU cores", validators=[MinValueValidator(1)])
    memory = models.PositiveBigIntegerField("memory (bytes)", validators=[MinValueValidator(MIB)])
    shared_memory = models.PositiveBigIntegerField("shared memory (bytes)", default=64 * MIB)
    fgpu = models.PositiveIntegerField("milli-fGPU", default=0, help_text="1000 is 1 fGPU")

    class Meta:
        ordering = ("fgpu", "cpu", "name")
        constraints = (
            models.UniqueConstraint(fields=("group", "name"), name="preset_name_unique_in_group", nulls_distinct=False),
            models.CheckConstraint(
                condition=Q(shared_memory__lte=models.F("memory")), name="preset_shared_memory_within_memory"
            ),
        )

    def __str__(self) -> str:
        return f"{self.name} ({fgpu_text(self.fgpu)} fGPU)"


class Registry(models.Model):
    """A container registry that hosts pull from, with the credentials to do so."""

    name = models.CharField(max_length=64, unique=True)
    address = models.CharField(
        max_length=255, unique=True, help_text="Host and port as in image references, such as registry.example.com:5000"
    )
    username = models.CharField(max_length=255, blank=True)
    encrypted_password = models.BinaryField(blank=True, default=bytes, editable=False)
    is_push_target = models.BooleanField(
        "push target", default=False, help_text="Images made from sessions are pushed here, so that every host has them"
    )

    class Meta:
        ordering = ("name",)
        verbose_name_plural = "registries"
        constraints = (
            models.UniqueConstraint(
                fields=("is_push_target",), condition=Q(is_push_target=True), name="registry_one_push_target"
            ),
        )

    def __str__(self) -> str:
        return self.name


class ImageQuerySet(models.QuerySet["Image"]):
    """Questions about images."""

    def usable_by(self, user: User) -> "ImageQuerySet":
        """Return the enabled images that `user` may launch: everybody's, and private ones of their own."""
        return self.filter(Q(owner=None) | Q(owner=user), is_enabled=True)

    def visible_to(self, user: User) -> "ImageQuerySet":
        """Return the images that `user` may know of: those that they may launch, all of them for a superadmin."""
        return self if user.is_superuser else self.usable_by(user)


class ImageSource(models.TextChoices):
    """Where an image comes from."""

    CATALOG = "catalog", "built from the catalogue"
    REGISTRY = "registry", "pulled from a registry"
    SESSION = "session", "made from a session"


class Image(models.Model):
    """A container image that sessions may run: one version of an environment."""

    environment = models.CharField(max_length=64, help_text="What users pick first, such as PyTorch")
    version = models.CharField(max_length=64, help_text="What users pick next, such as 2.5")
    reference = models.CharField(max_length=255, unique=True, help_text="repository:tag as the engine knows it")
    description = models.CharField(max_length=200, blank=True)
    is_enabled = models.BooleanField("enabled", default=True)
    is_default = models.BooleanField("default", default=False, help_text="Offered first among its environment's")
    min_cpu = models.PositiveIntegerField("least CPU cores", default=1)
    min_memory = models.PositiveBigIntegerField("least memory (bytes)", default=64 * MIB)
    min_fgpu = models.PositiveIntegerField("least milli-fGPU", default=0)
    owner = models.ForeignKey(
        User,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="private_images",
        help_text="Who alone may use it; empty: everybody",
    )
    source = models.CharField(max_length=8, choices=ImageSource.choices, default=ImageSource.REGISTRY.value)
    architecture = models.CharField(max_length=16, blank=True, help_text="Such as amd64; empty: not known yet")
    accelerators = models.CharField(max_length=64, blank=True, help_text="What it can use, such as cuda")
    size = models.PositiveBigIntegerField("size (bytes)", null=True, blank=True, editable=False)
    enable_hint = models.TextField(blank=True, help_text="How an administrator makes it usable, where it is disabled")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects: ClassVar[ImageQuerySet] = ImageQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ("environment", "version")
        constraints = (
            models.UniqueConstraint(
                fields=("owner", "environment", "version"), name="image_version_unique", nulls_distinct=False
            ),
            models.UniqueConstraint(
                fields=("environment",), condition=Q(is_default=True), name="image_one_default_per_environment"
            ),
        )

    def __str__(self) -> str:
        return f"{self.environment} {self.version}"


class HostImage(models.Model):
    """The fact that the engine of a host has an image, as the host last said."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="images")
    image = models.ForeignKey(Image, on_delete=models.CASCADE, related_name="on_hosts")
    size = models.PositiveBigIntegerField("size (bytes)")
    seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("host", "image")
        constraints = (models.UniqueConstraint(fields=("host", "image"), name="host_image_unique"),)

    def __str__(self) -> str:
        return f"{self.image} on {self.host}"


class BuildState(models.TextChoices):
    """How far the build of an image is."""

    QUEUED = "QUEUED", "queued"
    BUILDING = "BUILDING", "building"
    READY = "READY", "ready"
    FAILED = "FAILED", "failed"


class ImageBuild(models.Model):
    """The build of an image of the catalogue. An image without one comes from a registry, or was entered by hand."""

    image = models.OneToOneField(Image, on_delete=models.CASCADE, primary_key=True, related_name="build")
    state = models.CharField(max_length=8, choices=BuildState.choices, default=BuildState.QUEUED.value)
    is_usable = models.BooleanField(
        "usable", default=False, help_text="Sessions can run it: it was built, perhaps from older inputs"
    )
    position = models.PositiveSmallIntegerField(default=0, help_text="Order in the queue")
    step = models.PositiveSmallIntegerField(default=0, help_text="Of the Dockerfile; 0: the base is being prepared")
    steps = models.PositiveSmallIntegerField(default=0)
    started_at = models.DateTimeField(null=True, blank=True)
    last_duration = models.DurationField(null=True, blank=True, help_text="How long its last whole build took")
    problem = models.TextField(blank=True, help_text="Why it failed, with the last lines of its output")

    class Meta:
        ordering = ("position", "pk")

    def __str__(self) -> str:
        return f"build of {self.image}"


class App(models.Model):
    """An app of an image: how sessions start it, and when it is ready."""

    image = models.ForeignKey(Image, on_delete=models.CASCADE, related_name="apps")
    name = models.CharField(max_length=20, validators=[RegexValidator(DECLARED_NAME)], help_text="Part of its address")
    title = models.CharField(max_length=64)
    icon = models.CharField(max_length=32, blank=True, help_text="One of static/img/icons.svg")
    port = models.PositiveIntegerField(validators=[MinValueValidator(1024), MaxValueValidator(65535)])
    command = models.TextField(blank=True, help_text="What the shell runs; empty: users start it themselves")
    readiness_path = models.CharField(
        max_length=200, default="/", validators=[RegexValidator(APP_PATH)], help_text="It is ready once this answers"
    )
    start_path = models.CharField(
        max_length=200,
        default="/",
        validators=[RegexValidator(APP_PATH)],
        help_text="What is shown first; two apps may be one server's pages",
    )
    token_variable = models.CharField(
        max_length=64,
        blank=True,
        validators=[RegexValidator(VARIABLE_NAME)],
        help_text="Environment variable in which it takes its log-in token, if it has one",
    )
    position = models.PositiveSmallIntegerField(default=0, help_text="Order in the launcher")

    class Meta:
        ordering = ("position", "name")
        constraints = (models.UniqueConstraint(fields=("image", "name"), name="app_name_unique_in_image"),)

    def __str__(self) -> str:
        return self.title
