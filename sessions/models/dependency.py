"""What sessions wait for before they start: others that are to have started, or ended in one way or another.

A target is a session, or an array, whose package is above this one and known to the database alone. Of a cluster whose
members all run its command, each member is a target and has a row. What is asked of targets is `_CONDITIONS`, from
which the scheduler, the sweeps, estimates and pages have it.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from django.db import models
from django.db.models import Case, CharField, DateTimeField, Exists, F, OuterRef, Q, Subquery, Value, When
from django.db.models.functions import Coalesce

from sessions.lifecycle import FINAL, DependencyKind, DependencyState, Status
from sessions.models.event import SessionEvent
from sessions.models.session import Session, has_succeeded

Condition = Callable[[str], Q]  # on the session behind a path


def _runs(path: str) -> models.QuerySet[SessionEvent]:
    """Return its starts, the first before others. Once it waits again or is parked it has started all the same."""
    return SessionEvent.objects.filter(session=OuterRef(f"{path}pk"), new_status=Status.RUNNING).order_by("id")


def _beside(path: str) -> models.QuerySet[Session]:
    """Return the members of its cluster where all run the command: which of them fails nobody knows before."""
    return Session.objects.filter(cluster=OuterRef(f"{path}cluster"), cluster__runs_on_all=True, is_elastic=False)


def _has_ended(path: str) -> Q:
    return Q(**{f"{path}status__in": FINAL})


def _has_started(path: str) -> Q:
    return Q(Exists(_runs(path))) | Q(**{f"{path}started_at__isnull": False})  # events may be removed


def _has_failed(path: str) -> Q:
    failed = ~has_succeeded(path) | Q(Exists(_beside(path).filter(~has_succeeded(), status__in=FINAL)))
    return _has_ended(path) & failed


def _never_starts(path: str) -> Q:
    return _has_ended(path) & ~_has_started(path)


def _never_succeeds(path: str) -> Q:
    return _has_ended(path) & ~has_succeeded(path)


def _never_fails(path: str) -> Q:
    return has_succeeded(path) & ~Q(Exists(_beside(path).exclude(has_succeeded())))


def _never(path: str) -> Q:
    return Q(pk__in=())


def _array(**values: Any) -> Condition:
    """Return the condition that an array has these values."""
    return lambda path: Q(**{f"{path}{name}": value for name, value in values.items()})


def _array_failed(path: str) -> Q:
    return Q(**{f"{path}ended_at__isnull": False}) & ~Q(**{f"{path}state": "SUCCEEDED"})


SESSION: Final = "to_session"
ARRAY: Final = "to_array"
# Of each kind of target and each kind of wait: what is waited for, and that this can never come.
_CONDITIONS: Final[Mapping[str, Mapping[DependencyKind, tuple[Condition, Condition]]]] = {
    SESSION: {
        DependencyKind.AFTER: (_has_started, _never_starts),
        DependencyKind.AFTER_OK: (has_succeeded, _never_succeeds),
        DependencyKind.AFTER_NOT_OK: (_has_failed, _never_fails),
        DependencyKind.AFTER_ANY: (_has_ended, _never),
    },
    ARRAY: {
        DependencyKind.AFTER: (_array(started_at__isnull=False), _array(started_at=None, ended_at__isnull=False)),
        DependencyKind.AFTER_OK: (_array(state="SUCCEEDED"), _array_failed),
        DependencyKind.AFTER_NOT_OK: (_array_failed, _array(state="SUCCEEDED")),
        DependencyKind.AFTER_ANY: (_array(ended_at__isnull=False), _never),
    },
}


def has_happened(kind: DependencyKind, path: str = "", target: str = SESSION) -> Q:
    """Return the condition that what this kind waits for has come, of the target behind `path`."""
    return _CONDITIONS[target][kind][0](path)


def is_impossible(kind: DependencyKind, path: str = "", target: str = SESSION) -> Q:
    """Return the condition that it can never come."""
    return _CONDITIONS[target][kind][1](path)


def _of_any_kind(condition: Callable[[DependencyKind, str, str], Q], path: str) -> Q:
    """Return the condition on the dependency behind `path`, by its target and kind; false, never NULL."""
    found = Q()
    for target in _CONDITIONS:
        for kind in DependencyKind:
            is_such = Q(**{f"{path}{target}__isnull": False, f"{path}kind": kind})
            found |= is_such & condition(kind, f"{path}{target}__", target)
    return found


def is_met(path: str = "") -> Q:
    """Return the condition that the dependency behind `path` keeps its session waiting no more."""
    return _of_any_kind(has_happened, path)


def met_at(path: str = "") -> Case:
    """Return when the dependency behind `path` was met, if it is."""
    first_run = Subquery(_runs(f"{path}to_session__").values("at")[:1])
    began = Coalesce(F(f"{path}to_array__started_at"), first_run, F(f"{path}to_session__started_at"))
    ended = Coalesce(F(f"{path}to_array__ended_at"), F(f"{path}to_session__ended_at"))
    started = When(**{f"{path}kind": DependencyKind.AFTER}, then=began)
    return Case(started, default=ended, output_field=DateTimeField())


class DependencyQuerySet(models.QuerySet["Dependency"]):
    """Questions about dependencies."""

    def impossible(self) -> "DependencyQuerySet":
        """Return those that can never be met."""
        return self.filter(_of_any_kind(is_impossible, ""))

    def shown(self) -> "DependencyQuerySet":
        """Return those on what users know, each with its target and, as `state`, what became of it."""
        state = Case(
            When(is_met(), then=Value(DependencyState.MET.value)),
            When(_of_any_kind(is_impossible, ""), then=Value(DependencyState.IMPOSSIBLE.value)),
            default=Value(DependencyState.WAITING.value),
            output_field=CharField(),
        )
        known = self.filter(Q(to_session__rank=0) | Q(to_array__isnull=False)).annotate(state=state)
        name = Coalesce("to_session__name", "to_array__name")
        return known.select_related(SESSION, ARRAY).order_by(name, SESSION, ARRAY)


class Dependency(models.Model):
    """That a session does not start before another, or an array, has started or ended. Written once, by `submit`."""

    from_session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="dependencies")
    to_session = models.ForeignKey(Session, on_delete=models.CASCADE, null=True, related_name="links_of_dependents")
    to_array = models.ForeignKey(
        "arrays.Array", on_delete=models.CASCADE, null=True, related_name="links_of_dependents"
    )
    kind = models.CharField(
        max_length=16,
        choices=[(kind.value, kind.value) for kind in DependencyKind],
        default=DependencyKind.AFTER_OK.value,
        db_default=DependencyKind.AFTER_OK.value,
    )

    objects: ClassVar[DependencyQuerySet] = DependencyQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        db_table = "compute_session_depends_on"
        unique_together = (("from_session", "to_session"), ("from_session", "to_array"))
        constraints = (
            models.CheckConstraint(
                condition=Q(to_session__isnull=True) ^ Q(to_array__isnull=True), name="dependency_has_one_target"
            ),
        )
        verbose_name_plural = "dependencies"

    def __str__(self) -> str:
        return f"{self.from_session_id} {self.kind} {self.target_id}"

    @property
    def target(self) -> Any:
        """The session or array."""
        return self.to_session or self.to_array

    @property
    def target_id(self) -> str:
        """Its id."""
        return self.to_session_id or self.to_array_id or ""
