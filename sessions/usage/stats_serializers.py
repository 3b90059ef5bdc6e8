"""Serializers of what a session uses."""

from typing import Any

from rest_framework import serializers

from resources.amounts.fields import SpanField
from sessions.usage.stats import StatsWindow


class StatsPointSerializer(serializers.Serializer[Any]):
    """What the session used around a moment; null is what could not be measured."""

    at = serializers.DateTimeField()
    cpu_milli = serializers.IntegerField(allow_null=True, help_text="Mean use of CPU, in thousandths of a core")
    memory = serializers.IntegerField(allow_null=True, help_text="Most bytes held, without page cache")
    received = serializers.IntegerField(allow_null=True, help_text="Mean bytes per second from the network")
    sent = serializers.IntegerField(allow_null=True, help_text="Mean bytes per second to the network")
    gpu_memory = serializers.IntegerField(allow_null=True, help_text="Most bytes held of its GPUs' memory")
    gpu_utilisation = serializers.IntegerField(
        allow_null=True, help_text="Mean percent of its GPUs' time; null if it cannot be measured per session"
    )
    gpu_share_utilisation = serializers.IntegerField(allow_null=True, help_text="The same, in percent of its share")


class StatsSerializer(serializers.Serializer[Any]):
    """What a session uses, oldest first, and what it may use; no points if nothing was recorded."""

    window = serializers.ChoiceField(choices=[window.value for window in StatsWindow])
    step = SpanField(help_text="Seconds that a point stands for")
    cpu_milli = serializers.IntegerField(help_text="Thousandths of a core that it may use")
    memory = serializers.IntegerField(help_text="Bytes that it may use")
    gpu_memory_share = serializers.IntegerField(allow_null=True, help_text="Bytes that it may use; null without a GPU")
    gpu_memory_cards = serializers.IntegerField(allow_null=True, help_text="Bytes that its GPUs have in all")
    points = StatsPointSerializer(many=True)


class StatsQuery(serializers.Serializer[Any]):
    """Query parameters of the statistics."""

    window = serializers.ChoiceField(
        choices=[window.value for window in StatsWindow],
        required=False,
        help_text="The last hour or the whole life; if left out, the hour while it runs, and the life afterwards",
    )
