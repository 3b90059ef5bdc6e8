"""Routes of the session pages."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from pages.launch import folder_views as launch_folder_views
from pages.launch import views as launch_views
from pages.launch.gallery import views as gallery_views
from pages.launch.spec_files import views as spec_file_views
from pages.session import (
    conversion_views,
    ending_views,
    extend_views,
    less_views,
    parking_views,
    rename_views,
    resize_views,
    terminal_views,
    views,
)
from pages.session.logs import views as log_views
from pages.session_list import views as list_views
from pages.sharing import spec_views
from pages.sharing import views as sharing_views
from sessions.models import SESSION_ID


class SessionIdConverter(StringConverter):
    """Matches well-formed session ids, so that others never reach the database."""

    regex = SESSION_ID


register_converter(SessionIdConverter, "session")
app_name = "sessions"

urlpatterns = [
    path("", list_views.session_list, name="list"),
    path("csv/", list_views.export, name="list-csv"),
    path("columns/", list_views.choose_columns, name="list-columns"),
    path("launch/", launch_views.launch, name="launch"),
    path("launch/advice/", launch_views.advice, name="advice"),
    path("launch/file/", spec_file_views.from_file, name="launch-file"),
    path("launch/folders/new/", launch_folder_views.new_folder, name="launch-new-folder"),
    path("launch/images/", launch_views.image_builds, name="image-builds"),
    path("launch/start-over/", launch_views.start_over, name="launch-start-over"),
    path("launch/templates/", gallery_views.gallery, name="templates"),
    path("launch/templates/new/", gallery_views.edit, name="template-new"),
    path("launch/templates/<session:template_id>/", gallery_views.template, name="template"),
    path("launch/templates/<session:template_id>/edit/", gallery_views.edit, name="template-edit"),
    path("launch/templates/<session:template_id>/versions/", gallery_views.versions, name="template-versions"),
    path("launch/templates/<session:template_id>/delete/", gallery_views.delete, name="template-delete"),
    path("launch/templates/<session:template_id>/export/", gallery_views.export, name="template-export"),
    path("launch/<slug:slug>/", launch_views.launch, name="launch-step"),
    path("images/", conversion_views.image_list, name="private-images"),
    path("images/<int:image_id>/delete/", conversion_views.delete_image, name="delete-image"),
    path("conversions/<uuid:conversion_id>/recipe/", conversion_views.recipe, name="recipe"),
    path("terminate/", ending_views.terminate_many, name="terminate-many"),
    path("undo-ends/", ending_views.undo_ends, name="undo-ends"),
    path("<session:session_id>/", views.detail, name="detail"),
    path("<session:session_id>/logs/", log_views.session_logs, name="logs"),
    path("<session:session_id>/logs/download/", log_views.download_logs, name="logs-download"),
    path("<session:session_id>/terminate/", ending_views.terminate, name="terminate"),
    path("<session:session_id>/losses/", ending_views.losses, name="losses"),
    path("<session:session_id>/share/", sharing_views.share, name="share"),
    path("<session:session_id>/spec/", spec_views.session_file, name="spec"),
    path("<session:session_id>/rename/", rename_views.rename, name="rename"),
    path("<session:session_id>/resize/", resize_views.resize, name="resize"),
    path("<session:session_id>/less/", less_views.ask_for_less, name="less"),
    path("<session:session_id>/extend/", extend_views.extend, name="extend"),
    path("<session:session_id>/snooze/", extend_views.snooze, name="snooze"),
    path("<session:session_id>/park/", parking_views.park, name="park"),
    path("<session:session_id>/resume/", parking_views.resume, name="resume"),
    path("<session:session_id>/requeue/", parking_views.requeue, name="requeue"),
    path("<session:session_id>/convert/", conversion_views.convert, name="convert"),
    path("<session:session_id>/convert/changes/", conversion_views.changes, name="changes"),
    path("<session:session_id>/terminal/", terminal_views.terminal, name="terminal"),
]
