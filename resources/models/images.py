"""Images, their apps, and the registries that they come from."""

from typing import ClassVar, Final

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext

from accounts.models import User
from resources.amounts.units import MIB

APP_NAME: Final = "[a-z0-9]{1,20}"  # part of a host name; `p` and a number is reserved for ports that users open
DECLARED_NAME: Final = f"^(?!p[0-9]+$){APP_NAME}$"
APP_PATH: Final = r"^/(?![/\\])[!-~]*$"  # on the app's origin: no host, no control characters
VARIABLE_NAME: Final = "^[A-Za-z_][A-Za-z0-9_]*$"


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
    allows_http = models.BooleanField(
        "without TLS",
        default=False,
        help_text="It is asked over plain HTTP; hosts need it among the insecure-registries of their engine",
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
        """Return the enabled images that `user` may launch: everybody's, and private ones of their own.

        Those that the user named without an administrator count as long as the policy allows it.
        """
        usable = self.filter(Q(owner=None) | Q(owner=user), is_enabled=True)
        return usable.exclude(source=ImageSource.UNLISTED.value, owner__policy__allow_unlisted_images=False)

    def visible_to(self, user: User) -> "ImageQuerySet":
        """Return the images that `user` may know of: those that they may launch, all of them for a superadmin."""
        return self.filter(removed_at=None) if user.is_superuser else self.usable_by(user)


class ImageSource(models.TextChoices):
    """Where an image comes from."""

    CATALOG = "catalog", "built from the catalogue"
    REGISTRY = "registry", "pulled from a registry"
    SESSION = "session", "made from a session"
    UNLISTED = "unlisted", "named by a user"


class Image(models.Model):
    """A container image that sessions may run: one version of an environment."""

    environment = models.CharField(max_length=64, help_text="What users pick first, such as PyTorch")
    version = models.CharField(max_length=64, help_text="What users pick next, such as 2.5")
    reference = models.CharField(max_length=255, help_text="repository:tag as the engine knows it")
    description = models.CharField(max_length=200, blank=True)
    is_enabled = models.BooleanField("enabled", default=True)
    is_default = models.BooleanField("default", default=False, help_text="Offered first among its environment's")
    min_cpu = models.PositiveIntegerField("least CPU cores", default=1)
    min_memory = models.PositiveBigIntegerField("least memory (bytes)", default=64 * MIB)
    min_fgpu = models.PositiveIntegerField("least milli-fGPU", default=0)
    min_gpu_memory = models.PositiveBigIntegerField(
        "least GPU memory (bytes)", default=0, help_text="That a session gets on one GPU; 0: any"
    )
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
    is_local = models.BooleanField(
        "only on hosts that have it", default=False, help_text="No registry has it, so its sessions run where it is"
    )
    registry_digest = models.CharField(
        max_length=80, blank=True, editable=False, help_text="Of its manifest, where the platform pushed it"
    )
    removed_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When it was deleted; ended sessions still refer to it"
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects: ClassVar[ImageQuerySet] = ImageQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ("environment", "version")
        constraints = (
            models.UniqueConstraint(
                fields=("owner", "environment", "version"), name="image_version_unique", nulls_distinct=False
            ),
            # Several users may name the same image of a registry; every other reference has one row.
            models.UniqueConstraint(
                fields=("reference",),
                condition=~Q(source=ImageSource.UNLISTED.value),
                name="image_reference_unique",
            ),
            models.UniqueConstraint(fields=("owner", "reference"), name="image_reference_unique_of_owner"),
            models.CheckConstraint(
                condition=~Q(source=ImageSource.UNLISTED.value) | Q(owner__isnull=False),
                name="image_unlisted_is_private",
            ),
            models.UniqueConstraint(
                fields=("environment",), condition=Q(is_default=True), name="image_one_default_per_environment"
            ),
        )

    def __str__(self) -> str:
        return f"{self.environment} {self.version}"

    def clean(self) -> None:
        """Raise ValidationError at the reference where another image has it; the constraint names no field."""
        others = Image.objects.exclude(pk=self.pk).exclude(source=ImageSource.UNLISTED.value)
        if self.source != ImageSource.UNLISTED and others.filter(reference=self.reference).exists():
            raise ValidationError({"reference": gettext("Image with this reference already exists.")})


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
    hint = models.CharField(max_length=100, blank=True, help_text="What users read below its title")
    warm_up = models.BooleanField(
        default=False, help_text="Its program starts with the session, so that the app opens at once"
    )
    position = models.PositiveSmallIntegerField(default=0, help_text="Order in the launcher")

    class Meta:
        ordering = ("position", "name")
        constraints = (models.UniqueConstraint(fields=("image", "name"), name="app_name_unique_in_image"),)

    def __str__(self) -> str:
        return self.title

    def clean(self) -> None:
        """Give the command the line ends of a shell: browsers send those of forms as CR LF."""
        self.command = self.command.replace("\r\n", "\n")
