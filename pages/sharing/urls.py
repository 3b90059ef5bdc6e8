"""Routes of launch links, which stand in other people's documents: they stay as they are; and of a spec file."""

from django.urls import path
from django.views.generic import RedirectView

from pages.sharing import spec_views, views

urlpatterns = [
    path("launch", views.launch_link, name="launch"),
    path(
        "launch/",
        RedirectView.as_view(pattern_name="launch", query_string=True, http_method_names=["get", "head"]),
        name="launch-slash",
    ),
    path("launch/badge.svg", views.badge, {"theme": "light"}, name="launch-badge"),
    path("deployments/<slug:deployment_id>/spec/", spec_views.deployment_file, name="deployment-file"),
    path("launch/badge-dark.svg", views.badge, {"theme": "dark"}, name="launch-badge-dark"),
]
