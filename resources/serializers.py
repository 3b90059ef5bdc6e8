"""What the API says about machines, images and groups; amounts as people write them."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from resources.models import Gpu, Host, Image, Preset, ResourceGroup
from resources.units import bytes_from, fgpu_text, milli_fgpu_from, span_from

MAX_INTEGER = 2**31 - 1  # of a PostgreSQL integer
MAX_BIG_INTEGER = 2**63 - 1
MAX_EXPONENT = 30


class _AmountField(serializers.Field[int, Any, Any, Any]):
    """An amount written as text or as a number; an integer of `limit` at most inside."""

    limit = MAX_INTEGER
    digits = 6  # of the whole part, as far as `read` goes
    read: Callable[[str], int]

    def to_internal_value(self, data: Any) -> int:
        """Return the integer; raises ValidationError with the sentence of `resources.units`."""
        if isinstance(data, bool) or not isinstance(data, int | Decimal | str):
            raise serializers.ValidationError("Write a number, or a text with one.")
        text = _plain(data) if isinstance(data, Decimal) else str(data).strip()
        if len(text) - len(text.lstrip("0123456789")) > self.digits:
            raise serializers.ValidationError("This is more than any host has.")
        try:
            value = type(self).read(text)
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from error
        if value > self.limit:
            raise serializers.ValidationError("This is more than any host has.")
        return value


def _plain(number: Decimal) -> str:
    """Return the number without an exponent, unless that would be absurdly long."""
    return f"{number:f}" if abs(number.adjusted()) < MAX_EXPONENT else str(number)


@extend_schema_field({"oneOf": [{"type": "integer"}, {"type": "string", "example": "4g"}]})
class SizeField(_AmountField):
    """Bytes, or a text such as "4g"; shown in bytes."""

    limit = MAX_BIG_INTEGER
    digits = 19
    read = staticmethod(bytes_from)

    def to_representation(self, value: int) -> int:
        """Return the bytes."""
        return value


@extend_schema_field({"oneOf": [{"type": "string", "example": "0.5"}, {"type": "number"}]})
class FgpuField(_AmountField):
    """fGPU in steps of 0.01, as text or number; shown as a decimal text. Milli-fGPU inside."""

    read = staticmethod(milli_fgpu_from)

    def to_representation(self, value: int) -> str:
        """Return the decimal text."""
        return fgpu_text(value)


@extend_schema_field({"oneOf": [{"type": "integer"}, {"type": "string", "example": "4h"}]})
class SpanField(serializers.Field[timedelta, Any, Any, Any]):
    """Seconds, or a text such as "90m", "4h" or "2d"; shown in seconds."""

    def to_internal_value(self, data: Any) -> timedelta:
        """Return the span; raises ValidationError with the sentence of `resources.units`."""
        if isinstance(data, bool) or not isinstance(data, int | str):
            raise serializers.ValidationError('Write seconds, or a text such as "4h".')
        if isinstance(data, int):
            return timedelta(seconds=max(-MAX_INTEGER, min(data, MAX_INTEGER)))
        try:
            return span_from(data)
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from error

    def to_representation(self, value: timedelta) -> int:
        """Return whole seconds."""
        return int(value.total_seconds())


@extend_schema_field({"type": "string", "example": "0.5"})
class FgpuTextField(FgpuField):
    """fGPU that is only shown."""


class ResourceGroupSerializer(serializers.ModelSerializer[ResourceGroup]):
    """A group in which the caller may start sessions."""

    class Meta:
        model = ResourceGroup
        fields = ("name", "description", "fgpu_per_gpu")
        read_only_fields = fields


class PresetSerializer(serializers.ModelSerializer[Preset]):
    """A named set of resources; `resource_group` is null where it is offered in all groups."""

    resource_group = serializers.CharField(source="group.name", default=None, read_only=True, allow_null=True)
    fgpu = FgpuTextField(read_only=True)

    class Meta:
        model = Preset
        fields = ("name", "resource_group", "cpu", "memory", "shared_memory", "fgpu")
        read_only_fields = fields


class ImageSerializer(serializers.ModelSerializer[Image]):
    """A version of an environment, with the least resources that it needs."""

    min_fgpu = FgpuTextField(read_only=True)

    class Meta:
        model = Image
        fields = (
            *("reference", "environment", "version", "description", "is_enabled"),
            *("min_cpu", "min_memory", "min_fgpu"),
        )
        read_only_fields = fields


class GpuSerializer(serializers.ModelSerializer[Gpu]):
    """A device with what its sessions hold of it together."""

    capacity = FgpuTextField(source="host.group.gpu_capacity", read_only=True)
    held = FgpuTextField(read_only=True, help_text="fGPU that sessions hold now")

    class Meta:
        model = Gpu
        fields = ("uuid", "name", "index", "memory", "is_simulated", "tier", "capacity", "held")
        read_only_fields = fields


class HostSerializer(serializers.ModelSerializer[Host]):
    """A host with its devices, and the sums that its sessions hold."""

    resource_group = serializers.CharField(source="group.name", read_only=True)
    cpu_held = serializers.IntegerField(read_only=True, help_text="CPU cores that sessions hold now")
    memory_held = serializers.IntegerField(read_only=True, help_text="Bytes that sessions hold now")
    gpus = GpuSerializer(many=True, read_only=True)

    class Meta:
        model = Host
        fields = ("name", "status", "is_cordoned", "resource_group", "cpu", "cpu_held", "memory", "memory_held", "gpus")
        read_only_fields = fields
