"""API of projects: seen by members, their members chosen by managers, all else by superadmins."""

from dataclasses import asdict
from typing import Any

from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.exceptions import APIException, PermissionDenied, ValidationError
from rest_framework.mixins import DestroyModelMixin, ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import superadmin_of, user_of
from accounts.models import AccountInvitation, Membership, Project, ProjectRole, ResourcePolicy, User
from accounts.models.policies import DEFAULT_WEIGHT
from accounts.models.projects import PROJECT_NAME
from accounts.serializers import StrictSerializer
from resources.models import ResourceGroup
from restapi.fields import RowNameField, ShownSerializer
from restapi.views import ApiViewSet, valid_body
from sessions.errors import GENERAL, RejectedError
from sessions.limits import held as usage
from sessions.limits.serializers import UserAmountsSerializer
from sessions.projects import services as projects

ROLES = [role.value for role in ProjectRole]


class ProjectInUseError(APIException):
    """The project cannot be deleted."""

    status_code = status.HTTP_409_CONFLICT
    default_code = "project_in_use"


class ProjectSerializer(ShownSerializer[Project]):
    """A project as its members see it."""

    policy = serializers.CharField(source="policy.name", read_only=True, default=None, allow_null=True)
    resource_groups = serializers.SlugRelatedField[ResourceGroup](
        slug_field="name", many=True, read_only=True, help_text="Granted to it, beside what is granted to its members"
    )
    member_count = serializers.IntegerField(read_only=True)
    role = serializers.ChoiceField(
        source="my_role",
        choices=ROLES,
        read_only=True,
        allow_null=True,
        help_text="The caller's in it; null for a superadmin who is no member",
    )

    class Meta:
        model = Project
        fields: tuple[str, ...] = (
            *("id", "name", "description", "is_active", "role", "policy", "share_weight", "resource_groups"),
            *("member_count", "created_at"),
        )


class ProjectDetailSerializer(ProjectSerializer):
    """A project with its limits, and what its sessions hold."""

    limits = serializers.SerializerMethodField(help_text="Of the sessions of all members together")
    used = serializers.SerializerMethodField()

    class Meta(ProjectSerializer.Meta):
        fields = (*ProjectSerializer.Meta.fields, "limits", "used")

    @extend_schema_field(UserAmountsSerializer)
    def get_limits(self, project: Project) -> Any:
        """Return the limits."""
        return UserAmountsSerializer(asdict(project.limits())).data

    @extend_schema_field(UserAmountsSerializer)
    def get_used(self, project: Project) -> Any:
        """Return what its sessions hold; two queries."""
        use = usage.limit_use_of(project)
        return UserAmountsSerializer({**asdict(use.used), "pending": use.pending}).data


class ProjectBody(StrictSerializer):
    """What a project is made of."""

    name = serializers.RegexField(PROJECT_NAME, max_length=64, help_text="Unique in any case")
    description = serializers.CharField(max_length=200, required=False, allow_blank=True)
    policy = RowNameField[ResourcePolicy](
        slug_field="name",
        queryset=ResourcePolicy.objects.all(),
        required=False,
        allow_null=True,
        help_text="Limits of all members' sessions together; null: none beside their own",
    )
    share_weight = serializers.IntegerField(min_value=1, max_value=10_000, required=False, default=DEFAULT_WEIGHT)
    is_active = serializers.BooleanField(required=False, default=True)
    resource_groups = RowNameField[ResourceGroup](
        slug_field="name", many=True, queryset=ResourceGroup.objects.all(), required=False
    )


class MemberSerializer(ShownSerializer[Membership]):
    """A member of a project."""

    email = serializers.EmailField(source="user.email", read_only=True)
    name = serializers.CharField(source="user.get_full_name", read_only=True)

    class Meta:
        model = Membership
        fields = ("id", "email", "name", "role", "created_at")


class NewMemberBody(StrictSerializer):
    """Who becomes a member."""

    email = serializers.EmailField(max_length=254, help_text="Of an account")
    role = serializers.ChoiceField(choices=ROLES, required=False, default=ProjectRole.MEMBER.value)


class RoleBody(StrictSerializer):
    """What a member becomes."""

    role = serializers.ChoiceField(choices=ROLES)


class ProjectInvitationSerializer(ShownSerializer[AccountInvitation]):
    """An invitation to a project, without its link, which is mailed to the address alone."""

    class Meta:
        model = AccountInvitation
        fields = ("id", "email", "created_at", "expires_at")


class NewProjectInvitationBody(StrictSerializer):
    """Whom to invite."""

    email = serializers.EmailField(max_length=254, help_text="Of somebody without an account")


