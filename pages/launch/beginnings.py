"""What the launch form begins with: what a link names, a session to launch again, the last launch, or small amounts.

Each returns the form's initial values, only those that it has something to say about.
"""

import re
from datetime import timedelta
from typing import Any, Final

from django.http import QueryDict

from imports import services
from imports.models import ImportTarget
from pages.launch.fields import ChosenFolders
from pages.launch.offer import LaunchOffer
from pages.launch.steps import ARRAY
from resources.amounts.units import GIB, MIB, exact_size_text, fgpu_text
from resources.models import Preset
from sessions.launching.mounts import OfferedFolder
from sessions.models import SESSION_ID, Session

AMOUNTS: Final = ("cpu", "memory", "shared_memory", "fgpu")
AS_WRITTEN: Final = (  # in links
    *("name", "count", "cpu", "fgpu", "command", "time_limit", "not_before", "gpu_model"),
    *("cluster_size", "cluster_max_size", "cluster_mode", "cluster_max_restarts"),
    *("cluster_main_cpu", "cluster_main_fgpu"),
    *ARRAY,
)
SIZES: Final = ("memory", "shared_memory", "gpu_memory", "min_gpu_memory", "cluster_main_memory")
CUSTOM: Final = ""  # the preset field's value for custom allocation
FLAGS: Final = ("is_preemptible", "is_any_group", "cluster_shares_gpus", "cluster_runs_on_all")
LINK_NAMES: Final = frozenset(
    (
        *(*AS_WRITTEN, *FLAGS, *SIZES),
        *("again", "array", "import", "image", "group", "other_group", "project", "preset", "folder", "env", "fresh"),
    )
)
UNITS: Final = ((timedelta(days=1), "d"), (timedelta(hours=1), "h"), (timedelta(minutes=1), "m"))

Initial = dict[str, Any]


def link_of(query: QueryDict) -> str:
    """Return the part of a page's query that says what the form begins with; "" without."""
    known = QueryDict(mutable=True)
    for name, texts in query.lists():
        if name in LINK_NAMES:
            known.setlist(name, texts)
    return known.urlencode()


def from_nothing(offer: LaunchOffer) -> Initial:
    """Return the first preset of the first group, or small amounts."""
    group = offer.groups[0] if offer.groups else None
    start = offer.first_preset(group) or Preset(cpu=1, memory=2 * GIB, shared_memory=64 * MIB)
    return {
        "image": offer.first_image.pk if offer.first_image else None,
        "resource_group": group.pk if group else None,
        "project": None,
        "preset": start.pk or CUSTOM,
        "count": 1,
        **_amounts(start),
    }


def from_last_launch(offer: LaunchOffer) -> Initial:
    """Return what the user chose last: environment, group, allocation, cluster and folders; {} without. Two queries."""
    session = _sessions().mains().filter(owner=offer.owner).order_by("-created_at").first()
    return _of_session(offer, session) if session else {}


def from_link(offer: LaunchOffer, query: QueryDict) -> Initial:
    """Return what the query of a launch link names; what does not exist is left out."""
    initial = again(offer, query.get("again", "")) | from_import(offer, query.get("import", ""))
    if image := query.get("image"):
        initial |= _image(offer, image)
    groups = _named_groups(offer, query.getlist("group")[-1:])
    if groups:
        initial["resource_group"] = groups[0]
    if "other_group" in query:
        initial["other_groups"] = _named_groups(offer, query.getlist("other_group"))
    if "project" in query:
        named_projects = [each.pk for each in offer.projects if each.name == query.get("project")]
        initial["project"] = next(iter(named_projects), None)
    changes: Initial = {name: query.get(name, "") for name in AS_WRITTEN if name in query}
    changes |= {name: _with_unit(query.get(name, "")) for name in SIZES if name in query}
    changes |= {name: query[name] == "on" for name in FLAGS if name in query}
    initial |= changes
    chosen = initial.get("resource_group") or (offer.groups[0].pk if offer.groups else None)
    presets = [each for each in offer.presets if each.group_id in (None, chosen)]
    named = [each for each in presets if query.get("preset") in (each.name, str(each.pk))]
    if named:
        initial |= {"preset": named[-1].pk, **_amounts(named[-1])}
    elif any(name in changes for name in (*AMOUNTS, "gpu_memory")):
        initial["preset"] = CUSTOM
    if "folder" in query:
        initial["mounts"] = _named_folders(offer, query.getlist("folder"))
    if "env" in query:
        initial["environment"] = [
            (name, value) for name, _, value in (each.partition("=") for each in query.getlist("env"))
        ]
    return initial


