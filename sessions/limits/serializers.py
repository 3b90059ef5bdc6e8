"""Serializers of limits, and of what is used and left of them."""

from typing import Any

from rest_framework import serializers

from resources.amounts.fields import FgpuTextField


class LimitsQuery(serializers.Serializer[Any]):
    """Query parameters of the limits."""

    resource_group = serializers.CharField(required=False, max_length=64)
    project = serializers.CharField(required=False, max_length=64, help_text="One of the caller's projects")


class AmountsSerializer(serializers.Serializer[Any]):
    """Amounts of resources; null is unlimited."""

    cpu = serializers.IntegerField(allow_null=True)
    memory = serializers.IntegerField(allow_null=True, help_text="Bytes")
    fgpu = FgpuTextField(allow_null=True)


class UserAmountsSerializer(AmountsSerializer):
    """Amounts of one user's sessions together."""

    sessions = serializers.IntegerField(allow_null=True, help_text="Sessions that hold resources")
    pending = serializers.IntegerField(allow_null=True, help_text="Sessions that wait")


class ProjectLimitsSerializer(serializers.Serializer[Any]):
    """Limits and usage of the sessions of a project together."""

    limits = UserAmountsSerializer()
    used = UserAmountsSerializer()


class LimitsSerializer(serializers.Serializer[Any]):
    """Limits, usage and the rest for the caller; and the largest session of a resource group."""

    limits = UserAmountsSerializer()
    used = UserAmountsSerializer()
    remaining = UserAmountsSerializer(help_text="For the project, the least that the two policies leave")
    max_per_launch = serializers.IntegerField(allow_null=True, help_text="Sessions that one launch may start")
    max_cluster_size = serializers.IntegerField(help_text="Members of a session that is a cluster; 1: no clusters")
    max_array_tasks = serializers.IntegerField(help_text="Tasks that an array may have")
    max_priority = serializers.IntegerField(help_text="Highest priority of a session")
    project = ProjectLimitsSerializer(allow_null=True, help_text="Of the project that was named")
    resource_group = serializers.CharField(allow_null=True)
    per_session = AmountsSerializer(allow_null=True, help_text="Largest amount of each on a host of the group")
