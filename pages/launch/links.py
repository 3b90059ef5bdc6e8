"""Links that fill the launch form in: those of a form and a session, without secrets, and what is wrong with one."""

from collections.abc import Collection
from dataclasses import asdict
from urllib.parse import urlencode

from django.http import QueryDict
from django.urls import reverse
from django.utils.translation import gettext as _

from imports.models import Import, ImportTarget
from pages.launch import beginnings
from pages.launch.array_form.forms import WizardForm
from pages.launch.array_form.initial import of_array
from pages.launch.beginnings import AS_WRITTEN, FLAGS, LINK_NAMES, SIZES
from pages.launch.offer import LaunchOffer
from pages.launch.steps import ARRAY
from resources.amounts.units import fgpu_text
from sessions.models import Session

TEXTS = ("name", "command", "time_limit", "gpu_model")
MAX_TASKS = 1000  # characters of the tasks of an array; a form with more is not in its link
MAX_SAID = 60  # characters of a value of the link

Query = list[tuple[str, object]]


def link_to(form: WizardForm) -> str:
    """Return the path of the review page with what is valid of the form; variables and start times are left out."""
    valid = form.cleaned_data
    query: Query = []
    if image := valid.get("image"):
        query.append(("image", image.reference))
    if group := valid.get("resource_group"):
        query.append(("group", group.name))
    query += [("other_group", other.name) for other in valid.get("other_groups", ())]
    if preset := valid.get("preset"):
        query.append(("preset", preset.name))
    else:
        query += [(name, valid[name]) for name in ("cpu", "memory", "shared_memory") if valid.get(name) is not None]
        if valid.get("fgpu") is not None:
            query.append(("fgpu", fgpu_text(valid["fgpu"])))
        if memory := valid.get("gpu_memory"):
            query.append(("gpu_memory", memory))
    if (count := valid.get("count")) and count > 1:
        query.append(("count", count))
    if cluster := form.cluster:
        query += [
            (f"cluster_{name}", fgpu_text(value) if name == "main_fgpu" else value)
            for name, value in asdict(cluster).items()
            if value is not True and (value or (value is not None and name == "main_fgpu"))
        ]
    texts = TEXTS if len(valid.get("array_tasks", "")) > MAX_TASKS else (*TEXTS, *ARRAY)
    query += [(name, text) for name in texts if name not in form.errors and (text := form[name].value())]
    query += [(name, "on") for name in FLAGS if valid.get(name)]
    if least := valid.get("min_gpu_memory"):
        query.append(("min_gpu_memory", least))
    query += [("folder", mount.folder.pk) for mount in valid.get("mounts", ())]
    return f"{reverse('sessions:launch-step', args=['review'])}?{urlencode(query)}"


def link_of(offer: LaunchOffer, session: Session) -> str:
    """Return the path that fills the form in as this session was launched; name, variables and folders are left out."""
    initial = beginnings.again(offer, session.pk) | {"name": ""}
    groups = {group.pk: group.name for group in offer.groups}
    chosen = [initial["resource_group"]] if "resource_group" in initial else []
    query: Query = [("image", session.image.reference)]
    if source := Import.objects.filter(session=session).exclude(target=ImportTarget.LOOK).first():
        query += [("repo", source.address), ("ref", source.ref), ("path", source.path)]
    query += [("group", groups[pk]) for pk in chosen]
    query += [("other_group", groups[pk]) for pk in initial.get("other_groups", ())]
    query += [(name, initial[name]) for name in (*AS_WRITTEN, *SIZES) if initial.get(name)]
    query += [(name, "on") for name in FLAGS if initial.get(name)]
    return f"{reverse('launch')}?{urlencode(query)}"


def link_problems(offer: LaunchOffer, query: QueryDict) -> dict[str, str]:
    """Return what a link names in vain, as messages by the form's fields; "general" is what has no field."""
    found = {
        field: _("The link says %(said)s, which does not exist or is not for you.") % {"said": _cut(said)}
        for field, said in _not_found(offer, query)
    }
    found |= {
        name: _("The link says %(said)s, which may be on or off.") % {"said": _cut(f"{name}={query[name]}")}
        for name in FLAGS
        if query.get(name, "on") not in ("on", "off")
    }
    if unknown := unknown_names(query):
        found["general"] = unknown
    return found


def unknown_names(query: QueryDict, known: Collection[str] = ()) -> str:
    """Return a message that names the parameters of a link that are neither its own nor `known`; "" without."""
    names = ", ".join(_cut(name) for name in query if name not in LINK_NAMES and name not in known)
    return _("The link also says %(names)s, which is not known here.") % {"names": names} if names else ""


def _not_found(offer: LaunchOffer, query: QueryDict) -> list[tuple[str, str]]:
    """Return the fields for which the link names something that is not offered, and what."""
    groups = {each for group in offer.groups for each in (group.name, str(group.pk))}
    in_group = [each.pk for each in offer.groups if query.get("group") in (each.name, str(each.pk))]
    chosen = in_group or [each.pk for each in offer.groups[:1]]
    presets = [each for each in offer.presets if each.group_id in (None, *chosen)]
    known: dict[str, tuple[str, set[str]]] = {
        "group": ("resource_group", groups),
        "other_group": ("other_groups", groups),
        "project": ("project", {each.name for each in offer.projects} | {""}),
        "preset": ("preset", {text for each in presets for text in (each.name, str(each.pk))}),
        "folder": ("mounts", set().union(*(beginnings.folder_names(offer, each) for each in offer.folders))),
    }
    found = [
        (field, ", ".join(f"{name}={value}" for value in query.getlist(name) if value not in names))
        for name, (field, names) in known.items()
    ]
    if (image := query.get("image", "")).isdecimal() and image not in {str(each.pk) for each in offer.images}:
        found.append(("image", f"image={image}"))
    if (again := query.get("again")) is not None and not beginnings.again(offer, again):
        found.append(("general", f"again={again}"))
    if (array_id := query.get("array")) is not None and not of_array(offer.owner, array_id):
        found.append(("general", f"array={array_id}"))
    if (import_id := query.get("import")) is not None and not beginnings.from_import(offer, import_id):
        found.append(("from_import", f"import={import_id}"))
    return [(field, said) for field, said in found if said]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SAID else f"{text[: MAX_SAID - 1]}…"
