"""The API's representation of notifications, of how one is told, and of announcements."""

from typing import Any, Final

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from accounts.serializers import StrictSerializer
from notifications.models import KIND_CHOICES, Announcement, Notification
from notifications.texts import text_of

LEVELS: Final = [level.name.lower() for level in Announcement.Level]


class NotificationSerializer(serializers.ModelSerializer[Notification]):
    """A notification, in the caller's language."""

    kind = serializers.ChoiceField(choices=KIND_CHOICES, read_only=True)
    session = serializers.CharField(source="session_id", read_only=True, allow_null=True, help_text="Its id")
    title = serializers.SerializerMethodField()
    body = serializers.SerializerMethodField()

    class Meta:
        model = Notification
        fields = ("id", "kind", "session", "title", "body", "created_at", "read_at", "emailed_at")
        read_only_fields = fields

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


class AnnouncementSerializer(serializers.ModelSerializer[Announcement]):
    """What an administrator tells everybody."""

    level = serializers.SerializerMethodField(help_text="information, warning or outage")

    class Meta:
        model = Announcement
        fields = ("id", "text", "level", "starts_at", "ends_at")
        read_only_fields = fields

    @extend_schema_field(serializers.ChoiceField(choices=LEVELS))
    def get_level(self, announcement: Announcement) -> Any:
        """Return how serious it is."""
        return Announcement.Level(announcement.level).name.lower()
