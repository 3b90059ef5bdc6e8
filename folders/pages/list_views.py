"""Pages of data folders as a whole: list, create, rename, share, trash. Rules are in `services`."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django_htmx.http import HttpResponseClientRedirect, trigger_client_event

from accounts.requests import UserRequest, signed_in_act, signed_in_form, signed_in_page
from folders.errors import FolderError
from folders.models import Folder
from folders.names import HOME, folder_name_error
from folders.pages import queries
from folders.pages.forms import CreateFolderForm, RenameFolderForm, ShareFolderForm
from folders.pages.queries import FolderTab
from folders.pages.responses import done, open_folder, open_own_folder, render_dialog
from folders.sftp_command import sftp_command
from folders.sharing import folders as services

TAB_NAMES: dict[str, FolderTab] = {tab.value: tab for tab in FolderTab}


@signed_in_page
def folder_list(request: UserRequest) -> HttpResponse:
    """Show the folders of a tab with the use of storage; return only the changing part to htmx."""
    tab = TAB_NAMES.get(request.GET.get("tab", ""), FolderTab.MINE)
    sort = request.GET.get("sort", queries.DEFAULT_SORT)
    bars = queries.storage_bars(request.user)
    context = {
        "tab": tab,
        "tabs": queries.tab_counts(request.user),
        "sort": sort,
        "folders": queries.listed(request.user, tab, sort),
        "bars": bars,
        "warnings": queries.storage_warnings(request.user, bars),
        "max_folders": request.user.policy.max_folders,
        "sftp_command": sftp_command(),
    }
    return render(request, "folders/_list.html" if request.htmx else "folders/list.html", context)


@signed_in_form
def create(request: UserRequest) -> HttpResponse:
    """Ask for name and storage of a new folder, or create it and open it."""
    return create_with(request, lambda folder: go(request, reverse("folders:browse", args=[folder.pk])))


def create_with(request: UserRequest, answer: Callable[[Folder], HttpResponse]) -> HttpResponse:
    """Ask for name and storage of a new folder, or create it and return the answer to that."""
    form = CreateFolderForm(request.user, request.POST or None)
    if request.method == "POST" and form.is_valid() and (folder := form.save()):
        return answer(folder)
    context = {"form": form, "roots": queries.root_choices(), "action": request.path}
    status = 422 if form.is_bound else 200
    return render_dialog(request, "folders/_create.html", context, title=_("New folder"), status=status)


@signed_in_page
def name_check(request: UserRequest) -> HttpResponse:
    """Say whether a folder may have this name, and what a name with a dot means, while it is being typed."""
    name = request.GET.get("name", "").strip()
    taken = Folder.objects.live().filter(owner=request.user, name=name.replace("\0", "")).exists()
    error = folder_name_error(name) or ("You have a folder of this name already." if taken else "") if name else ""
    return render(request, "folders/_name_note.html", {"name": name, "error": error, "home": HOME})


@signed_in_form
def rename(request: UserRequest, folder_id: str) -> HttpResponse:
    """Ask for another name, or rename the folder."""
    folder = open_own_folder(request, folder_id)
    old_name = folder.name
    form = RenameFolderForm(request.POST if request.method == "POST" else None, initial={"name": old_name})
    if form.is_bound and form.is_valid() and form.save(folder):
        return done(request, f"Renamed {old_name} to {folder.name}.", reverse("folders:browse", args=[folder.pk]))
    context = {"folder": folder, "old_name": old_name, "form": form}
    status = 422 if form.is_bound else 200
    return render_dialog(
        request, "folders/_rename.html", context, title=_("Rename %(name)s") % {"name": old_name}, status=status
    )


@signed_in_form
def share(request: UserRequest, folder_id: str) -> HttpResponse:
    """Show with whom the folder is shared, or share it with one more user or in another way."""
    folder = open_own_folder(request, folder_id)
    form = ShareFolderForm(request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid() and form.save(folder):
        return _shares(request, folder, ShareFolderForm(), has_changed=True)
    return _shares(request, folder, form, status=422 if form.is_bound else 200)


@signed_in_act
def withdraw(request: UserRequest, folder_id: str, share_id: int) -> HttpResponse:
    """Withdraw a share of the user's folder."""
    folder = open_own_folder(request, folder_id)
    services.withdraw(get_object_or_404(folder.shares, pk=share_id))
    return _shares(request, folder, ShareFolderForm(), has_changed=True)


