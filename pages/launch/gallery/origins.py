"""What a new template begins with: what runs, a spec file, or the wizard's form; and values that become parameters."""

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any, Final

from django.http import Http404
from django.shortcuts import get_object_or_404

from accounts.requests import UserRequest
from deployments.models import Deployment
from pages.launch.beginnings import span_of
from pages.launch.offer import LaunchOffer
from resources.amounts.units import exact_size_text, fgpu_text
from sessions.launching.requests import LaunchRequest
from sessions.launching.serializers import ANY_GROUP
from sessions.models import Session
from specs import export
from specs.documents import KIND, SECRET
from specs.formats import reading
from specs.launch_templates.bodies import LAUNCHED
from specs.launch_templates.filling import names_in
from specs.problems import SpecError

Fields = dict[str, Any]
TYPES: Final = {"cpu": "cpu", "memory": "memory", "fgpu": "fgpu", "count": "integer", "replicas": "integer"}
NEVER: Final = (KIND, "preemptible", "public")  # of the fields, that a page offers to ask for
VARIABLES: Final = "env"


def begun(request: UserRequest) -> tuple[str, Fields]:
    """Return the kind and fields of what a template is to launch; a small session where nothing is named."""
    if "from_file" in request.POST:
        return _of_file(request, request.POST.get("text", ""), request.POST.get("image", ""))
    if session_id := request.GET.get("session", "").replace("\0", ""):
        launched = Session.objects.operable_by(request.user).mains().with_members().prefetch_related("mounts")
        return export.session_document(get_object_or_404(launched, pk=session_id), request.user)
    if deployment_id := request.GET.get("deployment", "").replace("\0", ""):
        found = Deployment.objects.operable_by(request.user)
        return export.deployment_document(get_object_or_404(found, pk=deployment_id), request.user)
    return _small(request)


def asked_for(launch: Fields) -> tuple[Fields, list[Fields]]:
    """Return what is launched with what a template cannot keep asked for: secrets, and the name of a deployment."""
    names = [f"{VARIABLES}.{name}" for name in _variables(launch) if SECRET.search(name)]
    is_named = launch[KIND] == "deployment" and "name" in launch
    return with_parameters(launch, [*names, "name"] if is_named else names)


def offered(launch: Mapping[str, Any]) -> list[str]:
    """Return what a page offers to ask for each time: fields with one value, and variables."""
    own = [name for name, value in launch.items() if name not in NEVER and _is_plain(value)]
    return own + [f"{VARIABLES}.{name}" for name, value in _variables(launch).items() if _is_plain(value)]


def _variables(launch: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the variables; none of a file that has something else in their place."""
    found = launch.get(VARIABLES)
    return found if isinstance(found, Mapping) else {}


def with_parameters(launch: Mapping[str, Any], names: Collection[str]) -> tuple[Fields, list[Fields]]:
    """Return what is launched with these fields asked for, and the parameters: those of secrets have no default."""
    changed: Fields = {**launch}
    if variables := _variables(launch):
        changed[VARIABLES] = {**variables}
    parameters = []
    for name in names:
        is_variable = name.startswith(f"{VARIABLES}.") and name not in launch
        holder, key = (changed[VARIABLES], name.partition(".")[2]) if is_variable else (changed, name)
        called = "".join(each if each.isalnum() and each.isascii() else "_" for each in key.lower())[:32]
        default = {} if SECRET.search(key) else {"default": holder[key]}
        parameters.append({"name": called, "type": TYPES.get(name, "text"), **default})
        holder[key] = f"${{{{ {called} }}}}"
    return changed, parameters


def _is_plain(value: Any) -> bool:
    return value is not None and not isinstance(value, list | dict | bool) and not names_in(value)


def _small(request: UserRequest) -> tuple[str, Fields]:
    image = LaunchOffer(request.user).first_image
    return "session", {"image": image.reference if image else "", "cpu": 1, "memory": "2g"}


def _of_file(request: UserRequest, text: str, image: str) -> tuple[str, Fields]:
    """Return the only document of a file. Raises Http404 where there is none that a template could launch."""
    try:
        [document, *others] = reading.read(request.user, text, image).documents
    except SpecError as error:
        raise Http404 from error
    if others or document.kind not in LAUNCHED:
        raise Http404
    return document.kind, dict(document.fields)


def of_request(asked: LaunchRequest) -> tuple[str, Fields]:
    """Return a request of the wizard as the fields of a spec file."""
    groups = [group.name for group in (asked.resource_group, *asked.other_groups)]
    fields: Fields = {
        **{"name": asked.name, "image": asked.image.reference, "cpu": asked.cpu},
        **{name: exact_size_text(getattr(asked, name)) for name in ("memory", "shared_memory")},
        **{"fgpu": fgpu_text(asked.fgpu) if asked.fgpu else "", "count": asked.count if asked.count > 1 else None},
        **({"resource_groups": groups} if len(groups) > 1 else {"resource_group": groups[0]}),
        **({"resource_groups": ANY_GROUP, "resource_group": groups[0]} if asked.is_any_group else {}),
        **{"project": asked.project and asked.project.name, "gpu_model": asked.gpu_model},
        **{
            name: exact_size_text(size) if (size := getattr(asked, name)) else ""
            for name in ("min_gpu_memory", "gpu_memory")
        },
        **{"preemptible": asked.is_preemptible, "time_limit": span_of(asked.time_limit)},
        "env": dict(asked.environment),
        "mounts": [
            _said({"folder": each.folder.pk, "path": each.path, "read_only": each.is_read_only})
            for each in asked.mounts
        ],
        "command": asked.command,
    }
    if asked.cluster:
        cluster = asdict(asked.cluster)
        main = {name.removeprefix("main_"): cluster.pop(name) for name in list(cluster) if name.startswith("main_")}
        if main["fgpu"] is not None:
            main["fgpu"] = fgpu_text(main["fgpu"])
        fields["cluster"] = _said({**cluster, "mode": str(cluster["mode"]), "main": _said(main)})
    return ("cluster" if asked.cluster else "session"), _said(fields)


def _said(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if value not in (None, "", [], {}, False) or value == "0"}
