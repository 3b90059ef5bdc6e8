"""The API's representation of notifications, of how one is told, and of announcements."""

from typing import Any, Final

from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from accounts.serializers import StrictSerializer
from notifications.delivery.texts import text_of
from notifications.models import KIND_CHOICES, Announcement, Notification
from resources.models import ResourceGroup
from restapi.fields import RowNameField, ShownSerializer

LEVELS: Final = [level.name.lower() for level in Announcement.Level]


class NotificationSerializer(ShownSerializer[Notification]):
    """A notification, in the caller's language."""

    kind = serializers.ChoiceField(choices=KIND_CHOICES, read_only=True)
    session = serializers.CharField(source="session_id", read_only=True, allow_null=True, help_text="Its id")
    title = serializers.SerializerMethodField()
    body = serializers.SerializerMethodField()

    class Meta:
        model = Notification
        fields = ("id", "kind", "session", "title", "body", "created_at", "read_at", "emailed_at")

    def get_title(self, notification: Notification) -> str:
        """Return what it tells of."""
        return text_of(notification).title

    def get_body(self, notification: Notification) -> str:
        """Return more about it, or ""."""
        return text_of(notification).body


class PreferenceSerializer(StrictSerializer):
    """How the caller is told of one kind."""

    kind = serializers.ChoiceField(choices=KIND_CHOICES)
    on_page = serializers.BooleanField()
    in_browser = serializers.BooleanField()
    by_email = serializers.BooleanField()


@extend_schema_field(serializers.ChoiceField(choices=LEVELS))
class LevelField(serializers.Field[int, Any, str, Any]):
    """How serious an announcement is, by name."""

    def to_representation(self, value: int) -> str:
        """Return the name."""
        return Announcement.Level(value).name.lower()

    def to_internal_value(self, data: Any) -> int:
        """Return the number that is stored. Raises ValidationError for a name that there is not."""
        if data not in LEVELS:
            raise serializers.ValidationError(_("Choose one of %(levels)s.") % {"levels": ", ".join(LEVELS)})
        return Announcement.Level[data.upper()].value


class AnnouncementQuery(serializers.Serializer[Any]):
    """Which announcements to list."""

    scope = serializers.ChoiceField(
        choices=["current", "all"], default="current", help_text="all: for superadmins, past and future ones, too"
    )


class AnnouncementSerializer(StrictSerializer, serializers.ModelSerializer[Announcement]):
    """What an administrator tells everybody, or those who may use one of the resource groups."""

    level = LevelField(default=Announcement.Level.INFORMATION.value)
    resource_groups = RowNameField[ResourceGroup](
        slug_field="name",
        many=True,
        required=False,
        queryset=ResourceGroup.objects.all(),
        help_text="Names; none: for everybody",
    )

    class Meta:
        model = Announcement
        fields = ("id", "text", "level", "starts_at", "ends_at", "resource_groups")
        read_only_fields = ("id",)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return what was sent. Raises ValidationError where it ends before it starts."""
        starts = attrs.get("starts_at", self.instance.starts_at if self.instance else timezone.now())
        ends = attrs.get("ends_at", self.instance.ends_at if self.instance else None)
        if ends is not None and ends <= starts:
            raise serializers.ValidationError({"ends_at": [_("It must end after it starts.")]})
        return attrs
