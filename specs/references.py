"""What sessions of a spec file wait for that the same file makes: other documents, by their names, in any order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from django.utils.translation import gettext as _

from sessions.launching.dependencies import FIELD, IDS, KINDS
from sessions.lifecycle import DependencyKind
from specs.documents import SpecDocument
from specs.problems import MAX_PROBLEMS, SpecProblem, did_you_mean

WAITING: Final = frozenset({"session", "cluster", "array"})  # the kinds of documents that wait, and are waited for
DEFAULT: Final = DependencyKind.AFTER_OK.value


@dataclass(slots=True)
class References:
    """By the places of documents in the file: what they wait for in it, their other fields, and an order to launch."""

    waits: dict[int, dict[int, DependencyKind]] = field(default_factory=dict)
    fields: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    problems: list[SpecProblem] = field(default_factory=list)


def references(documents: Sequence[SpecDocument]) -> References:
    """Take the names of other documents out of `depends_on`."""
    found = References(fields={at: each.fields for at, each in enumerate(documents)}, order=[*range(len(documents))])
    names = {each.name: at for at, each in enumerate(documents) if each.kind in WAITING and each.name}
    for at, document in enumerate(documents):
        if document.kind in WAITING and FIELD in document.fields:
            _take_names(found, at, document, names)
    try:
        found.order = list(TopologicalSorter({at: found.waits.get(at, {}) for at in found.order}).static_order())
    except CycleError as error:
        circle = error.args[1]
        text = _("These wait for each other: %(names)s.") % {"names": ", ".join(documents[at].name for at in circle)}
        found.problems.append(documents[min(circle)].problem((FIELD,), text))
    return found


def _take_names(found: References, at: int, document: SpecDocument, names: Mapping[str, int]) -> None:
    asked, left, waits = document.fields[FIELD], [], found.waits.setdefault(at, {})
    for index, each in enumerate(asked if isinstance(asked, list) else [asked]):
        for kind, name in _parts(each):
            if kind in KINDS and (name in names or (names and not IDS.fullmatch(name))):
                if len(found.problems) >= MAX_PROBLEMS:
                    return
                if name not in names:
                    text = did_you_mean(_("There is no such session in this file."), name, names)
                    found.problems.append(document.problem((FIELD, index), text))
                elif waits.setdefault(names[name], KINDS[kind]) != KINDS[kind]:
                    text = _("%(name)s is named twice: say one thing that is waited for.") % {"name": name}
                    found.problems.append(document.problem((FIELD, index), text))
            else:
                left.append(f"{kind}:{name}" if name else each)
    fields = dict(document.fields)
    del fields[FIELD]
    found.fields[at] = fields | ({FIELD: left} if left or asked == [] else {})


def _parts(asked: Any) -> list[tuple[str, str]]:
    """Return kinds and names of one of the dependencies; without a name what the API is to refuse."""
    if isinstance(asked, Mapping) and {"document"} <= asked.keys() <= {"document", "kind"}:
        kind, name = asked.get("kind", DEFAULT), asked["document"]
        return [(kind, name)] if isinstance(kind, str) and isinstance(name, str) and name else [("", "")]
    if not isinstance(asked, str) or not asked:
        return [("", "")]
    kind, colon, names = asked.partition(":")
    return [(kind, name) for name in names.split(":")] if colon else [(DEFAULT, asked)]
