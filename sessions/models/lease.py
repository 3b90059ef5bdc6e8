"""What sessions hold of their hosts: CPU cores, memory and shares of GPUs."""

from django.db import models
from django.db.models import F, Q, Sum

from resources.amounts.units import CORE_MILLI
from resources.models import Gpu, Host


def cpu_held() -> Sum:
    """Return the sum of the CPU that leases take, in thousandths of a core."""
    return Sum(F("cpu") * F("core_milli"), default=0)


class Lease(models.Model):
    """The stored fact that a session holds CPU and memory of a host; GPU shares hang on it.

    Of the host's CPU it takes what is guaranteed: `core_milli` thousandths for each of its cores (ADR 70).
    Database triggers refuse leases beyond what the host has, a live hosted session without one, and one without its
    session and host; foreign keys would be checked row by row (`migrations/0003_grant_guard.py`).
    """

    session = models.OneToOneField(
        "compute.Session", on_delete=models.CASCADE, primary_key=True, related_name="lease", db_constraint=False
    )
    host = models.ForeignKey(Host, on_delete=models.PROTECT, related_name="leases", db_constraint=False)
    cpu = models.PositiveIntegerField("CPU cores")
    core_milli = models.PositiveSmallIntegerField(
        "guaranteed of each core (thousandths)", default=CORE_MILLI, db_default=CORE_MILLI
    )
    memory = models.PositiveBigIntegerField("memory (bytes)")

    class Meta:
        constraints = (
            models.CheckConstraint(condition=Q(core_milli__gte=1, core_milli__lte=1000), name="lease_guarantees_cpu"),
        )

    def __str__(self) -> str:
        return f"{self.session_id} on {self.host_id}"


class GpuShare(models.Model):
    """The part of one device that a lease holds; a database trigger refuses shares beyond the device."""

    lease = models.ForeignKey(
        Lease, on_delete=models.CASCADE, related_name="shares", db_index=False, db_constraint=False
    )
    gpu = models.ForeignKey(Gpu, on_delete=models.PROTECT, related_name="shares", db_constraint=False)
    milli = models.PositiveIntegerField("milli-fGPU")

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("lease", "gpu"), name="share_one_per_device"),
            models.CheckConstraint(condition=Q(milli__gt=0), name="share_is_not_empty"),
        )
        verbose_name = "GPU share"

    def __str__(self) -> str:
        return f"{self.milli} of {self.gpu_id}"
