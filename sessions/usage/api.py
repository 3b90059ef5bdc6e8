"""API of the usage report."""

from datetime import date, timedelta
from typing import Any, ClassVar

from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from restapi.views import ApiView
from sessions.models import visible_to
from sessions.usage.report import DEFAULT_DAYS, MAX_DAYS, ReportBy, UsedAmounts, report_of

FIRST_DAY, LAST_DAY = date(2000, 1, 1), date(2999, 12, 31)


class UsageQuery(serializers.Serializer[Any]):
    """Query parameters of the usage report."""

    since = serializers.DateField(required=False, help_text="First day (UTC); by default 30 days before the last")
    until = serializers.DateField(required=False, help_text="Last day (UTC); by default today")
    by = serializers.ChoiceField(
        choices=[by.value for by in ReportBy], default=ReportBy.USER.value, help_text="What a row stands for"
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the span with its defaults. Raises ValidationError where it is empty or too long."""
        until = attrs.get("until", timezone.now().date())
        if not FIRST_DAY <= until <= LAST_DAY:
            raise serializers.ValidationError({"until": [_("There is no usage of this day.")]})
        since = attrs.get("since", until - timedelta(days=DEFAULT_DAYS - 1))
        if not 0 <= (until - since).days < MAX_DAYS:
            raise serializers.ValidationError({"since": [_("Choose 1 to %(most)s days.") % {"most": MAX_DAYS}]})
        return {"since": since, "until": until, "by": ReportBy(attrs["by"])}


class UsedAmountsSerializer(serializers.Serializer[UsedAmounts]):
    """Hours of what sessions held, and of waiting."""

    gpu_hours = serializers.FloatField(help_text="Of whole GPUs: half a GPU for two hours is one")
    weighted_gpu_hours = serializers.FloatField(
        help_text="Each times the weight of its model; equal where none has any"
    )
    cpu_hours = serializers.FloatField(help_text="Of cores")
    memory_gib_hours = serializers.FloatField()
    waiting_hours = serializers.FloatField(help_text="In the queue")
    gpu_idle_hours = serializers.FloatField(help_text="While a session used less than 1 % of its share")
    gpu_measured_hours = serializers.FloatField(help_text="In which the use of the GPU is known")
    idle_percent = serializers.FloatField(allow_null=True, help_text="Of the measured hours; null without any")


class UsageRowSerializer(serializers.Serializer[Any]):
    """What one user, project or resource group used."""

    name = serializers.CharField(allow_blank=True, help_text="Empty for sessions without a project")
    sessions = serializers.IntegerField()
    used = UsedAmountsSerializer()


class UsageDaySerializer(serializers.Serializer[Any]):
    """What was used on one day."""

    day = serializers.DateField()
    used = UsedAmountsSerializer()


class UsageReportSerializer(serializers.Serializer[Any]):
    """The sessions that the caller may see: who used most first, and what was used on each day."""

    since = serializers.DateField()
    until = serializers.DateField()
    by = serializers.ChoiceField(choices=[by.value for by in ReportBy])
    sessions = serializers.IntegerField()
    total = UsedAmountsSerializer()
    rows = UsageRowSerializer(many=True)
    days = UsageDaySerializer(many=True)


class UsageView(ApiView):
    """The usage report."""

    query_serializers: ClassVar = {"get": UsageQuery}

    @extend_schema(responses=UsageReportSerializer)
    def get(self, request: Request) -> Response:
        """Show what the sessions that the caller may see used and waited for, by day and by user, project or group."""
        report = report_of(visible_to(user_of(request)), **self.query, now=timezone.now())
        days = [{"day": day, "used": used} for day, used in report.days]
        body = {name: getattr(report, name) for name in ("since", "until", "by", "sessions", "total", "rows")}
        return Response(UsageReportSerializer({**body, "days": days}).data)
