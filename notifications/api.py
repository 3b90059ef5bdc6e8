"""API of notifications, of how the caller is told, and of announcements."""

from dataclasses import asdict
from typing import Any, ClassVar, cast

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.mixins import (
    CreateModelMixin,
    DestroyModelMixin,
    ListModelMixin,
    RetrieveModelMixin,
    UpdateModelMixin,
)
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from accounts import audit
from accounts.api import user_of
from notifications import services
from notifications.kinds import NoticeKind, Ways
from notifications.models import Announcement, Notification
from notifications.serializers import (
    AnnouncementQuery,
    AnnouncementSerializer,
    NotificationSerializer,
    PreferenceSerializer,
)
from restapi.views import ApiView, ApiViewSet


class NotificationViewSet(ListModelMixin, RetrieveModelMixin, ApiViewSet[Notification]):
    """The caller's notifications, the newest first."""

    queryset = Notification.objects.all()
    serializer_class = NotificationSerializer
    lookup_value_regex = r"[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[Notification]:
        """Return the caller's own, superadmins' too."""
        return super().get_queryset().filter(user=user_of(self.request)).order_by("-id")

    @extend_schema(request=None, responses={204: None})
    @action(detail=True, methods=["post"])
    def read(self, request: Request, pk: str) -> Response:
        """Mark this notification, and all that are older, as read."""
        services.mark_read(user_of(request), up_to=self.get_object().pk)
        return Response(status=status.HTTP_204_NO_CONTENT)


class AnnouncementViewSet(
    CreateModelMixin,
    UpdateModelMixin,
    DestroyModelMixin,
    ListModelMixin,
    RetrieveModelMixin,
    ApiViewSet[Announcement],
):
    """What administrators tell the caller at present, the most serious first; superadmins see all, and write them."""

    queryset = Announcement.objects.all()
    serializer_class = AnnouncementSerializer
    lookup_value_regex = r"[0-9]{1,18}"
    http_method_names = ("get", "head", "options", "post", "patch", "delete")
    query_serializers: ClassVar = {"list": AnnouncementQuery}

    def get_queryset(self) -> QuerySet[Announcement]:
        """Return those that are shown to the caller now; for superadmins all, but in the list unless they ask."""
        found, user = Announcement.objects.prefetch_related("resource_groups"), user_of(self.request)
        is_of_all = self.query["scope"] == "all" if self.action == "list" else user.is_superuser
        return found if is_of_all else found.current().visible_to(user)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check the caller. Raises PermissionDenied where another than a superadmin writes."""
        super().initial(request, *args, **kwargs)
        needs_rights = self.action in ("create", "partial_update", "destroy") or self.query.get("scope") == "all"
        if needs_rights and not user_of(request).is_superuser:
            raise PermissionDenied

    def perform_create(self, serializer: BaseSerializer[Announcement]) -> None:
        """Store it with its groups at once, so that nobody else sees it in between."""
        user = user_of(self.request)
        with audit.act(user, "added") as made:
            made.append(serializer.save(created_by=user))

    def perform_update(self, serializer: BaseSerializer[Announcement]) -> None:
        """Store the change as a whole."""
        changed = cast(Announcement, serializer.instance)
        with audit.act(user_of(self.request), "changed", changed):
            serializer.save()

    def perform_destroy(self, instance: Announcement) -> None:
        """Delete it: nobody sees it any more."""
        with audit.act(user_of(self.request), "deleted", instance):
            instance.delete()


class PreferencesView(ApiView):
    """How the caller is told of what."""

    @extend_schema(responses=PreferenceSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List every kind with the ways by which the caller is told."""
        ways = services.ways_of(user_of(request))
        return Response([{"kind": kind.value, **asdict(way)} for kind, way in ways.items()])

    @extend_schema(request=PreferenceSerializer(many=True), responses=PreferenceSerializer(many=True))
    def put(self, request: Request) -> Response:
        """Change the ways of the kinds in the body; others stay as they are."""
        body = PreferenceSerializer(data=request.data, many=True)
        body.is_valid(raise_exception=True)
        chosen = {
            NoticeKind(row["kind"]): Ways(
                on_page=row["on_page"], in_browser=row["in_browser"], by_email=row["by_email"]
            )
            for row in body.validated_data
        }
        services.choose_ways(user_of(request), chosen)
        return self.get(request)
