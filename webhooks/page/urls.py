"""Routes of the pages of webhooks."""

from django.urls import path

from webhooks.page import views

app_name = "webhooks"

urlpatterns = [
    path("", views.webhook_list, name="list"),
    path("<int:webhook_id>/", views.detail, name="detail"),
    path("<int:webhook_id>/rotate/", views.rotate, name="rotate"),
    path("<int:webhook_id>/delete/", views.delete, name="delete"),
    path("<int:webhook_id>/test/", views.send_test, name="test"),
    path("<int:webhook_id>/deliveries/<int:delivery_id>/", views.delivery, name="delivery"),
    path("<int:webhook_id>/deliveries/<int:delivery_id>/resend/", views.resend, name="resend"),
]
