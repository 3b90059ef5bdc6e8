"""Serializers of hosts, GPUs, images, presets and groups."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from resources.amounts.fields import FgpuTextField
from resources.amounts.units import CORE_MILLI
from resources.gpus.topology import GpuTopology
from resources.models import App, Gpu, GpuReading, Host, Image, Preset, ResourceGroup
from restapi.fields import ShownSerializer


class ResourceGroupSerializer(ShownSerializer[ResourceGroup]):
    """A group in which the caller may start sessions."""

    class Meta:
        model = ResourceGroup
        fields = (
            *("name", "description", "accelerator", "fgpu_per_gpu", "cpu_overcommit", "sharing"),
            *("deny_private_networks", "cluster_host_network"),
        )


class PresetSerializer(ShownSerializer[Preset]):
    """A named set of resources; `resource_group` is null for one in all groups."""

    resource_group = serializers.CharField(source="group.name", default=None, read_only=True, allow_null=True)
    fgpu = FgpuTextField(read_only=True)

    class Meta:
        model = Preset
        fields = ("name", "resource_group", "cpu", "memory", "shared_memory", "fgpu", "gpu_memory")


class ImageSerializer(ShownSerializer[Image]):
    """A version of an environment: what it needs, what it offers, and where it is."""

    min_fgpu = FgpuTextField(read_only=True)
    private = serializers.SerializerMethodField(help_text="Whether its owner alone may use it")
    apps: serializers.SlugRelatedField[App] = serializers.SlugRelatedField(
        slug_field="name", many=True, read_only=True, help_text="Beside the terminal"
    )
    size = serializers.IntegerField(
        read_only=True, allow_null=True, help_text="Bytes to pull, or taken on a host; null if not known"
    )
    accelerators = serializers.SerializerMethodField(help_text="What it can use, such as cuda")
    on_hosts = serializers.IntegerField(
        source="on_hosts_count", read_only=True, help_text="Hosts of the caller's groups that have it already"
    )

    class Meta:
        model = Image
        fields = (
            *(
                "id",
                "reference",
                "environment",
                "version",
                "description",
                "private",
                "is_enabled",
                "is_default",
                "enable_hint",
            ),
            *("min_cpu", "min_memory", "min_fgpu", "min_gpu_memory"),
            *("apps", "architecture", "accelerators", "size", "on_hosts"),
        )

    def get_private(self, image: Image) -> bool:
        """Return whether the image has an owner."""
        return image.owner_id is not None

    def get_accelerators(self, image: Image) -> list[str]:
        """Return the accelerators as a list."""
        return image.accelerators.replace(",", " ").split()


class GpuReadingSerializer(ShownSerializer[GpuReading]):
    """What the driver last said of a device as a whole; null where it does not say."""

    class Meta:
        model = GpuReading
        fields = ("at", "utilisation", "memory_used", "temperature", "power")


class GpuSerializer(ShownSerializer[Gpu]):
    """A GPU with the sum of its sessions' shares."""

    capacity = FgpuTextField(source="host.group.gpu_capacity", read_only=True)
    held = FgpuTextField(read_only=True, help_text="fGPU that sessions hold now")
    sharing = serializers.CharField(
        source="host.group.sharing",
        read_only=True,
        help_text="cap or burst: whether idle GPU time may be used by others",
    )
    reading = GpuReadingSerializer(read_only=True, default=None, allow_null=True)

    class Meta:
        model = Gpu
        fields = (
            *("uuid", "kind", "name", "index", "memory", "is_simulated", "tier", "sharing", "capacity", "held"),
            "reading",
        )


class GpuTopologySerializer(serializers.Serializer[dict[str, Any]]):
    """How the GPUs of a host are connected, by pairs; empty lists where the driver does not say."""

    indexes = serializers.ListField(child=serializers.IntegerField(), help_text="Of the GPUs, in the order of the rows")
    links = serializers.ListField(
        child=serializers.ListField(child=serializers.CharField()),
        help_text="As nvidia-smi topo -m writes it: NV4 is four NVLinks, PIX one PCIe bridge, NODE one NUMA node, SYS "
        "two, X the GPU itself, ? not known",
    )
    numa_nodes = serializers.ListField(
        child=serializers.IntegerField(allow_null=True), help_text="The nearest to each GPU; null if not known"
    )


class HostSerializer(ShownSerializer[Host]):
    """A host with its GPUs, and the sums of its sessions' resources."""

    resource_group = serializers.CharField(source="group.name", read_only=True)
    cpu_held = serializers.SerializerMethodField(help_text="CPU cores guaranteed to its sessions now, rounded up")
    cpu_held_milli = serializers.IntegerField(read_only=True, help_text="The same, in thousandths of a core")
    memory_held = serializers.IntegerField(read_only=True, help_text="Bytes that sessions hold now")
    gpus = GpuSerializer(many=True, read_only=True)
    faulty_since = serializers.DateTimeField(
        source="health.faulty_since",
        default=None,
        read_only=True,
        allow_null=True,
        help_text="When the platform cordoned it because it failed to start sessions; null: it did not",
    )
    probe_at = serializers.DateTimeField(
        source="health.probe_at", default=None, read_only=True, allow_null=True, help_text="When it is then probed next"
    )

    gpu_topology = serializers.SerializerMethodField()

    class Meta:
        model = Host
        fields = (
            *("name", "status", "is_cordoned", "cordon_reason", "drain_by", "resource_group", "topology"),
            *("faulty_since", "probe_at"),
            *("cpu", "cpu_held", "cpu_held_milli", "memory", "memory_held", "gpus", "gpu_topology"),
        )

    def get_cpu_held(self, host: Any) -> int:
        """Return the cores held, by the annotation of the view."""
        return -(-int(host.cpu_held_milli) // CORE_MILLI)

    @extend_schema_field(GpuTopologySerializer)
    def get_gpu_topology(self, host: Host) -> dict[str, Any]:
        """Return the connections of its GPUs."""
        found = GpuTopology.from_json(host.gpu_topology)
        return {"indexes": found.indexes, "links": found.links, "numa_nodes": found.numa_nodes}
