"""Serializers of hosts, GPUs, images, presets and groups."""

from rest_framework import serializers

from resources.fields import FgpuTextField
from resources.models import Gpu, Host, Image, Preset, ResourceGroup


class ResourceGroupSerializer(serializers.ModelSerializer[ResourceGroup]):
    """A group in which the caller may start sessions."""

    class Meta:
        model = ResourceGroup
        fields = ("name", "description", "fgpu_per_gpu")
        read_only_fields = fields


class PresetSerializer(serializers.ModelSerializer[Preset]):
    """A named set of resources; `resource_group` is null for one in all groups."""

    resource_group = serializers.CharField(source="group.name", default=None, read_only=True, allow_null=True)
    fgpu = FgpuTextField(read_only=True)

    class Meta:
        model = Preset
        fields = ("name", "resource_group", "cpu", "memory", "shared_memory", "fgpu")
        read_only_fields = fields


class ImageSerializer(serializers.ModelSerializer[Image]):
    """A version of an environment, with its minimum resources."""

    min_fgpu = FgpuTextField(read_only=True)

    class Meta:
        model = Image
        fields = (
            *("reference", "environment", "version", "description", "is_enabled"),
            *("min_cpu", "min_memory", "min_fgpu"),
        )
        read_only_fields = fields


class GpuSerializer(serializers.ModelSerializer[Gpu]):
    """A GPU with the sum of its sessions' shares."""

    capacity = FgpuTextField(source="host.group.gpu_capacity", read_only=True)
    held = FgpuTextField(read_only=True, help_text="fGPU that sessions hold now")

    class Meta:
        model = Gpu
        fields = ("uuid", "name", "index", "memory", "is_simulated", "tier", "capacity", "held")
        read_only_fields = fields


class HostSerializer(serializers.ModelSerializer[Host]):
    """A host with its GPUs, and the sums of its sessions' resources."""

    resource_group = serializers.CharField(source="group.name", read_only=True)
    cpu_held = serializers.IntegerField(read_only=True, help_text="CPU cores that sessions hold now")
    memory_held = serializers.IntegerField(read_only=True, help_text="Bytes that sessions hold now")
    gpus = GpuSerializer(many=True, read_only=True)

    class Meta:
        model = Host
        fields = ("name", "status", "is_cordoned", "resource_group", "cpu", "cpu_held", "memory", "memory_held", "gpus")
        read_only_fields = fields
