"""Routes of the pages of data folders. Paths in a folder are in the query: names may hold any character."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from folders.models import FOLDER_ID
from folders.pages import browser_views, entry_views, list_views, text_views


class FolderIdConverter(StringConverter):
    """Matches well-formed folder ids, so that others never reach the database."""

    regex = FOLDER_ID


register_converter(FolderIdConverter, "folder")
app_name = "folders"

urlpatterns = [
    path("", list_views.folder_list, name="list"),
    path("create/", list_views.create, name="create"),
    path("name/", list_views.name_check, name="name-check"),
    path("<folder:folder_id>/", browser_views.browse, name="browse"),
    path("<folder:folder_id>/file/", browser_views.show_file, name="file"),
    path("<folder:folder_id>/trash/", browser_views.trash_items, name="trash"),
    path("<folder:folder_id>/edit/", text_views.edit, name="edit"),
    path("<folder:folder_id>/new-directory/", entry_views.new_directory, name="new-directory"),
    path("<folder:folder_id>/new-file/", entry_views.new_file, name="new-file"),
    path("<folder:folder_id>/rename-entry/", entry_views.rename, name="rename-entry"),
    path("<folder:folder_id>/move-entries/", entry_views.move, name="move-entries"),
    path("<folder:folder_id>/trash-entries/", entry_views.trash, name="trash-entries"),
    path("<folder:folder_id>/restore-entries/", entry_views.restore, name="restore-entries"),
    path("<folder:folder_id>/delete-entries/", entry_views.delete, name="delete-entries"),
    path("<folder:folder_id>/empty-trash/", entry_views.empty_trash, name="empty-trash"),
    path("<folder:folder_id>/rename/", list_views.rename, name="rename"),
    path("<folder:folder_id>/share/", list_views.share, name="share"),
    path("<folder:folder_id>/share/<int:share_id>/withdraw/", list_views.withdraw, name="withdraw"),
    path("<folder:folder_id>/leave/", list_views.leave, name="leave"),
    path("<folder:folder_id>/delete/", list_views.trash, name="trash-folder"),
    path("<folder:folder_id>/restore/", list_views.restore, name="restore"),
    path("<folder:folder_id>/delete-for-ever/", list_views.delete, name="delete"),
]
