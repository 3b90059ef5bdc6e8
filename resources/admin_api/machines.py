"""API of resource groups, hosts and presets."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.db.models import Prefetch, QuerySet
from django.utils.functional import cached_property
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.models import Project, User
from resources.admin_api.base import ChangeRecords, DeleteRecords, RecordViewSet, SearchQuery
from resources.admin_api.serializers import RecordSerializer
from resources.forms import GpuWeightForm, HostForm, PresetForm, ResourceGroupForm
from resources.hosts import bounds, group_changes, measurements
from resources.hosts.gpu_kinds import reported_models, unreported_hint
from resources.models import (
    FIGURES,
    Gpu,
    GpuMeasurement,
    GpuWeight,
    Host,
    HostHealth,
    HostStatus,
    Preset,
    ResourceGroup,
)
from restapi.fields import RowNameField, ShownSerializer


class GroupRecordSerializer(RecordSerializer[ResourceGroup]):
    """A pool of hosts: who may use it, and how it serves those who wait."""

    users = RowNameField[User](
        slug_field="email", many=True, required=False, queryset=User.objects.all(), help_text="To whom it is granted"
    )
    projects = RowNameField[Project](
        slug_field="name", many=True, required=False, queryset=Project.objects.all(), help_text="To which it is granted"
    )

    class Meta:
        model = ResourceGroup
        fields: tuple[str, ...] = ("id", *ResourceGroupForm.Meta.fields)


class ChangedGroupSerializer(GroupRecordSerializer):
    """A group that was changed, and what that means for the sessions that wait there."""

    consequences = serializers.ListField(child=serializers.CharField(), read_only=True)
    reservations = serializers.CharField(
        read_only=True, help_text="Why no start can be reserved in it; empty: every session has a latest end"
    )

    class Meta(GroupRecordSerializer.Meta):
        fields = (*GroupRecordSerializer.Meta.fields, "consequences", "reservations")


class GroupRecordViewSet(RecordViewSet[ResourceGroup]):
    """Resource groups."""

    queryset = ResourceGroup.objects.prefetch_related("users", "projects").order_by("name")
    serializer_class = GroupRecordSerializer
    form_class = ResourceGroupForm
    is_scheduled = True
    search_fields = ("name", "description")

    @extend_schema(responses=ChangedGroupSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change the fields of the body; the response says what that means for the sessions that wait there."""
        group, form = self.save(request, pk)
        consequences = list(group_changes.consequences(group, form.changed_data))
        more = {"consequences": consequences, "reservations": bounds.of_group(group) or ""}
        return Response({**self.shown(group).data, **more})


class GpuMeasurementSerializer(ShownSerializer[GpuMeasurement]):
    """What the hardware protocol last found on a GPU; null: that was not measured."""

    is_outdated = serializers.BooleanField(read_only=True, help_text="Whether its host has another driver since")

    class Meta:
        model = GpuMeasurement
        fields = (
            *("measured_at", "reported_by", "is_simulated", "driver", "cuda", "version", "hook", "failed", "skipped"),
            *("memory_exact", *FIGURES, "is_outdated"),
        )


class HostGpuSerializer(ShownSerializer[Gpu]):
    """A GPU of a host, as the host reported it."""

    measurement = GpuMeasurementSerializer(
        read_only=True, allow_null=True, default=None, help_text="By `doctor --gpu`; null: never measured"
    )

    class Meta:
        model = Gpu
        fields = (
            *("uuid", "index", "kind", "name", "memory", "is_simulated", "tier", "is_present", "problem"),
            "measurement",
        )


class HostHealthSerializer(ShownSerializer[HostHealth]):
    """Starts in a row that failed by the fault of a host, and when it is probed."""

    class Meta:
        model = HostHealth
        fields = ("failures", "gpu_failures", "problem", "faulty_since", "probe_at")


