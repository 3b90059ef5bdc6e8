"""The URLs of the HTTP API, version 1, of all packages."""

from typing import Any, NoReturn

from django.urls import include, path, re_path
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.exceptions import NotFound
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.routers import SimpleRouter

from accounts.api import ApiTokenViewSet, LoginViewSet, MeView, PasswordView, SshKeyViewSet, SshServerView, TokenView
from accounts.invitations.api import InvitationViewSet
from arrays.api import ArrayViewSet
from deployments.rest.drafts import DeploymentDraftsView
from deployments.rest.views import DeploymentViewSet, RuntimeVariantViewSet
from endpoints.api_urls import urlpatterns as app_patterns
from folders.api import FolderViewSet, StorageRootViewSet
from folders.api_urls import urlpatterns as folder_patterns
from folders.storage.api import StorageRootRecordViewSet
from hostaccess.api import JoinView
from imports.api import ImportCredentialViewSet, ImportViewSet
from notifications.api import AnnouncementViewSet, NotificationViewSet, PreferencesView
from operations.configuration.api import ConfigurationView
from operations.services.api import ServiceLogView, ServicesView
from resources.admin_api.elastic import ElasticHostViewSet, ElasticPoolViewSet
from resources.admin_api.images import ImageRecordViewSet, RegistryRecordViewSet
from resources.admin_api.machines import GpuWeightViewSet, GroupRecordViewSet, HostRecordViewSet, PresetRecordViewSet
from resources.admin_api.people import (
    AuditEntryViewSet,
    KeyRecordViewSet,
    PolicyRecordViewSet,
    TokenRecordViewSet,
)
from resources.admin_api.user_import import UserImportView
from resources.api import HostViewSet, ImageViewSet, PresetViewSet, ResourceGroupViewSet
from restapi.views import ApiView
from scheduler.advice.rollout_api import NewDeploymentPlacementView, PlacementView
from scheduler.api import EstimateView, PlaceView
from sessions.admin_api import ForceEndView, IdleRuleViewSet, RequeueView, UserAdministrationViewSet
from sessions.api import LimitsView, SessionViewSet
from sessions.conversion.api import PrivateImageViewSet
from sessions.drains.api import HostDrainView
from sessions.projects.api import ProjectInvitationViewSet, ProjectMemberViewSet, ProjectViewSet
from sessions.usage.api import UsageView
from specs.api import DeploymentSpecView, SessionSpecView, SpecsView
from specs.api import schema as spec_schema
from specs.template_api import LaunchTemplateViewSet
from webhooks.api import WebhookDeliveryViewSet, WebhookViewSet


