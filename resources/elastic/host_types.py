"""The types of hosts of a pool: what one has, what an hour of it costs, and how the pool's rows of them are checked."""

from decimal import Decimal
from typing import Any, Final

from django.core.exceptions import ValidationError
from rest_framework import serializers

from accounts.serializers import StrictSerializer
from resources.amounts.fields import SizeField
from resources.elastic.providers import HostShape
from resources.elastic.refusals import refusal_of
from resources.gpus.discovery import ARCHITECTURES

MAX_TYPES: Final = 16  # of a pool: each is tried for each session that waits
COST_MILLI: Final = 1000  # costs are counted in thousandths


class HostTypeSerializer(StrictSerializer, serializers.Serializer[None]):
    """A type of host that the provider can make."""

    name = serializers.RegexField(r"^[a-z0-9][a-z0-9-]{0,31}\Z", help_text="Letters a-z, digits and hyphens")
    cpus = serializers.IntegerField(min_value=1, max_value=1024)
    memory = SizeField(help_text="What the host's worker will report, such as 60g")
    gpu_count = serializers.IntegerField(min_value=0, max_value=64, default=0)
    gpu_kind = serializers.CharField(
        max_length=64, default="", allow_blank=True, help_text="In the provider's words, such as the type of a GRES"
    )
    gpu_model = serializers.CharField(
        max_length=96, default="", allow_blank=True, help_text="As the driver names it; empty: not known"
    )
    gpu_memory = SizeField(default=None, allow_null=True, help_text="Of each GPU; null: not known")
    divides_gpus = serializers.BooleanField(default=True, help_text="Whether sessions may have parts of its GPUs")
    architecture = serializers.ChoiceField(sorted({*ARCHITECTURES.values()}), default="amd64")
    cost_per_hour = serializers.DecimalField(
        max_digits=9, decimal_places=3, min_value=0, default=Decimal(0), help_text="In the currency of the budget"
    )

    def to_internal_value(self, data: Any) -> Any:
        """Return the row as JSON can hold it."""
        row = super().to_internal_value(data)
        return row | {"cost_per_hour": str(row["cost_per_hour"])}


def checked(rows: Any) -> list[dict[str, Any]]:
    """Return the types of hosts as they are stored. Raises ValidationError that says which of them is wrong."""
    if not isinstance(rows, list) or not 1 <= len(rows) <= MAX_TYPES:
        raise ValidationError(f"Name 1 to {MAX_TYPES} types of hosts, as a list.")
    found, problems = [], []
    for number, row in enumerate(rows, 1):
        serializer = HostTypeSerializer(data=row)
        if serializer.is_valid():
            found.append(dict(serializer.validated_data))
        else:
            problems += [f"Type {number}, {text}" for text in refusal_of(serializer.errors).messages]
    if problems:
        raise ValidationError(problems)
    if len({row["name"] for row in found}) < len(found):
        raise ValidationError("Two types of hosts have the same name.")
    return found


def cost_milli(cost: Decimal | str) -> int:
    """Return a cost in thousandths."""
    return int(Decimal(cost) * COST_MILLI)


def shape_of(row: dict[str, Any]) -> HostShape:
    """Return what a provider is asked for where a host is of this stored type."""
    return HostShape(row["cpus"], row["memory"], row["gpu_count"], row["gpu_kind"])
