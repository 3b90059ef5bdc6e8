"""API of idle rules, and of what superadmins do with users and their sessions."""

from typing import Any

from django.forms import modelform_factory
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import ForSuperadmins, user_of
from accounts.models import Project, ResourcePolicy
from accounts.serializers import StrictSerializer
from resources.admin_api.base import RecordViewSet
from resources.admin_api.people import UserRecordSerializer, UserRecordViewSet
from resources.admin_api.serializers import RecordSerializer
from resources.models import ResourceGroup
from restapi.fields import RowNameField
from restapi.views import ApiView, valid_body
from sessions.idle.preview import Preview, preview
from sessions.launching import services
from sessions.models import IdleRule, Session
from sessions.requeueing import requests as requeue
from sessions.revocation import account_ends


class DisableSerializer(StrictSerializer):
    """How an account is disabled."""

    end_sessions = serializers.BooleanField(default=False, help_text="Otherwise what runs goes on")


class UserAdministrationViewSet(UserRecordViewSet):
    """Accounts of users, with what concerns their sessions."""

    @extend_schema(request=DisableSerializer, responses=UserRecordSerializer)
    @action(detail=True, methods=["post"])
    def disable(self, request: Request, pk: str) -> Response:
        """Disable the account: nobody signs in with it, and what waits for it is cancelled."""
        user = self.get_object()
        asked = valid_body(DisableSerializer, request)
        self.check(user, {"is_active": False})
        account_ends.disable(user, actor=user_of(request), ends_sessions=asked["end_sessions"])
        return self.shown(user)


class IdleRuleSerializer(RecordSerializer[IdleRule]):
    """What is done with idle sessions of some policies, projects and groups; none: of all."""

    policies = RowNameField[ResourcePolicy](
        slug_field="name", many=True, required=False, queryset=ResourcePolicy.objects.all()
    )
    projects = RowNameField[Project](slug_field="name", many=True, required=False, queryset=Project.objects.all())
    resource_groups = RowNameField[ResourceGroup](
        slug_field="name", many=True, required=False, queryset=ResourceGroup.objects.all()
    )

    class Meta:
        model = IdleRule
        exclude = ()


class WouldEndSerializer(serializers.Serializer[Any]):
    """A session that a rule would have ended."""

    session = serializers.CharField(source="session.pk", help_text="Its id")
    name = serializers.CharField(source="session.name")
    owner = serializers.EmailField(source="session.owner.email")
    warned_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField()
    saved_milli_seconds = serializers.IntegerField(help_text="GPU that others could have used: milli-fGPU seconds")


class PreviewSerializer(serializers.Serializer[Preview]):
    """What a rule would have done in the last week."""

    ended = WouldEndSerializer(many=True)
    judged = serializers.IntegerField(source="session_count", help_text="Sessions that ran under it")
    unknown = serializers.IntegerField(help_text="Of them, those of which too little was measured")
    recorded_since = serializers.DateTimeField(allow_null=True)
    saved_milli_seconds = serializers.IntegerField()


class IdleRuleViewSet(RecordViewSet[IdleRule]):
    """Idle rules."""

    queryset = IdleRule.objects.prefetch_related("policies", "projects", "resource_groups").order_by("name")
    serializer_class = IdleRuleSerializer
    form_class = modelform_factory(IdleRule, exclude=())

    @extend_schema(responses=PreviewSerializer)
    @action(detail=True, pagination_class=None)
    def preview(self, request: Request, pk: str) -> Response:
        """Show which sessions the rule would have ended in the last week."""
        return Response(PreviewSerializer(preview(self.get_object(), timezone.now())).data)


class ForceEndView(ForSuperadmins, ApiView):
    """Ends a session whose host does not respond."""

    @extend_schema(request=None, responses={204: None})
    def post(self, request: Request, session_id: str) -> Response:
        """End the session at once, and free its resources without waiting for its host."""
        session = get_object_or_404(Session.objects.select_related("owner", "host"), pk=session_id)
        if session.is_final:
            raise ValidationError(_("The session has ended."))
        services.force_end(session, actor=user_of(request))
        return Response(status=status.HTTP_204_NO_CONTENT)


class RequeueView(ForSuperadmins, ApiView):
    """Returns a session to the queue."""

    @extend_schema(request=None, responses={204: None})
    def post(self, request: Request, session_id: str) -> Response:
        """Have a session that has not started yet, or a batch session, wait again, for another host if one fits."""
        session = get_object_or_404(Session.objects.select_related("owner", "host"), pk=session_id)
        requeue.requeue(session, actor=user_of(request))
        return Response(status=status.HTTP_204_NO_CONTENT)
