"""What an hour on a whole GPU of a model counts, in hours of an ordinary one."""

from decimal import Decimal
from typing import Final

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import OuterRef, Q, Subquery
from django.db.models.functions import Cast, Coalesce

from resources.amounts.units import PLAIN_WEIGHT

LEAST, MOST = Decimal("0.01"), Decimal(100)


class GpuWeight(models.Model):
    """The weight of a GPU model, as hosts report it, in fair share and usage; without a row it is 1."""

    model = models.CharField("GPU model", max_length=96, unique=True, help_text="As hosts report it, letter by letter")
    weight = models.DecimalField(
        max_digits=5,
        decimal_places=2,
        validators=[MinValueValidator(LEAST), MaxValueValidator(MOST)],
        help_text="An hour on a whole GPU of this model counts as this many GPU hours in fair share and weighted usage."
        " Other models count 1. Sessions keep the weight with which they were placed. Limits still count GPUs.",
    )

    class Meta:
        verbose_name = "GPU weight"
        ordering = ("model",)
        constraints = (
            models.CheckConstraint(condition=Q(weight__gte=LEAST, weight__lte=MOST), name="gpu_weight_within_bounds"),
        )

    def __str__(self) -> str:
        return f"{self.model}: {self.weight}"


# Of rows of devices: thousandths.
WEIGHT_MILLI: Final = Coalesce(
    Cast(
        Subquery(GpuWeight.objects.filter(model=OuterRef("name")).values("weight")) * PLAIN_WEIGHT,
        models.IntegerField(),
    ),
    PLAIN_WEIGHT,
)
