"""The dialog that creates a folder while the launch wizard is filled in."""

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django_htmx.http import reswap, retarget, trigger_client_event

from accounts.requests import UserRequest, signed_in_form
from folders.models import Folder
from folders.pages.list_views import create_with, go
from folders.pages.responses import DONE_EVENT
from pages.launch.fields import FolderRow


@signed_in_form
def new_folder(request: UserRequest) -> HttpResponse:
    """Ask for name and storage of a new folder, or create it and add it to the folders of the page, chosen."""
    return create_with(request, lambda folder: _chosen(request, folder))


def _chosen(request: UserRequest, folder: Folder) -> HttpResponse:
    """Return the folder's row for the list of the page; or that page, where the folder is mounted without a choice."""
    is_own = folder.owner_id == request.user.pk
    if not request.htmx or (is_own and folder.is_automounted):
        url = reverse("sessions:launch-step", args=["folders"])
        return go(request, url if request.htmx else f"{url}?folder={folder.pk}")
    row = FolderRow(folder=folder, is_own=is_own, is_shared_read_only=False, is_chosen=True)
    response = retarget(reswap(render(request, "launch/_folder_row.html", {"row": row}), "beforeend"), "#folders")
    text = _("Created %(name)s. It is chosen.") % {"name": folder.name}
    return trigger_client_event(response, DONE_EVENT, {"message": text})
