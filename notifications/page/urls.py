"""Routes of the pages of notifications."""

from django.urls import path

from notifications.page import views

app_name = "notifications"

urlpatterns = [
    path("", views.notification_list, name="list"),
    path("panel/", views.panel, name="panel"),
    path("pending/", views.pending, name="pending"),
    path("shown/", views.shown, name="shown"),
    path("read/", views.read, name="read"),
    path("preferences/", views.preferences, name="preferences"),
    path("announcements/", views.announcement_list, name="announcements"),
    path("announcements/<int:announcement_id>/dismiss/", views.dismiss, name="dismiss"),
]
