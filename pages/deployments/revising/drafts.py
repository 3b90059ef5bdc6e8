"""What a folder proposes for the form of a deployment: its definition file, and models of MLflow."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render

from accounts.models import User
from accounts.requests import UserRequest, signed_in_page
from deployments.definitions import services
from deployments.definitions.drafts import DefinitionError, Draft, Mistake
from deployments.models import HealthKind, RuntimeVariant
from deployments.validation import name_error
from folders.contents import services as contents
from folders.errors import FolderError
from folders.files.errors import FilesError
from folders.models import FOLDER_ID, Folder
from pages.deployments.forms import DeploymentForm, RevisionForm, variants
from resources.models import Image


@dataclass(frozen=True, slots=True)
class OfferedDraft:
    """A draft, and what it fills into the form: {name of a field: value}."""

    draft: Draft
    values: dict[str, Any]

    @property
    def texts(self) -> dict[str, Any]:
        """The values as a browser fills them in."""
        fields = DeploymentForm.base_fields
        return {name: fields[name].prepare_value(value) for name, value in self.values.items()}


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a folder proposes, or why it cannot be said."""

    drafts: Sequence[OfferedDraft] = ()
    is_complete: bool = True
    problem: str = ""
    source: str = ""  # of the mistakes
    mistakes: Sequence[Mistake] = field(default_factory=tuple)

    @property
    def usable(self) -> list[OfferedDraft]:
        """The drafts that fill something."""
        return [each for each in self.drafts if each.values]


def proposal_of(user: User, folder_id: str, path: str = "") -> Proposal | None:
    """Return what a directory of a folder proposes; None without a folder that the user may read."""
    if (folder := _readable(user, folder_id)) is None:
        return None
    try:
        found = services.drafts_of(user, folder, path)
    except DefinitionError as error:
        return Proposal(source=error.source, mistakes=error.mistakes)
    except (FilesError, FolderError) as error:
        return Proposal(problem=str(error))
    runtimes = _runtimes(user, {each.revision.get("variant", "") for each in found.drafts})
    drafts = [OfferedDraft(each, _values(folder, each, runtimes)) for each in found.drafts]
    return Proposal(drafts, found.is_complete)


@signed_in_page
def from_folder(request: UserRequest) -> HttpResponse:
    """Show what a folder proposes, as the part of the form that offers it."""
    asked = request.GET
    proposal = proposal_of(request.user, asked.get("model_folder", ""), asked.get("path", ""))
    return render(request, "deployments/_drafts.html", {"proposal": proposal})


@signed_in_page
def offer(request: UserRequest) -> HttpResponse:
    """Show a link to the form where a folder proposes something, for the page of a session that mounts it."""
    folder, is_offered = _readable(request.user, request.GET.get("folder", "")), False
    if folder:
        with suppress(FilesError, FolderError):
            listing = contents.list_entries(request.user, folder)
            is_offered = services.proposes([each.name for each in listing.entries], "")
    return render(request, "deployments/_offer.html", {"folder": folder, "is_offered": is_offered})


def fill(form: RevisionForm, proposal: Proposal | None, name: str) -> None:
    """Have a form that was not posted show the draft of this name, or the only one."""
    usable = proposal.usable if proposal else []
    chosen = [each for each in usable if not name or name in (each.draft.name, each.draft.source)]
    if chosen and (name or len(chosen) == 1):
        form.initial.update({key: value for key, value in chosen[0].values.items() if key in form.fields})


def _readable(user: User, folder_id: str) -> Folder | None:
    if not re.fullmatch(FOLDER_ID, folder_id):
        return None
    return Folder.objects.readable_by(user).filter(pk=folder_id, trashed_at=None).select_related("root").first()


def _runtimes(user: User, names: set[str]) -> dict[str, dict[str, Any]]:
    """Return what each of these runtimes fills in, with its variables as a mapping."""
    texts, found = variants(), {}
    for variant in RuntimeVariant.objects.filter(is_enabled=True, name__in=names):
        filled = {"variant": variant.pk, **texts.get(str(variant.pk), {}), "environment": variant.environment}
        images = Image.objects.usable_by(user).filter(apps__name=variant.name)
        if image := images.order_by("environment", "-version").first():
            filled["image"] = image.pk
        found[variant.name] = filled
    return found


def _values(folder: Folder, draft: Draft, runtimes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    revision = dict(draft.revision)
    if not revision:
        return {}
    name, health = revision.pop("variant", ""), revision.pop("health")
    values: dict[str, Any] = {"model_folder": folder.pk, "variant": "", "health_path": "", "is_tcp": False}
    if runtime := runtimes.get(name):
        values |= runtime
        revision["environment"] = {**runtime["environment"], **revision["environment"]}
    if health:
        values |= {
            "is_tcp": health.pop("kind") == HealthKind.TCP,
            "health_path": health.pop("path", ""),
            **health,
        }
    return values | revision | ({} if name_error(draft.name) else {"name": draft.name})
