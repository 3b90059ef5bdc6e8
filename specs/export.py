"""What runs as a spec file: the fields that the API both shows and takes, without the values of secrets."""

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from rest_framework.renderers import JSONRenderer
from rest_framework.serializers import BaseSerializer

from accounts.models import User
from deployments.counts import with_counts
from deployments.models import Deployment
from deployments.rest.bodies import NewDeploymentBody
from deployments.rest.serializers import DeploymentSerializer
from resources.amounts.fields import SizeField, SpanField
from resources.amounts.units import GIB, MIB
from sessions.launching.serializers import LaunchRequestSerializer
from sessions.models import Session
from sessions.serializers import SessionSerializer
from specs.documents import SECRET
from specs.writing import spec_text

UNSAID: Final = ("environment", "version", "depends_on", "not_before")  # of a session: said otherwise, or over
UNITS: Final = ((GIB, "g"), (MIB, "m"))


class SpecExport(NamedTuple):
    """A spec file, and the variables whose values are not in it."""

    text: str
    left_out: list[str]


LEFT_OUT_AT_ZERO: Final = ("gpu_memory", "min_gpu_memory")


def session_spec(session: Session, reader: User) -> SpecExport:
    """Return a session, or the cluster of which it is the first member, as a spec file for this reader."""
    return _text(*session_document(session, reader))


def session_document(session: Session, reader: User) -> tuple[str, dict[str, Any]]:
    """Return kind and fields of that, with the values of secrets."""
    shown = _shown(SessionSerializer, session, reader)
    fields = _taken(LaunchRequestSerializer(), shown)
    for name in UNSAID:
        fields.pop(name, None)
    if len(shown["resource_groups"]) == 1:
        del fields["resource_groups"]
    if cluster := shown["cluster"]:
        main, *others = cluster["members"]
        if cluster["main_differs"] and others:
            amounts = ("cpu", "memory", "fgpu", "gpu_memory", "min_fgpu")
            fields |= _taken(LaunchRequestSerializer(), {name: others[0][name] for name in amounts})
            own = {name: main[name] for name in amounts}
            fields["cluster"]["main"] = _taken(LaunchRequestSerializer(), own)
            fields["cluster"]["main"].pop("gpu_memory", None)  # as the others have
    return "cluster" if cluster else "session", fields


def deployment_spec(deployment: Deployment, reader: User) -> SpecExport:
    """Return a deployment with its current revision as a spec file for this reader."""
    return _text(*deployment_document(deployment, reader))


def deployment_document(deployment: Deployment, reader: User) -> tuple[str, dict[str, Any]]:
    """Return kind and fields of that, with the values of secrets."""
    [row] = with_counts(Deployment.objects.filter(pk=deployment.pk))
    shown = _shown(DeploymentSerializer, row, reader)
    revision = shown.pop("revision") or {}
    fields = _taken(NewDeploymentBody(), shown | revision)
    mounts = revision.get("mounts", ())
    if model := _mounts(each for each in mounts if each["model"]):
        fields["model_folder"] = model[0]
    fields["mounts"] = _mounts(each for each in mounts if not each["model"])
    return "deployment", fields


def _shown(kind: type[BaseSerializer[Any]], row: Any, reader: User) -> dict[str, Any]:
    """Return a row as the API shows it."""
    data = kind(row, context={"request": SimpleNamespace(user=reader)}).data
    found: dict[str, Any] = json.loads(JSONRenderer().render(data))
    return found


def _taken(body: Any, shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is shown of the fields that a body takes, without what says nothing."""
    found = {}
    if shown.get("gpu_memory"):  # by which it was given a share, on a GPU that has it
        least = shown["min_fgpu"]
        shown = {**shown, "min_gpu_memory": 0, "fgpu": least if Decimal(least) else None}
    for name, field in body.fields.items():
        value = shown.get(name)
        if name == "mounts":
            value = _mounts(value or ())
        elif isinstance(value, dict) and hasattr(field, "fields"):
            value = _taken(field, value)
        elif isinstance(value, int) and isinstance(field, SizeField):
            value = next((f"{value // size}{unit}" for size, unit in UNITS if value and not value % size), value)
        elif isinstance(value, int) and isinstance(field, SpanField):
            value = f"{value // 60}m" if value % 60 == 0 else value
        if not (value is None or value is False or value in ("", [], {}) or (name in LEFT_OUT_AT_ZERO and not value)):
            found[name] = value
    return found


def _mounts(shown: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the mounts that were asked for; folders by their ids, which are right for whoever may mount them."""
    asked = [each for each in shown if each["folder"] and not each.get("automatic")]
    return [{name: each[name] for name in ("folder", "path", "read_only")} for each in asked]


def _text(kind: str, fields: dict[str, Any]) -> SpecExport:
    """Return the file; it names the variables whose values are not in it."""
    variables: dict[str, str] = fields.get("env", {})
    if secrets := [name for name in variables if SECRET.search(name)]:
        fields["env"] = {name: value for name, value in variables.items() if name not in secrets}
    fields = {name: value for name, value in fields.items() if value not in ([], {})}
    comment = "".join(f"# {name} was set, too: its value is not in this file.\n" for name in secrets)
    return SpecExport(spec_text([(kind, fields)]) + comment, secrets)
