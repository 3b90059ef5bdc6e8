"""Serializers of limits, and of what is used and left of them."""

from typing import Any

from rest_framework import serializers

from resources.fields import FgpuTextField


class LimitsQuery(serializers.Serializer[Any]):
    """Query parameters of the limits."""

    resource_group = serializers.CharField(required=False, max_length=64)


class AmountsSerializer(serializers.Serializer[Any]):
    """Amounts of resources; null is unlimited."""

    cpu = serializers.IntegerField(allow_null=True)
    memory = serializers.IntegerField(allow_null=True, help_text="Bytes")
    fgpu = FgpuTextField(allow_null=True)


class UserAmountsSerializer(AmountsSerializer):
    """Amounts of one user's sessions together."""

    sessions = serializers.IntegerField(allow_null=True, help_text="Sessions that hold resources")
    pending = serializers.IntegerField(allow_null=True, help_text="Sessions that wait")


class LimitsSerializer(serializers.Serializer[Any]):
    """Limits, usage and the rest for the caller; and the largest session of a resource group."""

    limits = UserAmountsSerializer()
    used = UserAmountsSerializer()
    remaining = UserAmountsSerializer()
    resource_group = serializers.CharField(allow_null=True)
    per_session = AmountsSerializer(allow_null=True, help_text="Largest amount of each on a host of the group")
