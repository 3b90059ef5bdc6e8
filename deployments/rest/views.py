"""Views of the API of deployments."""

from typing import Any, ClassVar, Final

from django.db import transaction
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from deployments import hosts, services
from deployments.counts import with_counts
from deployments.models import Deployment, Revision, RuntimeVariant
from deployments.rest.bodies import (
    HostsBody,
    NewDeploymentBody,
    NewRevisionBody,
    PromotionBody,
    SettingsBody,
)
from deployments.rest.figures import FigureActions, FiguresQuery
from deployments.rest.logs import DeploymentLogsQuery, LogActions
from deployments.rest.scaling import ScalingActions
from deployments.rest.serializers import (
    DeploymentEventSerializer,
    DeploymentSerializer,
    ReplicaSerializer,
    RevisionSerializer,
    RuntimeVariantSerializer,
)
from deployments.rest.tokens import TokenActions, refusals
from restapi.pages import NewestFirstPages
from restapi.views import ApiViewSet, valid_body
from sessions.launching.serializers import group_for
from sessions.models import SESSION_ID

READ: Final = frozenset(
    {"list", "retrieve", "replicas", "events", "revisions", "tokens", "usage", "figures", "scaling", None}
)
OF_THE_OWNER: Final = frozenset({"create_revision", "logs", "follow_logs"})  # and superadmins
RELATED: Final = ("owner__policy", "project__policy", "resource_group", "previous_revision", "rollout")


class DeploymentQuery(serializers.Serializer[Any]):
    """Query parameters of the list."""

    name = serializers.CharField(max_length=64, required=False, help_text="A part of it")
    owner = serializers.EmailField(required=False)
    project = serializers.CharField(max_length=64, required=False)
    ended = serializers.BooleanField(default=False, help_text="Those that have ended, in place of those that have not")


