"""Routes of launch links, which stand in other people's documents: they stay as they are."""

from django.urls import path

from pages.sharing import views

urlpatterns = [
    path("launch", views.launch_link, name="launch"),
    path("launch/badge.svg", views.badge, {"theme": "light"}, name="launch-badge"),
    path("launch/badge-dark.svg", views.badge, {"theme": "dark"}, name="launch-badge-dark"),
]
