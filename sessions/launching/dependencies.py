"""What a request waits for: read as users write it, looked up, and refused where it can never come."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from django.db.models import Q, QuerySet

from accounts.models import User
from sessions.errors import RejectedError
from sessions.launching import validation
from sessions.lifecycle import DependencyKind
from sessions.models import SESSION_ID, Dependency, Session, has_happened, is_impossible
from sessions.models.dependency import ARRAY, SESSION

Dependencies = Mapping[Any, DependencyKind]  # by Session or Array
FIELD: Final = "depends_on"
IDS: Final = re.compile(rf"{SESSION_ID}(:{SESSION_ID})*")
KINDS: Final = {spelling: kind for kind in DependencyKind for spelling in (kind.value, kind.value.replace("_", ""))}
WRONG: Final = (
    "Write ids of sessions or arrays, or what is waited for with ids, such as after_any:ID. "
    f"The kinds are {', '.join(kind.value for kind in DependencyKind)}."
)


def parse(texts: Iterable[str]) -> dict[str, DependencyKind]:
    """Return the kinds by session id of texts such as `ID`, `after_any:ID` and, as Slurm writes it, `afterok:ID:ID`.

    Raises RejectedError.
    """
    found: dict[str, DependencyKind] = {}
    for text in texts:
        name, colon, ids = text.partition(":")
        kind = KINDS.get(name) if colon else DependencyKind.AFTER_OK
        ids = ids if colon else text
        if kind is None or not IDS.fullmatch(ids):
            raise RejectedError({FIELD: WRONG})
        for each in ids.split(":"):
            if found.setdefault(each, kind) != kind:
                raise RejectedError({FIELD: f"{each} is named twice: say one thing that is waited for."})
    return found


def find(owner: User, kinds: Mapping[str, DependencyKind]) -> Dependencies:
    """Return the sessions and arrays with these ids. Raises RejectedError for those that `owner` cannot wait for."""
    found = [target for allowed in _allowed(owner) for target in allowed.filter(pk__in=kinds)] if kinds else []
    if unknown := kinds.keys() - {target.pk for target in found}:
        raise RejectedError({FIELD: f"There is no session or array {min(unknown)!r} of yours."})
    return {target: kinds[target.pk] for target in found}


def error(owner: User, asked: Dependencies) -> str | None:
    """Return what is wrong with the dependencies of a request, or None."""
    ids = {target.pk for target in asked}
    if len(ids) > validation.MAX_DEPENDENCIES:
        return f"A session can depend on at most {validation.MAX_DEPENDENCIES} others."
    if ids and sum(allowed.filter(pk__in=ids).count() for allowed in _allowed(owner)) < len(ids):
        return "You can only depend on sessions and arrays of your own."
    for target, kind, rows in _targets(asked):
        if found := rows.filter(is_impossible(kind, target=target)).first():
            return _never_starts(found, kind)
    return None


def are_met(asked: Dependencies) -> bool:
    """Return whether a request would wait for none of them."""
    return not any(rows.exclude(has_happened(kind, target=target)).exists() for target, kind, rows in _targets(asked))


def rows(sessions: Iterable[Session], asked: Dependencies) -> list[Dependency]:
    """Return the rows to store for these sessions."""
    found = [(target, kind, other) for target, kind, rows in _targets(asked) for other in rows]
    return [
        Dependency(from_session=session, kind=kind.value, **{target: other})
        for session in sessions
        for target, kind, other in found
    ]


def _allowed(owner: User) -> tuple[QuerySet[Any], ...]:
    """Return the sessions and the arrays that `owner` can wait for."""
    return Session.objects.allowed_as_dependencies_of(owner), owner.arrays.all()


def _targets(asked: Dependencies) -> Iterator[tuple[str, DependencyKind, QuerySet[Any]]]:
    """Return by kind what is waited for: of a cluster whose members all run its command, each of them."""
    arrays = Dependency._meta.get_field(ARRAY).related_model  # above this package, which does not import it
    for kind in DependencyKind:
        chosen = [target for target, each in asked.items() if each == kind]
        sessions = [target.pk for target in chosen if isinstance(target, Session)]
        if sessions:
            members = Q(cluster__in=sessions, cluster__runs_on_all=True, is_elastic=False)
            yield SESSION, kind, Session.objects.filter(Q(pk__in=sessions) | members)
        if others := [target.pk for target in chosen if not isinstance(target, Session)]:
            yield ARRAY, kind, arrays._default_manager.filter(pk__in=others)


def _never_starts(target: Any, kind: DependencyKind) -> str:
    if kind == DependencyKind.AFTER:
        return f"{target.name} ({target.pk}) has ended before it started, so this session would never start."
    if kind == DependencyKind.AFTER_NOT_OK:
        return f"{target.name} ({target.pk}) has succeeded, so this session would never start."
    return f"{target.name} ({target.pk}) has ended without success, so this session would never start."


def end_text(name: str, kind: DependencyKind) -> str:
    """Return why a session ends that waited for what can never come of the session or array of this name."""
    if kind == DependencyKind.AFTER:
        return f"It was to start after {name}, which has ended without starting."
    if kind == DependencyKind.AFTER_NOT_OK:
        return f"It was to start only if {name} fails, which has succeeded."
    return f"It depends on {name}, which has ended without success."
