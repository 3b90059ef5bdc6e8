"""Carries out spec files: all of their documents, or none."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, cast

from django.db import transaction
from django.utils.translation import gettext as _
from rest_framework.exceptions import ValidationError

from accounts.models import User
from scheduler.advice.estimate import Estimate, blocked
from sessions.launching import dependencies
from sessions.launching.requests import LaunchRequest
from specs.documents import KIND, SpecDocument
from specs.kinds import KINDS, SessionSpecRequest, SpecRequest
from specs.problems import MAX_PROBLEMS, SpecError, SpecProblem, did_you_mean, messages, with_allowed
from specs.references import references


@dataclass(slots=True)
class SpecOutcome:
    """What became of a document, or would."""

    document: SpecDocument
    request: SpecRequest
    ids: Sequence[str] = ()  # of what was made; none of a dry run
    launched_as: LaunchRequest | None = None  # of what launches sessions
    estimate: Estimate | None = None  # of a dry run


def carry_out(
    owner: User,
    documents: Sequence[SpecDocument],
    *,
    is_dry: bool = False,
    after: dependencies.Dependencies = MappingProxyType({}),
) -> list[SpecOutcome]:
    """Make what the documents ask for, in one transaction, or nothing; return what became of each, in their order.

    A dry run does the same and takes it back, so that all rules are asked; it says when sessions would start instead.
    The sessions wait for those of `after` besides. Raises SpecError with all that is wrong.
    """
    known = [each for each in documents if _is_known(each.kind)]
    named = references(known)
    problems = [each.problem((KIND,), _unknown_kind(each.kind)) for each in documents if not _is_known(each.kind)]
    problems += named.problems
    outcomes = [SpecOutcome(each, KINDS[each.kind](owner, named.fields[at])) for at, each in enumerate(known)]
    order = list(KINDS)
    with transaction.atomic():
        for outcome in sorted(outcomes, key=lambda each: order.index(each.document.kind)):
            with _collected(problems, outcome):
                outcome.request.prepare()
        _raise(problems)
        for outcome in outcomes:
            if isinstance(outcome.request, SessionSpecRequest):
                outcome.request.after.update(after)
        for at, outcome in enumerate(outcomes) if is_dry else ():
            with _collected(problems, outcome):
                asked = outcome.request.launched_as() if named.waits.get(at) else None
                outcome.estimate = blocked(asked) if asked else outcome.request.estimate()
        _raise(problems)
        for at in named.order:
            outcome = outcomes[at]
            with _collected(problems, outcome):
                for other, kind in named.waits.get(at, {}).items():
                    made = dependencies.find(owner, dict.fromkeys(outcomes[other].ids, kind))
                    cast("SessionSpecRequest", outcome.request).after.update(made)
                outcome.launched_as = outcome.request.launched_as()
                outcome.ids = outcome.request.launch()
        _raise(problems)
        if is_dry:
            transaction.set_rollback(True)
            for outcome in outcomes:
                outcome.ids = ()
    return outcomes


@contextmanager
def _collected(problems: list[SpecProblem], outcome: SpecOutcome) -> Iterator[None]:
    """Add what a ValidationError says to the problems."""
    try:
        yield
    except ValidationError as error:
        serializer = outcome.request.serializer()
        problems += [
            outcome.document.problem(place, with_allowed(serializer, place, message))
            for place, message in islice(messages(error.detail), MAX_PROBLEMS)
        ]


def _raise(problems: list[SpecProblem]) -> None:
    if problems:
        raise SpecError(problems)


def _is_known(kind: Any) -> bool:
    return isinstance(kind, str) and kind in KINDS


def _unknown_kind(kind: Any) -> str:
    if kind is None:
        return _("Say of which kind it is: %(names)s.") % {"names": ", ".join(KINDS)}
    return did_you_mean(_("There is no such kind."), str(kind), KINDS)
