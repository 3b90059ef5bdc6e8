"""API of the configuration as a text, for superadmins."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import ForSuperadmins, user_of
from accounts.serializers import StrictSerializer
from operations.configuration import services as configuration
from operations.configuration.services import MAX_BYTES, ConfigurationError, RowChange
from restapi.views import ApiView, valid_body


class ConfigurationSerializer(serializers.Serializer[Any]):
    """The configuration, without passwords."""

    yaml = serializers.CharField()


class ConfigurationImportSerializer(StrictSerializer):
    """A configuration to import."""

    yaml = serializers.CharField(max_length=MAX_BYTES, trim_whitespace=False)
    apply = serializers.BooleanField(default=False, help_text="Otherwise it is only said what the import would change")


class RowChangeSerializer(serializers.Serializer[RowChange]):
    """What becomes of one row."""

    section = serializers.CharField()
    key = serializers.CharField()
    is_new = serializers.BooleanField()
    changes = serializers.DictField(  # values of any kind
        source="fields", child=serializers.ListField(), help_text="{field: [before, after]}"
    )


class ConfigurationChangesSerializer(serializers.Serializer[Any]):
    """What the import would change, or has changed."""

    is_applied = serializers.BooleanField()
    rows = RowChangeSerializer(many=True)


class ConfigurationView(ForSuperadmins, ApiView):
    """Exports and imports the configuration; for superadmins."""

    @extend_schema(operation_id="admin_configuration_retrieve", responses=ConfigurationSerializer)
    def get(self, request: Request) -> Response:
        """Show policies, projects, registries, images, groups, weights, presets, idle rules, storage roots as YAML."""
        return Response({"yaml": configuration.export()})

    @extend_schema(request=ConfigurationImportSerializer, responses=ConfigurationChangesSerializer)
    def post(self, request: Request) -> Response:
        """Show what a configuration would change, or import it, all or nothing; rows that are not in it stay."""
        asked = valid_body(ConfigurationImportSerializer, request)
        text, is_applied = asked["yaml"], asked["apply"]
        try:
            rows = configuration.carry_out(text, actor=user_of(request)) if is_applied else configuration.preview(text)
        except ConfigurationError as error:
            problems = [f"{place}: {problem}" for place, problem in error.problems.items()]
            raise ValidationError({"yaml": problems}) from error
        return Response(ConfigurationChangesSerializer({"is_applied": is_applied, "rows": rows}).data)