def from_import(offer: LaunchOffer, import_id: str) -> Initial:
    """Return what a finished import of the user's proposes; {} without."""
    found = offer.imports.filter(pk=import_id).first() if import_id.isalnum() else None
    if found is None:
        return {}
    options = services.launch_options(found)
    asked = {
        "cpu": options.cpu,
        "memory": exact_size_text(options.memory) if options.memory else None,
        "fgpu": fgpu_text(options.fgpu) if options.fgpu is not None else None,
    }
    initial: Initial = {name: value for name, value in asked.items() if value is not None}
    if initial:
        initial["preset"] = CUSTOM
    if options.image in offer.images:
        initial["image"] = options.image.pk if options.image else None
    if options.mounts:
        initial["mounts"] = {each.folder.pk: (each.path, bool(each.is_read_only)) for each in options.mounts}
    return initial | {"from_import": found.pk, "import_installs": True}


def again(offer: LaunchOffer, session_id: str) -> Initial:
    """Return all that a session was launched with: any that the user may see, but variables only of their own."""
    if not re.fullmatch(SESSION_ID, session_id):
        return {}
    session = _sessions().operable_by(offer.owner).filter(pk=session_id).first()
    if session is None:
        return {}
    is_own = session.owner_id == offer.owner.pk
    has_main = session.cluster is not None and session.cluster.main_differs
    source = _sessions().get(cluster=session.cluster, rank=1) if has_main else session
    return _of_session(offer, source) | {
        "name": session.name if session.is_final else "",
        "environment": list(session.environment.items()) if is_own else [],
        "command": session.command if is_own else "",
        "time_limit": span_of(session.time_limit),
        "is_preemptible": session.is_preemptible,
        "other_groups": _groups_of(offer, session)[1:],
        "gpu_model": session.gpu_model,
        "min_gpu_memory": _own_gpu_memory(session),
        "cluster_runs_on_all": is_own and session.cluster is not None and session.cluster.runs_on_all,
        **_import_of(offer, session),
    }


def _import_of(offer: LaunchOffer, session: Session) -> Initial:
    """Return the import of the user's with which a session was launched; {} without."""
    launched = offer.imports.filter(session=session, target=ImportTarget.SESSION).first()
    return {"from_import": launched.origin_id or launched.pk, "import_installs": launched.installs} if launched else {}


def _sessions() -> Any:
    return Session.objects.select_related("image", "cluster").prefetch_related("mounts")


def _of_session(offer: LaunchOffer, session: Session) -> Initial:
    """Return a session's environment, group, allocation, cluster and folders, as far as they may still be chosen."""
    initial: Initial = {"preset": _preset_of(offer, session), **_amounts(session), **_cluster_of(session)}
    initial |= _by_gpu_memory(session)
    if session.image in offer.images:
        initial["image"] = session.image.pk
    if groups := _groups_of(offer, session):
        initial["resource_group"] = groups[0]
    initial["project"] = session.project_id if session.project_id in {each.pk for each in offer.projects} else None
    offered = {each.folder.pk for each in offer.folders if not each.is_automatic}
    initial["mounts"] = {
        mount.folder_id: (mount.path, mount.is_read_only)
        for mount in session.mounts.all()
        if mount.folder_id in offered
    }
    return initial


