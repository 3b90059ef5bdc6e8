"""Routes of the help."""

from django.urls import path

from pages.help import views

app_name = "help"

urlpatterns = [
    path("", views.index, name="index"),
    path("keys/", views.keys, name="keys"),
    path("<slug:name>/", views.page, name="page"),
]
