"""API of elastic pools, by which hosts are made for resource groups, and of the hosts that were."""

from collections.abc import Mapping
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from resources.admin_api.base import ReadRecords, RecordViewSet, SearchQuery
from resources.admin_api.serializers import RecordSerializer
from resources.elastic.host_types import HostTypeSerializer
from resources.elastic.kinds import KINDS
from resources.forms import ElasticPoolForm
from resources.hosts.elastic_pools import PoolEventKind, events_of
from resources.models import ElasticHost, ElasticPool, ElasticState, ResourceGroup
from restapi.fields import RowNameField, ShownSerializer


class ElasticPoolSerializer(RecordSerializer[ElasticPool]):
    """Makes a resource group elastic: which hosts are made for it, by what, and within which budget."""

    resource_group = RowNameField(source="group", slug_field="name", queryset=ResourceGroup.objects.all())
    provider = serializers.ChoiceField(sorted(KINDS))
    configuration = serializers.DictField(required=False, help_text="Of the provider; its kind says what belongs there")
    host_types = HostTypeSerializer(many=True, allow_empty=False, help_text="What the provider can make")

    class Meta:
        model = ElasticPool
        read_only_fields = ("failures", "problem", "retry_at", "silent_since", "silence")
        fields = ("id", "resource_group", *ElasticPoolForm.Meta.fields[1:], *read_only_fields)


class ElasticPoolQuery(SearchQuery):
    """Which pools to list."""

    resource_group = serializers.CharField(max_length=64, required=False)


class PoolEventSerializer(serializers.Serializer[Any]):
    """Something that has happened to a host of a pool."""

    at = serializers.DateTimeField()
    event = serializers.ChoiceField(PoolEventKind.choices)
    host = serializers.CharField(help_text="Name of the host")
    reason = serializers.CharField(help_text="Why it was given back or up")


class ElasticPoolViewSet(RecordViewSet[ElasticPool]):
    """Elastic pools. One that has hosts, or had some of late, is disabled instead of deleted."""

    queryset = ElasticPool.objects.select_related("group").order_by("group__name")
    serializer_class = ElasticPoolSerializer
    form_class = ElasticPoolForm
    is_scheduled = True
    search_fields = ("group__name",)
    query_serializers: ClassVar[Mapping[str, Any]] = {"list": ElasticPoolQuery}
    filters: ClassVar = {"resource_group": "group__name"}

    @extend_schema(responses=PoolEventSerializer(many=True))
    @action(detail=True, pagination_class=None)
    def events(self, request: Request, pk: str) -> Response:
        """List what has happened to its hosts, the latest first, at most 100."""
        return Response(PoolEventSerializer(events_of(self.get_object()), many=True).data)


class ElasticHostSerializer(ShownSerializer[ElasticHost]):
    """A host that was asked for: what became of it, and why."""

    resource_group = serializers.CharField(source="pool.group.name", read_only=True)
    type = serializers.CharField(source="type_name", read_only=True, help_text="Name of its type in the pool")

    class Meta:
        model = ElasticHost
        fields = (
            *("id", "name", "resource_group", "type", "state", "reason", "has_failed", "identifier", "cost_per_hour"),
            *("created_at", "state_at", "expected_at", "joined_at", "idle_since", "ends_at", "ended_at"),
        )


class ElasticHostQuery(SearchQuery):
    """Which hosts to list."""

    state = serializers.ChoiceField(ElasticState.choices, required=False)
    resource_group = serializers.CharField(max_length=64, required=False)


class ElasticHostViewSet(ReadRecords[ElasticHost]):
    """Hosts that were asked for, the latest first."""

    queryset = ElasticHost.objects.select_related("pool__group").order_by("-created_at", "-pk")
    serializer_class = ElasticHostSerializer
    query_serializers: ClassVar[Mapping[str, Any]] = {"list": ElasticHostQuery}
    filters: ClassVar = {"state": "state", "resource_group": "pool__group__name"}