def _groups_of(offer: LaunchOffer, session: Session) -> list[int]:
    """Return the ids of the groups in which a session could start, the preferred first, if the user may use them."""
    offered = {group.pk for group in offer.groups}
    return [pk for pk in session.group_choices or [session.resource_group_id] if pk in offered]


def _named_groups(offer: LaunchOffer, names: list[str]) -> list[int]:
    """Return the ids of the groups of these names or ids."""
    return [group.pk for group in offer.groups if group.name in names or str(group.pk) in names]


def _own_gpu_memory(session: Session) -> str:
    """Return the least GPU memory that was asked for beyond what the environment needs."""
    least = session.min_gpu_memory
    return exact_size_text(least) if least > session.image.min_gpu_memory and not session.gpu_memory else ""


def _by_gpu_memory(session: Session) -> Initial:
    """Return the GPU memory that was asked for in place of a share, and the least share beside it."""
    if not session.gpu_memory:
        return {}
    least = session.min_fgpu if session.min_fgpu > session.image.min_fgpu else 0
    return {"gpu_memory": exact_size_text(session.gpu_memory), "fgpu": fgpu_text(least)}


def _cluster_of(session: Session) -> Initial:
    names = ("size", "max_size", "mode", "shares_gpus", "max_restarts")
    if session.cluster is None:
        return {}
    initial: Initial = {f"cluster_{name}": getattr(session.cluster, name) for name in names}
    if session.cluster.main_differs:
        main = session.main
        initial |= {"cluster_main_cpu": main.cpu, "cluster_main_memory": exact_size_text(main.memory)}
        initial["cluster_main_fgpu"] = fgpu_text(main.fgpu)
    return initial


def _preset_of(offer: LaunchOffer, session: Session) -> int | str:
    """Return the preset with the session's amounts, or that of custom allocation."""
    same = [
        preset.pk
        for preset in offer.presets
        if preset.group_id in (None, session.resource_group_id)
        and all(getattr(preset, name) == getattr(session, name) for name in (*AMOUNTS[:3], "gpu_memory"))
        and preset.fgpu == (session.min_fgpu if session.gpu_memory else session.fgpu)
    ]
    return same[-1] if same else CUSTOM


def _amounts(source: Preset | Session) -> Initial:
    return {
        "cpu": source.cpu,
        "memory": exact_size_text(source.memory),
        "shared_memory": exact_size_text(source.shared_memory),
        "fgpu": fgpu_text(source.fgpu),
        "gpu_memory": exact_size_text(source.gpu_memory) if source.gpu_memory else "",
    }


def _image(offer: LaunchOffer, text: str) -> Initial:
    """Return the image of this id or reference; one that is not offered is named, and the form says what is wrong."""
    for image in offer.images:
        if text in (str(image.pk), image.reference):
            return {"image": image.pk, "image_name": ""}
    return {} if text.isdecimal() else {"image_name": text}


def _named_folders(offer: LaunchOffer, names: list[str]) -> ChosenFolders:
    """Return the folders of these ids, or names of the user's own."""
    return {each.folder.pk: ("", False) for each in offer.folders if folder_names(offer, each) & set(names)}


def folder_names(offer: LaunchOffer, offered: OfferedFolder) -> set[str]:
    """Return how a link may name a folder: by its id, or the name of one of the user's own; empty if automatic."""
    if offered.is_automatic:
        return set()
    is_own = offered.folder.owner_id == offer.owner.pk
    return {offered.folder.pk, offered.folder.name} if is_own else {offered.folder.pk}


def _with_unit(text: str) -> str:
    """Return a size with its unit; a bare number in a link is bytes."""
    return exact_size_text(int(text)) if text.isdecimal() and len(text) < 20 else text


def span_of(span: timedelta | None) -> str:
    """Return a length of time as the form reads it: "2d", "4h", "90m"."""
    if span is None:
        return ""
    return next((f"{span // unit}{name}" for unit, name in UNITS if not span % unit), f"{span // UNITS[-1][0]}m")
