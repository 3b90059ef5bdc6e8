"""What a request waits for: read as users write it, looked up, and refused where it can never come."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from django.db.models import Q

from accounts.models import User
from sessions.errors import RejectedError
from sessions.launching import validation
from sessions.lifecycle import DependencyKind
from sessions.models import SESSION_ID, Dependency, Session, has_happened, is_impossible

Dependencies = Mapping[Session, DependencyKind]
FIELD: Final = "depends_on"
IDS: Final = re.compile(rf"{SESSION_ID}(:{SESSION_ID})*")
KINDS: Final = {spelling: kind for kind in DependencyKind for spelling in (kind.value, kind.value.replace("_", ""))}
WRONG: Final = (
    "Write ids of sessions, or what is waited for with ids, such as after_any:ID. "
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
                raise RejectedError({FIELD: f"The session {each} is named twice: say one thing that is waited for."})
    return found


def find(owner: User, kinds: Mapping[str, DependencyKind]) -> Dependencies:
    """Return the sessions with these ids. Raises RejectedError for those that `owner` cannot wait for."""
    found = list(Session.objects.allowed_as_dependencies_of(owner).filter(pk__in=kinds)) if kinds else []
    if unknown := kinds.keys() - {session.pk for session in found}:
        raise RejectedError({FIELD: f"There is no session {min(unknown)!r} of yours."})
    return {session: kinds[session.pk] for session in found}


def error(owner: User, asked: Dependencies) -> str | None:
    """Return what is wrong with the dependencies of a request, or None."""
    ids = {session.pk for session in asked}
    if len(ids) > validation.MAX_DEPENDENCIES:
        return f"A session can depend on at most {validation.MAX_DEPENDENCIES} others."
    if ids and Session.objects.allowed_as_dependencies_of(owner).filter(pk__in=ids).count() < len(ids):
        return "You can only depend on sessions of your own."
    for kind, targets in _targets(asked).items():
        if session := Session.objects.filter(targets).filter(is_impossible(kind)).first():
            return _never_starts(session, kind)
    return None


def are_met(asked: Dependencies) -> bool:
    """Return whether a request would wait for none of them."""
    return not any(
        Session.objects.filter(targets).exclude(has_happened(kind)).exists()
        for kind, targets in _targets(asked).items()
    )


def rows(sessions: Iterable[Session], asked: Dependencies) -> list[Dependency]:
    """Return the rows to store for these sessions."""
    found = [(kind, list(Session.objects.filter(targets))) for kind, targets in _targets(asked).items()]
    return [
        Dependency(from_session=session, to_session=other, kind=kind.value)
        for session in sessions
        for kind, others in found
        for other in others
    ]


def _targets(asked: Dependencies) -> dict[DependencyKind, Q]:
    """Return by kind what is waited for: of a cluster whose members all run its command, each of them."""
    ids: dict[DependencyKind, list[str]] = {}
    for session, kind in asked.items():
        ids.setdefault(kind, []).append(session.pk)
    return {
        kind: Q(pk__in=each) | Q(cluster__in=each, cluster__runs_on_all=True, is_elastic=False)
        for kind, each in ids.items()
    }


def _never_starts(session: Session, kind: DependencyKind) -> str:
    if kind == DependencyKind.AFTER:
        return f"{session.name} ({session.pk}) has ended before it started, so this session would never start."
    if kind == DependencyKind.AFTER_NOT_OK:
        return f"{session.name} ({session.pk}) has succeeded, so this session would never start."
    return f"{session.name} ({session.pk}) has ended without success, so this session would never start."


def end_text(name: str, kind: DependencyKind) -> str:
    """Return why a session ends that waited for what can never come of the session of this name."""
    if kind == DependencyKind.AFTER:
        return f"It was to start after {name}, which has ended without starting."
    if kind == DependencyKind.AFTER_NOT_OK:
        return f"It was to start only if {name} fails, which has succeeded."
    return f"It depends on {name}, which has ended without success."