@extend_schema(exclude=True)
class NotFoundView(ApiView):
    """Responds 404 in JSON. Otherwise a POST without the final slash would be redirected and lose its body."""

    authentication_classes = ()
    permission_classes = ()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise NotFound for every method."""
        raise NotFound("There is nothing at this address. All addresses of the API end with a slash.")


router = SimpleRouter()
router.register("arrays", ArrayViewSet)
router.register("deployments", DeploymentViewSet)
router.register("folders", FolderViewSet)
router.register("hosts", HostViewSet)
router.register("images", ImageViewSet)
router.register("import-credentials", ImportCredentialViewSet)
router.register("imports", ImportViewSet)
router.register("announcements", AnnouncementViewSet)
router.register("notifications", NotificationViewSet)
router.register("invitations", InvitationViewSet)
router.register("logins", LoginViewSet)
router.register("presets", PresetViewSet)
router.register("private-images", PrivateImageViewSet, basename="private-image")
router.register("projects", ProjectViewSet)
router.register(r"projects/(?P<project_pk>[0-9]{1,18})/members", ProjectMemberViewSet, basename="project-member")
router.register(
    r"projects/(?P<project_pk>[0-9]{1,18})/invitations", ProjectInvitationViewSet, basename="project-invitation"
)
router.register("resource-groups", ResourceGroupViewSet)
router.register("runtime-variants", RuntimeVariantViewSet, basename="runtime-variant")
router.register("sessions", SessionViewSet)
router.register("ssh-keys", SshKeyViewSet)
router.register("storage-roots", StorageRootViewSet)
router.register("templates", LaunchTemplateViewSet)
router.register("tokens", ApiTokenViewSet)
router.register(r"webhooks/(?P<webhook_id>[0-9]{1,18})/deliveries", WebhookDeliveryViewSet)
router.register("webhooks", WebhookViewSet)

# What superadmins administer; the names of these addresses begin with `admin-`.
router.register("admin/audit-log", AuditEntryViewSet, basename="admin-audit")
router.register("admin/elastic-hosts", ElasticHostViewSet, basename="admin-elastic-host")
router.register("admin/elastic-pools", ElasticPoolViewSet, basename="admin-elastic-pool")
router.register("admin/hosts", HostRecordViewSet, basename="admin-host")
router.register("admin/idle-rules", IdleRuleViewSet, basename="admin-idle-rule")
router.register("admin/images", ImageRecordViewSet, basename="admin-image")
router.register("admin/policies", PolicyRecordViewSet, basename="admin-policy")
router.register("admin/gpu-weights", GpuWeightViewSet, basename="admin-gpu-weight")
router.register("admin/presets", PresetRecordViewSet, basename="admin-preset")
router.register("admin/registries", RegistryRecordViewSet, basename="admin-registry")
router.register("admin/resource-groups", GroupRecordViewSet, basename="admin-group")
router.register("admin/ssh-keys", KeyRecordViewSet, basename="admin-key")
router.register("admin/storage-roots", StorageRootRecordViewSet, basename="admin-root")
router.register("admin/tokens", TokenRecordViewSet, basename="admin-token")
router.register("admin/users", UserAdministrationViewSet, basename="admin-user")

docs_view = SpectacularSwaggerSplitView.as_view(
    permission_classes=[AllowAny],
    url_name="api-schema",
    http_method_names=["get", "head"],  # its page has no template for what OPTIONS says
)

v1_patterns = [
    path("auth/token/", TokenView.as_view(), name="api-token"),
    path("me/", MeView.as_view(), name="me"),
    path("me/password/", PasswordView.as_view(), name="password"),
    path("ssh-server/", SshServerView.as_view(), name="ssh-server"),
    path("me/limits/", LimitsView.as_view(), name="limits"),
    path("deployments/placement/", NewDeploymentPlacementView.as_view(), name="deployment-draft-placement"),
    path("deployments/<str:deployment_id>/placement/", PlacementView.as_view(), name="deployment-placement"),
    path("hosts/join/", JoinView.as_view(), name="host-join"),
    path("hosts/<str:name>/drain/", HostDrainView.as_view(), name="host-drain"),
    path("deployment-drafts/", DeploymentDraftsView.as_view(), name="deployment-drafts"),
    path("notifications/preferences/", PreferencesView.as_view(), name="notification-preferences"),
    path("sessions/estimate/", EstimateView.as_view(), name="session-estimate"),
    path("sessions/<str:session_id>/place/", PlaceView.as_view(), name="session-place"),
    path("deployments/<str:deployment_id>/spec/", DeploymentSpecView.as_view(), name="deployment-spec"),
    path("sessions/<str:session_id>/spec/", SessionSpecView.as_view(), name="session-spec"),
    path("specs/", SpecsView.as_view(), name="specs"),
    path("admin/sessions/<str:session_id>/force-end/", ForceEndView.as_view(), name="admin-force-end"),
    path("admin/sessions/<str:session_id>/requeue/", RequeueView.as_view(), name="admin-requeue"),
    path("admin/configuration/", ConfigurationView.as_view(), name="admin-configuration"),
    path("admin/services/", ServicesView.as_view(), name="admin-services"),
    path("admin/services/log/", ServiceLogView.as_view(), name="admin-service-log"),
    path("admin/users/import/", UserImportView.as_view(), name="admin-user-import"),
    path("usage/", UsageView.as_view(), name="usage"),
    path("", include(app_patterns)),
    path("", include(folder_patterns)),
    *router.urls,
    re_path("", NotFoundView.as_view()),
]

urlpatterns = [
    path("v1/", include(v1_patterns)),
    path("schema/", SpectacularAPIView.as_view(permission_classes=[AllowAny]), name="api-schema"),
    path("specs.schema.json", spec_schema, name="spec-schema"),
    path("docs/", docs_view, name="api-docs"),
]
