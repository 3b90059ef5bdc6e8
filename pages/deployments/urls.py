"""Routes of the pages of deployments."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from pages.deployments import (
    act_views,
    log_views,
    scaling_views,
    token_views,
    try_views,
    views,
)
from pages.deployments.revising import drafts, placement
from pages.deployments.revising import views as revision_views
from sessions.models import SESSION_ID


class DeploymentIdConverter(StringConverter):
    """Matches well-formed ids, so that others never reach the database."""

    regex = SESSION_ID


register_converter(DeploymentIdConverter, "deployment")
app_name = "deployments"

urlpatterns = [
    path("", views.deployment_list, name="list"),
    path("new/", revision_views.new, name="new"),
    path("new/placement/", placement.of_creation, name="new-placement"),
    path("from-folder/", drafts.from_folder, name="from-folder"),
    path("offer/", drafts.offer, name="offer"),
    path("<deployment:deployment_id>/", views.detail, name="detail"),
    path("<deployment:deployment_id>/placement/", placement.of_change, name="placement"),
    path("<deployment:deployment_id>/revisions/new/placement/", placement.of_revision, name="revision-placement"),
    path("<deployment:deployment_id>/revisions/new/", revision_views.new_revision, name="new-revision"),
    path("<deployment:deployment_id>/revisions/<int:number>/activate/", act_views.activate, name="activate"),
    path("<deployment:deployment_id>/rollback/", act_views.rollback, name="rollback"),
    path("<deployment:deployment_id>/promote/", act_views.promote, name="promote"),
    path("<deployment:deployment_id>/restart/", act_views.restart, name="restart"),
    path("<deployment:deployment_id>/scale/", act_views.scale, name="scale"),
    path("<deployment:deployment_id>/end/", act_views.end, name="end"),
    path("<deployment:deployment_id>/logs/", log_views.deployment_logs, name="logs"),
    path("<deployment:deployment_id>/logs/download/", log_views.download_logs, name="logs-download"),
    path("<deployment:deployment_id>/hosts/", views.hosts, name="hosts"),
    path("<deployment:deployment_id>/settings/", views.settings, name="settings"),
    path("<deployment:deployment_id>/scaling/", scaling_views.change, name="scaling"),
    path("<deployment:deployment_id>/sleep/", scaling_views.sleep, name="sleep"),
    path("<deployment:deployment_id>/wake/", scaling_views.wake, name="wake"),
    path("<deployment:deployment_id>/scaling/rules/", scaling_views.add_rule, name="add-rule"),
    path("<deployment:deployment_id>/scaling/rules/<int:rule_id>/", scaling_views.change_rule, name="change-rule"),
    path(
        "<deployment:deployment_id>/scaling/rules/<int:rule_id>/remove/", scaling_views.remove_rule, name="remove-rule"
    ),
    path("<deployment:deployment_id>/try/", try_views.try_it, name="try"),
    path("<deployment:deployment_id>/try/token/", try_views.token, name="try-token"),
    path("<deployment:deployment_id>/tokens/", token_views.create, name="tokens"),
    path("<deployment:deployment_id>/tokens/limits/", token_views.change_limits, name="token-limits"),
    path("<deployment:deployment_id>/tokens/<int:token_id>/revoke/", act_views.revoke_token, name="revoke-token"),
]
