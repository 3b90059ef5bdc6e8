"""URLs of all pages, the API and the admin."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from gpuplatform import views
from scheduler.views import simulation

handler500 = "gpuplatform.unavailable.handle_error"

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="sessions:list"), name="home"),
    path("accounts/", include("accounts.urls")),
    path("sessions/", include("pages.urls")),
    path("folders/", include("folders.urls")),
    path("help/", include("pages.help.urls")),
    path("notifications/", include("notifications.urls")),
    path("", include("endpoints.urls")),
    path("healthz", views.healthz, name="healthz"),
    path("admin/login/", views.admin_sign_in),
    path("admin/simulation/", admin.site.admin_view(simulation), name="simulation"),
    path("admin/", admin.site.urls),
    path("api/", include("gpuplatform.api")),
]
