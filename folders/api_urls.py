"""API addresses of the files in folders, and of storage roots."""

from django.urls import include, path, re_path

from folders.contents.api import (
    FolderEntriesView,
    FolderMoveView,
    FolderTextView,
    FolderTrashItemView,
    FolderTrashRestoreView,
    FolderTrashView,
)
from folders.downloads.api import DownloadView, ZipView
from folders.models import FOLDER_ID
from folders.uploads.api import UploadsView, UploadView

_ITEM = "(?P<item_id>[0-9a-f]{32})"

_in_folder = [
    re_path(r"^entries/$", FolderEntriesView.as_view(), name="folder-entries"),
    re_path(r"^entries/move/$", FolderMoveView.as_view(), name="folder-move"),
    re_path(r"^trash/$", FolderTrashView.as_view(), name="folder-trash"),
    re_path(rf"^trash/{_ITEM}/$", FolderTrashItemView.as_view(), name="folder-trash-item"),
    re_path(rf"^trash/{_ITEM}/restore/$", FolderTrashRestoreView.as_view(), name="folder-trash-restore"),
    re_path(r"^text/$", FolderTextView.as_view(), name="folder-text"),
    # Below `transfers.handover.PATH`:
    path("uploads/", UploadsView.as_view(), name="folder-uploads"),
    path("uploads/<uuid:upload_id>/", UploadView.as_view(), name="folder-upload"),
    path("download/", DownloadView.as_view(), name="folder-download"),
    path("zip/", ZipView.as_view(), name="folder-zip"),
]

urlpatterns = [re_path(rf"^folders/(?P<folder_id>{FOLDER_ID})/", include(_in_folder))]
