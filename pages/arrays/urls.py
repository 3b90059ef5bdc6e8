"""Routes of the pages of arrays."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from pages.arrays import act_views, views
from sessions.models import SESSION_ID


class ArrayIdConverter(StringConverter):
    """Matches well-formed ids, so that others never reach the database."""

    regex = SESSION_ID


register_converter(ArrayIdConverter, "array")
app_name = "arrays"

urlpatterns = [
    path("", views.array_list, name="list"),
    path("<array:array_id>/", views.detail, name="detail"),
    path("<array:array_id>/tasks.csv", views.export, name="csv"),
    path("<array:array_id>/cancel/", act_views.cancel, name="cancel"),
    path("<array:array_id>/retry/", act_views.retry, name="retry"),
    path("<array:array_id>/hold/", act_views.hold, name="hold"),
    path("<array:array_id>/release/", act_views.release, name="release"),
    path("<array:array_id>/change/", act_views.change, name="change"),
]