class DeploymentViewSet(
    FigureActions, LogActions, TokenActions, ScalingActions, ListModelMixin, RetrieveModelMixin, ApiViewSet[Deployment]
):
    """The caller's deployments and those of their projects, newest first; superadmins see everybody's.

    Owners, managers of the project and superadmins change them; what replicas run is the owner's alone to say, and
    superadmins', since they run with the owner's folders.
    """

    queryset = Deployment.objects.all()
    serializer_class = DeploymentSerializer
    lookup_value_regex = SESSION_ID
    query_serializers: ClassVar = {
        **{"list": DeploymentQuery, "figures": FiguresQuery},
        **{"logs": DeploymentLogsQuery, "follow_logs": DeploymentLogsQuery},
    }
    unkept_operations = frozenset({"create_token"})
    http_method_names = ("get", "head", "options", "post", "put", "patch", "delete")

    def get_queryset(self) -> QuerySet[Deployment]:
        """Return those that the caller may see, or change, with related rows; a constant number of queries."""
        user, everything = user_of(self.request), Deployment.objects.all()
        if self.action in OF_THE_OWNER:
            found = everything if user.is_superuser else everything.filter(owner=user)
        elif self.action == "set_hosts":
            found = everything if user.is_superuser else everything.none()
        else:
            found = everything.visible_to(user) if self.action in READ else everything.operable_by(user)
        if self.action == "list":
            found = found.filter(ended_at__isnull=not self.query["ended"]).filter(**_lookups(self.query))
        current = ("revision__image", "revision__variant", "revision__created_by", "revision__deployment")
        found = found.select_related(*RELATED, *current).prefetch_related("revision__mounts", "hosts")
        return with_counts(found).order_by("-created_at", "-pk")

    @extend_schema(request=NewDeploymentBody, responses={201: DeploymentSerializer})
    def create(self, request: Request) -> Response:
        """Make a deployment with its first revision; its replicas are launched at once."""
        owner, body = user_of(request), NewDeploymentBody(data=request.data)
        body.is_valid(raise_exception=True)
        asked = body.deployment_request(owner)
        with refusals(asked.revision):
            made = services.create(owner, asked)
        return Response(self._shown(made), status=status.HTTP_201_CREATED)

    @extend_schema(request=SettingsBody, responses=DeploymentSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change settings, and how many replicas are wanted."""
        deployment, actor = self.get_object(), user_of(request)
        body = SettingsBody(data=request.data)
        body.is_valid(raise_exception=True)
        asked, changes = body.validated_data, body.settings()
        if "resource_group" in asked:
            changes["resource_group"] = group_for(deployment.owner, asked["resource_group"], deployment.project)
        with refusals(), transaction.atomic():
            services.change(deployment, changes, actor=actor)
            if "replicas" in asked:
                services.set_replicas(deployment, asked["replicas"], actor=actor)
        return Response(self._shown(deployment))

    @extend_schema(responses=RevisionSerializer(many=True))
    @action(detail=True)
    def revisions(self, request: Request, pk: str) -> Response:
        """List the revisions, newest first."""
        found = self.get_object().revisions.select_related("image", "variant", "created_by", "deployment")
        return self.rows_page(found.prefetch_related("mounts"), RevisionSerializer)

    @extend_schema(request=NewRevisionBody, responses={201: RevisionSerializer})
    @revisions.mapping.post
    def create_revision(self, request: Request, pk: str) -> Response:
        """Make a revision, and have the replicas replaced by such as run it."""
        deployment, body = self.get_object(), NewRevisionBody(data=request.data)
        body.is_valid(raise_exception=True)
        asked = body.revision_request(deployment.owner, deployment.revision)
        activates = body.validated_data["activate"]
        with refusals(asked):
            made = services.new_revision(deployment, asked, actor=user_of(request), activates=activates)
        made.deployment.refresh_from_db(fields=["revision"])
        shown = RevisionSerializer(made, context=self.get_serializer_context()).data
        return Response(shown, status=status.HTTP_201_CREATED)

    @extend_schema(request=None, responses=DeploymentSerializer)
    @action(detail=True, methods=["post"], url_path=r"revisions/(?P<number>[0-9]{1,9})/activate")
    def activate(self, request: Request, pk: str, number: str) -> Response:
        """Have the replicas replaced by such as run this revision, be it an older one."""
        deployment = self.get_object()
        revision = get_object_or_404(Revision.objects.select_related("image"), deployment=deployment, number=number)
        with refusals():
            services.activate(deployment, revision, actor=user_of(request))
        return Response(self._shown(deployment))

    @extend_schema(request=None, responses=DeploymentSerializer)
    @action(detail=True, methods=["post"])
    def rollback(self, request: Request, pk: str) -> Response:
        """Return to the revision that was current before, also in the middle of a rollout."""
        deployment = self.get_object()
        with refusals():
            services.abort_rollout(deployment, actor=user_of(request))
        return Response(self._shown(deployment))

    @extend_schema(request=PromotionBody, responses=DeploymentSerializer)
    @action(detail=True, methods=["post"])
    def promote(self, request: Request, pk: str) -> Response:
        """Pass the running step of a rollout by steps now, whatever it has shown."""
        deployment, asked = self.get_object(), valid_body(PromotionBody, request)
        with refusals():
            services.promote(deployment, actor=user_of(request), to_all=asked["to_all"])
        return Response(self._shown(deployment))

    @extend_schema(request=None, responses=DeploymentSerializer)
    @action(detail=True, methods=["post"])
    def restart(self, request: Request, pk: str) -> Response:
        """Have all replicas replaced, one after the other, by others of the same revision."""
        deployment = self.get_object()
        with refusals():
            services.restart(deployment, actor=user_of(request))
        return Response(self._shown(deployment))

    @extend_schema(request=None, responses=DeploymentSerializer)
    @action(detail=True, methods=["post"])
    def end(self, request: Request, pk: str) -> Response:
        """End the deployment with its replicas and its address; does nothing if it has ended."""
        deployment = self.get_object()
        services.end(deployment, actor=user_of(request))
        return Response(self._shown(deployment))

    @extend_schema(request=HostsBody, responses=DeploymentSerializer)
    @action(detail=True, methods=["put"], url_path="hosts")
    def set_hosts(self, request: Request, pk: str) -> Response:
        """Have these host names lead to the deployment, and no others; superadmins alone."""
        deployment, asked = self.get_object(), valid_body(HostsBody, request)
        with refusals():
            hosts.set_hosts(deployment, asked["hosts"], actor=user_of(request))
        return Response(self._shown(deployment))

    @extend_schema(responses=ReplicaSerializer(many=True))
    @action(detail=True)
    def replicas(self, request: Request, pk: str) -> Response:
        """List the replicas that have not ended, oldest first."""
        found = self.get_object().replica_rows.live().select_related("session__host", "revision")
        return self.rows_page(found.order_by("created_at", "pk"), ReplicaSerializer)

    @extend_schema(responses=DeploymentEventSerializer(many=True))
    @action(detail=True, pagination_class=NewestFirstPages)
    def events(self, request: Request, pk: str) -> Response:
        """List what was done with the deployment, newest first."""
        return self.rows_page(self.get_object().events.select_related("actor"), DeploymentEventSerializer)

    def _shown(self, deployment: Deployment) -> Any:
        """Return the deployment as it is now."""
        return self.get_serializer(self.get_queryset().get(pk=deployment.pk)).data


class RuntimeVariantViewSet(ListModelMixin, ApiViewSet[RuntimeVariant]):
    """Programs that serve models, which revisions may name."""

    queryset = RuntimeVariant.objects.filter(is_enabled=True).order_by("name")
    serializer_class = RuntimeVariantSerializer


def _lookups(asked: dict[str, Any]) -> dict[str, Any]:
    lookups = {"name": "name__icontains", "owner": "owner__email__iexact", "project": "project__name"}
    return {lookup: asked[name] for name, lookup in lookups.items() if name in asked}