class HostRecordSerializer(RecordSerializer[Host]):
    """A GPU server: which group it serves, whether it takes new sessions, and what it reported."""

    resource_group = RowNameField(
        source="group", slug_field="name", queryset=ResourceGroup.objects.all(), required=False
    )
    gpus = HostGpuSerializer(many=True, read_only=True)
    health = HostHealthSerializer(read_only=True, allow_null=True, default=None, help_text="null: no start has failed")
    measured = serializers.SerializerMethodField(help_text="What `doctor --gpu` found on its GPUs, in words")

    class Meta:
        model = Host
        fields = (
            *("id", "name", "resource_group", "topology", "is_cordoned", "cordon_reason", "status", "drain_by", "cpu"),
            *(
                "memory",
                "architecture",
                "gpu_driver",
                "gateway_url",
                "heartbeat_at",
                "lost_at",
                "health",
                "measured",
                "gpus",
            ),
        )
        read_only_fields = tuple({*fields} - {"resource_group", "topology", "is_cordoned", "cordon_reason"})

    def get_measured(self, host: Host) -> list[str]:
        """Return the sentences that the administration shows."""
        return measurements.of_gpus(host.gpus.all())


class HostRecordQuery(SearchQuery):
    """Which hosts to list."""

    status = serializers.ChoiceField(HostStatus.choices, required=False)
    is_cordoned = serializers.BooleanField(required=False)
    resource_group = serializers.CharField(max_length=64, required=False)


class HostRecordViewSet(ChangeRecords[Host], DeleteRecords[Host]):
    """Hosts, which register themselves; `/hosts/<name>/drain/` takes one out of service with notice."""

    queryset = Host.objects.all()
    serializer_class = HostRecordSerializer
    form_class = HostForm
    is_scheduled = True
    query_serializers: ClassVar = {"list": HostRecordQuery}
    filters: ClassVar = {"status": "status", "is_cordoned": "is_cordoned", "resource_group": "group__name"}

    def get_queryset(self) -> QuerySet[Host]:
        """Return all hosts with their GPUs; two queries for any number."""
        gpus = Prefetch("gpus", Gpu.objects.select_related("measurement").order_by("index"))
        return super().get_queryset().select_related("group", "health").prefetch_related(gpus).order_by("name")


class PresetRecordSerializer(RecordSerializer[Preset]):
    """A named set of resources; without a resource group it is offered in all of them."""

    resource_group = RowNameField(
        source="group", slug_field="name", queryset=ResourceGroup.objects.all(), required=False, allow_null=True
    )

    class Meta:
        model = Preset
        fields = ("id", "name", "resource_group", "cpu", "memory", "shared_memory", "fgpu", "gpu_memory")


class PresetRecordQuery(SearchQuery):
    """Which presets to list."""

    resource_group = serializers.CharField(max_length=64, required=False)


class PresetRecordViewSet(RecordViewSet[Preset]):
    """Presets."""

    queryset = Preset.objects.select_related("group").order_by("fgpu", "cpu", "name", "id")
    serializer_class = PresetRecordSerializer
    form_class = PresetForm
    query_serializers: ClassVar[Mapping[str, Any]] = {"list": PresetRecordQuery}
    filters: ClassVar = {"resource_group": "group__name"}


class GpuWeightSerializer(RecordSerializer[GpuWeight]):
    """What an hour on a whole GPU of a model counts in fair share and weighted usage; models without a row count 1."""

    hint = serializers.SerializerMethodField(help_text="Which models there are, where no host reports this one")

    class Meta:
        model = GpuWeight
        fields = ("id", "model", "weight", "hint")

    @cached_property
    def _reported(self) -> list[str]:
        return reported_models()

    def get_hint(self, row: GpuWeight) -> str:
        """Return what the administration warns of."""
        return unreported_hint(row.model, self._reported)


class GpuWeightViewSet(RecordViewSet[GpuWeight]):
    """Weights of GPU models. Sessions keep the weight with which they were placed."""

    queryset = GpuWeight.objects.order_by("model")
    serializer_class = GpuWeightSerializer
    form_class = GpuWeightForm
    is_scheduled = True
    search_fields = ("model",)
