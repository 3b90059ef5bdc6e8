"""What the hardware protocol of fGPU last found on a GPU."""

from typing import Final

from django.db import models
from django.db.models import Q

from resources.models.machines import Gpu

FIGURES: Final = (  # as the report has them; null: not measured
    "share_error_points",
    "idle_used_percent",
    "handback_ms",
    "launch_added_ns",
    "torch_training_percent",
    "jax_training_percent",
)
MOST: Final = 1_000_000.0  # no figure is beyond it, in either direction; NaN is, to PostgreSQL


def _bounded(name: str) -> Q:
    return Q((f"{name}__isnull", True)) | Q((f"{name}__gte", -MOST), (f"{name}__lte", MOST))


class GpuMeasurement(models.Model):
    """Its figures, as the host reported them: columns of the report (fgpu/hardware/report.schema.json)."""

    gpu = models.OneToOneField(Gpu, on_delete=models.CASCADE, primary_key=True, related_name="measurement")
    measured_at = models.DateTimeField()
    reported_by = models.CharField(max_length=254, help_text="The operating system's user and host")
    is_simulated = models.BooleanField("simulated", default=False)
    driver = models.CharField(max_length=64)
    cuda = models.CharField("CUDA", max_length=16)
    version = models.CharField(max_length=64, blank=True, help_text="Of the platform: a commit or a package")
    hook = models.CharField(max_length=64, help_text="SHA-256 of the library")
    failed = models.CharField("failed steps", max_length=200, blank=True)
    skipped = models.CharField("steps left out", max_length=200, blank=True)
    memory_exact = models.BooleanField("memory held exactly", null=True)
    share_error_points = models.FloatField("largest error of shares (points)", null=True)
    idle_used_percent = models.FloatField("idle time used (%)", null=True)
    handback_ms = models.FloatField("until an owner has its share back (ms)", null=True)
    launch_added_ns = models.FloatField("time added to a launch (ns)", null=True)
    torch_training_percent = models.FloatField("PyTorch training at 25 % (% of the GPU)", null=True)
    jax_training_percent = models.FloatField("JAX training at 25 % (% of the GPU)", null=True)

    class Meta:
        verbose_name = "GPU measurement"
        constraints = tuple(
            models.CheckConstraint(condition=_bounded(name), name=f"measurement_bounds_{name}") for name in FIGURES
        )

    def __str__(self) -> str:
        return f"{self.gpu_id} at {self.measured_at}"

    @property
    def is_outdated(self) -> bool:
        """Whether the driver of its host is another one since."""
        now = self.gpu.host.gpu_driver
        return bool(now) and now != self.driver
