"""What the form of the wizard begins with where it is to run an array: as a spec file says, or another array."""

import re
from collections.abc import Mapping
from typing import Any

from django.http import QueryDict
from rest_framework.exceptions import ValidationError

from accounts.models import User
from arrays.models import Array
from arrays.reconciliation import launch_request
from arrays.spaces import plain
from arrays.typed_spaces import typed
from pages.launch import beginnings
from pages.launch.array_form.forms import MAX_TYPED
from pages.launch.beginnings import Initial
from pages.launch.offer import LaunchOffer
from pages.launch.spec_files.initial import from_request
from sessions.models import SESSION_ID
from specs.services import SpecOutcome


def from_link(offer: LaunchOffer, query: QueryDict) -> Initial:
    """Return what the query of a launch link names, an array among it."""
    return of_array(offer.owner, query.get("array", "")) | beginnings.from_link(offer, query)


def of_array(owner: User, array_id: str) -> Initial:
    """Return all that an array was submitted with: one of the user's own; {} without, or where some of it is gone."""
    found = Array.objects.operable_by(owner).filter(pk=array_id) if re.fullmatch(SESSION_ID, array_id) else ()
    for array in found:
        try:
            launch = from_request(launch_request(array, []))
        except ValidationError:
            return {}
        space = array.space or {"indices": None}
        if space == {"list": None}:
            space = {"list": _listed(array)}
        fields = {"tasks": space, "max_parallel": array.max_parallel, "retries": array.retries}
        left_out = {"depends_on": [], "not_before": ""} | ({} if array.owner == owner else {"environment": []})
        return launch | of_document(fields) | left_out
    return {}


def _listed(array: Array) -> list[dict[str, Any]] | None:
    """Return the parameters of its tasks; None for more than the form takes."""
    found, length = [], 0
    for parameters in array.tasks.order_by("index").values_list("parameters", flat=True).iterator():
        found.append(parameters)
        length += sum(len(str(value)) + 1 for value in parameters.values())
        if length > MAX_TYPED:
            return None
    return found


def of_outcome(outcome: SpecOutcome) -> Initial:
    """Return what a spec document asks for that launches sessions."""
    assert outcome.launched_as
    initial = from_request(outcome.launched_as)
    return initial | of_document(outcome.document.fields) if outcome.document.kind == "array" else initial


def of_document(fields: Mapping[str, Any]) -> Initial:
    """Return what a valid spec document of the kind array says of its tasks."""
    asked = plain(fields["tasks"])
    space: dict[str, Any] = asked if isinstance(asked, dict) else {"indices": str(asked)}
    kind, text = typed(space)
    drawn: Mapping[str, Any] = space.get("random") or {}
    return {
        **{"name": fields.get("name", ""), "count": 1, "array_kind": kind},
        **{"array_tasks": text if len(text) <= MAX_TYPED else ""},
        **{f"array_{name}": drawn.get(name) for name in ("count", "seed")},
        **{f"array_{name}": fields.get(name) for name in ("max_parallel", "retries")},
    }
