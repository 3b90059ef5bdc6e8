"""URLs of all pages, the API and the admin."""

from django.contrib import admin
from django.urls import include, path

from gpuplatform import views
from gpuplatform.administration.use_plots import group_use, host_use
from operations.configuration import views as configuration_views
from operations.metrics.views import metrics
from operations.services import views as service_views
from pages.overview.summary import home
from pages.palette.views import palette
from scheduler.views import simulation

handler500 = "gpuplatform.serving.unavailable.handle_error"

urlpatterns = [
    path("", include("pages.overview.urls")),
    path("", home, name="home"),  # the summary by the name that needs no namespace
    path("accounts/", include("accounts.signing_in.urls")),
    path("accounts/", include("accounts.urls")),
    path("", include("pages.sharing.urls")),
    path("sessions/", include("pages.urls")),
    path("arrays/", include("pages.arrays.urls")),
    path("imports/", include("pages.imports.urls")),
    path("deployments/", include("pages.deployments.urls")),
    path("folders/", include("folders.pages.urls")),
    path("help/", include("pages.help.urls")),
    path("palette/", palette, name="palette"),
    path("notifications/", include("notifications.page.urls")),
    path("webhooks/", include("webhooks.page.urls")),
    path("", include("endpoints.urls")),
    path("healthz", views.healthz, name="healthz"),
    path("readyz", views.readyz, name="readyz"),
    path("cli/gpuplatform", views.client_zipapp, name="cli"),
    path("client/<str:name>", views.client_wheel, name="client"),
    path("metrics", metrics, name="metrics"),
    path("admin/login/", views.admin_sign_in, name="admin-sign-in"),
    path("admin/simulation/", admin.site.admin_view(simulation), name="simulation"),
    path("admin/groups/<int:group_id>/use/", admin.site.admin_view(group_use), name="group-use"),
    path("admin/hosts/<int:host_id>/use/", admin.site.admin_view(host_use), name="host-use"),
    path("admin/services/", admin.site.admin_view(service_views.services), name="services"),
    path("admin/services/<slug:name>/log/", admin.site.admin_view(service_views.log), name="service-log"),
    path("admin/configuration/", admin.site.admin_view(configuration_views.import_view), name="configuration"),
    path("admin/configuration/export/", admin.site.admin_view(configuration_views.export), name="configuration-export"),
    path("admin/", admin.site.urls),
    path("api/", include("gpuplatform.api")),
]
