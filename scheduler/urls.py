"""URL patterns of the scheduler's pages."""

from django.urls import path

from scheduler import views

app_name = "scheduler"

urlpatterns = [path("advice/", views.advice, name="advice")]
