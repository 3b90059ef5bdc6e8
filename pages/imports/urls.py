"""Routes of imports and of the credentials that open private sources."""

from django.urls import path

from pages.imports import credential_views, views

app_name = "imports"

urlpatterns = [
    path("", views.new, name="new"),
    path("credentials/", credential_views.credential_list, name="credentials"),
    path("credentials/<int:credential_id>/delete/", credential_views.delete, name="delete-credential"),
    path("<slug:import_id>/", views.detail, name="detail"),
    path("<slug:import_id>/cancel/", views.cancel, name="cancel"),
]