@signed_in_form
def leave(request: UserRequest, folder_id: str) -> HttpResponse:
    """Ask, or give up a folder that another user has shared."""
    folder = open_folder(request, folder_id).folder
    shared = get_object_or_404(folder.shares, user=request.user)
    if request.method != "POST":
        return render_dialog(
            request, "folders/_leave.html", {"folder": folder}, title=_("Leave %(name)s") % {"name": folder.name}
        )
    services.withdraw(shared)
    messages.success(request, f"{folder.name} is not shared with you any more.")
    return go(request, reverse("folders:list") + "?tab=shared")


@signed_in_form
def trash(request: UserRequest, folder_id: str) -> HttpResponse:
    """Ask, or move the folder to the trash."""
    folder = open_own_folder(request, folder_id)
    context: dict[str, Any] = {"folder": folder, "share_count": folder.shares.count()}
    if request.method == "POST":
        try:
            services.trash(folder)
        except FolderError as error:
            context["problem"] = str(error)
        else:
            text = f"{folder.name} is in the trash now; it can be restored there."
            messages.success(request, text, extra_tags=reverse("folders:restore", args=[folder.pk]))
            return go(request, reverse("folders:list"))
    status = 409 if "problem" in context and not request.htmx else 200
    return render_dialog(
        request,
        "folders/_trash_folder.html",
        context,
        title=_("Delete %(name)s") % {"name": folder.name},
        status=status,
    )


@signed_in_form
def restore(request: UserRequest, folder_id: str) -> HttpResponse:
    """Ask under which name, or take the folder out of the trash: under its own, where none is given."""
    folder = open_own_folder(request, folder_id)
    given = request.POST if "name" in request.POST else {"name": folder.name}
    form = RenameFolderForm(given if request.method == "POST" else None, initial={"name": folder.name})
    if form.is_bound and form.is_valid():
        form.ask(lambda: services.restore(folder, form.cleaned_data["name"]))
        if not form.errors:
            messages.success(request, f"{folder.name} is restored.")
            return go(request, reverse("folders:list"))
    context = {"folder": folder, "form": form}
    status = 422 if form.is_bound else 200
    return render_dialog(request, "folders/_restore.html", context, title=f"Restore {folder.name}", status=status)


@signed_in_form
def delete(request: UserRequest, folder_id: str) -> HttpResponse:
    """Ask, or delete a folder in the trash for ever."""
    folder = open_own_folder(request, folder_id)
    context: dict[str, Any] = {"folder": folder}
    if request.method == "POST":
        try:
            services.delete_forever(folder)
        except FolderError as error:
            context["problem"] = str(error)
        else:
            messages.success(request, f"{folder.name} is deleted.")
            return go(request, reverse("folders:list") + "?tab=trash")
    status = 409 if "problem" in context and not request.htmx else 200
    return render_dialog(
        request, "folders/_delete.html", context, title=_("Delete %(name)s") % {"name": folder.name}, status=status
    )


def _shares(
    request: UserRequest, folder: Folder, form: ShareFolderForm, *, status: int = 200, has_changed: bool = False
) -> HttpResponse:
    context = {"folder": folder, "form": form, "shares": folder.shares.select_related("user")}
    if has_changed and not request.htmx:
        return redirect("folders:share", folder.pk)
    response = render_dialog(
        request, "folders/_share.html", context, title=_("Share %(name)s") % {"name": folder.name}, status=status
    )
    return trigger_client_event(response, "live:changed", {}) if has_changed else response


def go(request: UserRequest, url: str) -> HttpResponse:
    """Send the browser to another page, out of a dialog too."""
    return HttpResponseClientRedirect(url) if request.htmx else redirect(url)
