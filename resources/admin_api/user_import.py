"""API of the import of users from CSV."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import ForSuperadmins, user_of
from accounts.serializers import StrictSerializer
from accounts.signing_in import welcome
from resources.user_import import services as user_import
from resources.user_import.services import MAX_BYTES, UserImportError
from restapi.views import ApiView, valid_body


class UserImportSerializer(StrictSerializer):
    """A table of users."""

    csv = serializers.CharField(
        max_length=MAX_BYTES,
        trim_whitespace=False,
        help_text="Its first line names the columns, of which `email` alone is needed; `|` stands between names",
    )
    apply = serializers.BooleanField(default=False, help_text="Otherwise it is only said what the import would do")
    send_welcome = serializers.BooleanField(default=True, help_text="Mail new users a link to choose a password")


class ImportRowSerializer(serializers.Serializer[Any]):
    """What a line of the table means."""

    line = serializers.IntegerField()
    email = serializers.CharField()
    is_new = serializers.BooleanField()
    changes = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField(allow_null=True)), help_text="{column: [before, after]}"
    )
    errors = serializers.DictField(  # type: ignore[assignment]  # the metaclass collects it
        child=serializers.CharField(), help_text="By column; while there are any, nothing is imported"
    )


class ImportedSerializer(serializers.Serializer[Any]):
    """What the import would do, or did."""

    is_applied = serializers.SerializerMethodField()
    new_count = serializers.IntegerField()
    changed_count = serializers.IntegerField()
    error_count = serializers.IntegerField()
    rows = ImportRowSerializer(many=True)

    def get_is_applied(self, done: user_import.UserImport) -> bool:
        """Return whether it was done."""
        return bool(self.context["is_applied"])


class UserImportView(ForSuperadmins, ApiView):
    """Imports users, whole or not at all; for superadmins."""

    @extend_schema(
        request=UserImportSerializer,
        responses=ImportedSerializer,
    )
    def post(self, request: Request) -> Response:
        """Show what a table of users would change, or import it."""
        actor = user_of(request)
        data = valid_body(UserImportSerializer, request)
        try:
            if data["apply"]:
                done = user_import.carry_out(data["csv"], actor=actor)
                for row in done.rows if data["send_welcome"] else ():
                    if row.is_new:
                        welcome.send(row.user, by=actor)
            else:
                done = user_import.plan(data["csv"])
        except UserImportError as error:
            raise ValidationError({"csv": [str(error)]}) from error
        return Response(ImportedSerializer(done, context={"is_applied": data["apply"]}).data)
