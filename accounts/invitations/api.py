"""API by which superadmins invite people."""

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.mixins import DestroyModelMixin, ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from accounts import audit
from accounts.api import ForSuperadmins, user_of
from accounts.invitations import services as invitations
from accounts.models import Project, ResourcePolicy
from accounts.models.invitations import AccountInvitation
from accounts.serializers import StrictSerializer
from restapi.fields import RowNameField, ShownSerializer
from restapi.views import ApiViewSet, valid_body


class InvitationSerializer(ShownSerializer[AccountInvitation]):
    """An invitation, without its link."""

    policy = serializers.CharField(source="policy.name", read_only=True)
    project = serializers.CharField(source="project.name", read_only=True, default=None, allow_null=True)

    class Meta:
        model = AccountInvitation
        fields: tuple[str, ...] = ("id", "email", "policy", "project", "created_at", "expires_at", "accepted_at")


class MadeInvitationSerializer(InvitationSerializer):
    """An invitation that was just made, with its link, which no other response shows."""

    link = serializers.URLField(read_only=True)

    class Meta(InvitationSerializer.Meta):
        fields = (*InvitationSerializer.Meta.fields, "link")


class NewInvitationSerializer(StrictSerializer):
    """Whom to invite, and what the account will have."""

    email = serializers.EmailField(max_length=254)
    policy = RowNameField(
        slug_field="name",
        queryset=ResourcePolicy.objects.all(),
        required=False,
        help_text="The default policy if left out",
    )
    project = RowNameField(
        slug_field="name", queryset=Project.objects.all(), required=False, allow_null=True, help_text="None if left out"
    )


class InvitationViewSet(
    ForSuperadmins, ListModelMixin, RetrieveModelMixin, DestroyModelMixin, ApiViewSet[AccountInvitation]
):
    """Invitations, for superadmins."""

    queryset = AccountInvitation.objects.select_related("policy", "project")
    serializer_class = InvitationSerializer
    unkept_operations = frozenset({"create"})  # its response has the link
    lookup_value_regex = "[0-9]{1,18}"

    @extend_schema(request=NewInvitationSerializer, responses={201: MadeInvitationSerializer})
    def create(self, request: Request) -> Response:
        """Mail an invitation; only this response shows its link. An earlier one to the address is void."""
        data = valid_body(NewInvitationSerializer, request)
        policy = data.get("policy") or ResourcePolicy.default()
        by = user_of(request)
        try:
            made, link = invitations.invite(data["email"], policy=policy, project=data.get("project"), by=by)
        except invitations.InvitationError as error:
            raise ValidationError({"email": [str(error)]}) from error
        return Response({**InvitationSerializer(made).data, "link": link}, status=status.HTTP_201_CREATED)

    def perform_destroy(self, instance: AccountInvitation) -> None:
        """Withdraw the invitation: its link is void."""
        with audit.act(user_of(self.request), "withdraw invitation", instance):
            instance.delete()