class ProjectViewSet(ListModelMixin, RetrieveModelMixin, DestroyModelMixin, ApiViewSet[Project]):
    """The caller's projects, and for superadmins all; only these create, change and delete them."""

    queryset = Project.objects.all()
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[Project]:
        """Return the projects that the caller may see, in a constant number of queries."""
        user = user_of(self.request)
        members = Membership.objects.filter(project=OuterRef("pk")).order_by()
        found = Project.objects.visible_to(user).annotate(
            member_count=Coalesce(Subquery(members.values("project").annotate(count=Count("pk")).values("count")), 0),
            my_role=Subquery(members.filter(user=user).values("role")),
        )
        return found.select_related("policy").prefetch_related("resource_groups").order_by("name")

    def get_serializer_class(self) -> type[ProjectSerializer]:
        """Return the serializer: limits and use are of one project alone."""
        return ProjectSerializer if self.action == "list" else ProjectDetailSerializer

    @extend_schema(request=ProjectBody, responses={201: ProjectDetailSerializer})
    def create(self, request: Request) -> Response:
        """Create a project; for superadmins."""
        actor = superadmin_of(request)
        values, groups = self._values(ProjectBody(data=request.data))
        made = projects.create(values, groups or (), actor=actor)
        return Response(self._data(made.pk), status=status.HTTP_201_CREATED)

    @extend_schema(request=ProjectBody, responses=ProjectDetailSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change the fields that are given; for superadmins. What waits is looked at again at once."""
        project = self.get_object()
        actor = superadmin_of(request)
        values, groups = self._values(ProjectBody(data=request.data, partial=True))
        projects.change(project, values, groups, actor=actor)
        return Response(self._data(project.pk))

    @extend_schema(responses={204: None, 409: OpenApiResponse(description="Sessions or data folders belong to it")})
    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Delete a project of which there is no session and no folder; for superadmins."""
        return super().destroy(request, *args, **kwargs)

    def perform_destroy(self, instance: Project) -> None:
        """Delete the project."""
        try:
            projects.delete(instance, actor=superadmin_of(self.request))
        except RejectedError as error:
            raise ProjectInUseError(error.errors[GENERAL]) from error

    def _values(self, body: ProjectBody) -> tuple[dict[str, Any], list[ResourceGroup] | None]:
        body.is_valid(raise_exception=True)
        given = dict(body.validated_data)
        return given, given.pop("resource_groups", None)

    def _data(self, pk: int) -> Any:
        return ProjectDetailSerializer(get_object_or_404(self.get_queryset(), pk=pk)).data


class ProjectMemberViewSet(ListModelMixin, DestroyModelMixin, ApiViewSet[Membership]):
    """Members of a project: seen by all of them, chosen by its managers and superadmins. Members may leave."""

    queryset = Membership.objects.all()
    serializer_class = MemberSerializer
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[Membership]:
        """Return the members of the project of the address, if the caller may see it."""
        if getattr(self, "swagger_fake_view", False):
            return Membership.objects.none()
        project = get_object_or_404(Project.objects.visible_to(user_of(self.request)), pk=self.kwargs["project_pk"])
        return Membership.objects.filter(project=project).select_related("user", "project").order_by("user__email")

    @extend_schema(request=NewMemberBody, responses={201: MemberSerializer})
    def create(self, request: Request, project_pk: str) -> Response:
        """Make an account a member; for managers."""
        project = self._managed(request)
        asked = valid_body(NewMemberBody, request)
        user = User.objects.filter(email__iexact=asked["email"]).first()
        if user is None:
            raise ValidationError({"email": [_("There is no account with this address.")]})
        made = projects.add_member(project, user, ProjectRole(asked["role"]), actor=user_of(request))
        return Response(MemberSerializer(made).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=RoleBody, responses=MemberSerializer)
    def partial_update(self, request: Request, project_pk: str, pk: str) -> Response:
        """Change the role of a member; for managers."""
        membership = self.get_object()
        self._managed(request)
        asked = valid_body(RoleBody, request)
        projects.set_role(membership, ProjectRole(asked["role"]), actor=user_of(request))
        return Response(MemberSerializer(membership).data)

    def perform_destroy(self, instance: Membership) -> None:
        """Remove a member, for managers; or leave the project."""
        user = user_of(self.request)
        if instance.user_id != user.pk:
            self._managed(self.request)
        projects.remove_member(instance, actor=user)

    def _managed(self, request: Request) -> Project:
        return _managed(request, self.kwargs["project_pk"])


class ProjectInvitationViewSet(ListModelMixin, DestroyModelMixin, ApiViewSet[AccountInvitation]):
    """Open invitations to a project, for its managers and superadmins."""

    queryset = AccountInvitation.objects.all()
    serializer_class = ProjectInvitationSerializer
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[AccountInvitation]:
        """Return the invitations to the project of the address, if the caller manages it."""
        if getattr(self, "swagger_fake_view", False):
            return AccountInvitation.objects.none()
        return projects.open_invitations(_managed(self.request, self.kwargs["project_pk"]))

    @extend_schema(request=NewProjectInvitationBody, responses={201: ProjectInvitationSerializer})
    def create(self, request: Request, project_pk: str) -> Response:
        """Mail an address a link, by which its reader makes an account and becomes a member; a former one is void."""
        project = _managed(request, project_pk)
        asked = valid_body(NewProjectInvitationBody, request)
        made = projects.invite(project, asked["email"], actor=user_of(request))
        return Response(ProjectInvitationSerializer(made).data, status=status.HTTP_201_CREATED)

    def perform_destroy(self, instance: AccountInvitation) -> None:
        """Withdraw the invitation: its link is void."""
        projects.withdraw_invitation(instance, actor=user_of(self.request))


def _managed(request: Request, project_pk: str) -> Project:
    """Return the project. Raises PermissionDenied for a member, and Http404 for others."""
    project = get_object_or_404(Project.objects.visible_to(user_of(request)), pk=project_pk)
    if not Project.objects.managed_by(user_of(request)).filter(pk=project.pk).exists():
        raise PermissionDenied
    return project
