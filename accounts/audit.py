"""Writes the audit log: administrative acts with the values before and after them.

Pages, API and commands record an act in the transaction that carries it out:

    with audit.act(user, "changed", policy):  # one entry for each object that the block changes or deletes
        serializer.save()
    with audit.act(user, "added") as made:
        made.append(serializer.save())
"""

import getpass
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from operator import attrgetter
from typing import Any, Final, ParamSpec, TypeVar, cast

from django.db import models, transaction
from django.http import HttpRequest

from accounts.login_sessions import services as logins
from accounts.models import AuditEntry, User
from accounts.models.audit import AuditSource

P = ParamSpec("P")
R = TypeVar("R")
Changes = Mapping[str, tuple[str | None, str | None]]  # {field: (before, after)}
Key = tuple[str, str]  # of an object: label of its model, primary key

API_PREFIX: Final = "/api/"
SECRET: Final = re.compile("password|secret|token|digest|private_key|post_data|get_data|session_hash")  # in field names
HIDDEN: Final = "***"
MAX_VALUE_LENGTH: Final = 500
MAX_ID_LENGTH: Final = 64
CLOCKS: Final = frozenset(  # fields that change by themselves
    {"heartbeat_at", "status_at", "last_login", "last_used_at", "last_seen_at", "updated_at"}
)


@dataclass(frozen=True, slots=True)
class ActOrigin:
    """By what and from where an act is done."""

    source: AuditSource
    address: str | None = None


_BY_COMMAND: Final = ActOrigin(AuditSource.COMMAND)
_origin: ContextVar[ActOrigin] = ContextVar("origin", default=_BY_COMMAND)
_recorded: ContextVar[set[Key] | None] = ContextVar("recorded", default=None)


@contextmanager
def acts_from(request: HttpRequest) -> Iterator[None]:
    """Let the acts of the block be recorded as done by this request."""
    source = AuditSource.API if request.path.startswith(API_PREFIX) else AuditSource.PAGE
    token = _origin.set(ActOrigin(source, logins.address_of(request)))
    try:
        yield
    finally:
        _origin.reset(token)


@contextmanager
def once() -> Iterator[set[Key]]:
    """Record each object once in the block, by the innermost that records it; the set has what was recorded."""
    outer, inner = _recorded.get(), set[Key]()
    token = _recorded.set(inner)
    try:
        yield inner
        if outer is not None:
            outer |= inner
    finally:
        _recorded.reset(token)


@contextmanager
def act(actor: User | None, action: str, *targets: models.Model) -> Iterator[list[models.Model]]:
    """Carry out the block in a transaction, and add an entry for each object that it changes, deletes, or adds.

    `targets` are read from the database before and after the block; objects that it adds belong in the list that it
    gets. Without a difference nothing is recorded, nor is an object whose act was recorded inside of the block. `actor`
    is None for a command, which is recorded with the name of the operating system's user.
    """
    made: list[models.Model] = []
    with once(), transaction.atomic():
        models_of = {key_of(row): type(row) for row in targets}
        texts = {key_of(row): str(row) for row in targets}
        before = stored_values(models_of)
        yield made
        after = stored_values(models_of)
        for key, old in before.items():
            if changes := difference(models_of[key], old, after.get(key, {})):
                _write(actor, action, key, texts[key], changes)
        added = stored_values({key_of(row): type(row) for row in made})
        for row in made:
            _write(actor, action, key_of(row), str(row), difference(type(row), {}, added.get(key_of(row), {})))


@contextmanager
def act_for_other(owner_id: int | None, actor: User | None, action: str, *targets: models.Model) -> Iterator[None]:
    """As `act` where `actor` is not the owner; what owners or the platform itself do is not recorded."""
    if actor is None or actor.pk == owner_id:
        yield
        return
    with act(actor, action, *targets):
        yield


def recorded_for_others(action: str, owner_path: str = "owner_id") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function of a row and the keyword `actor`, so that what others than the row's owner do is recorded."""
    owner_of = attrgetter(owner_path)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def recorded(*args: P.args, **kwargs: P.kwargs) -> R:
            row, actor = cast(models.Model, args[0]), cast("User | None", kwargs.get("actor"))
            with act_for_other(owner_of(row), actor, action, row):
                return function(*args, **kwargs)

        return recorded

    return decorate


def record(actor: User | None, action: str, target: models.Model, changes: Changes) -> None:
    """Add an entry for what `actor` did to `target`, in the transaction of the act, where `act` finds no difference."""
    _write(actor, action, key_of(target), str(target), changes)


def key_of(row: models.Model) -> Key:
    """Return what names an object in the log."""
    return row._meta.label, str(row.pk)


def stored_values(rows: Mapping[Key, type[models.Model]]) -> dict[Key, dict[str, Any]]:
    """Return the values in the database of those rows that are there; one query for each model and relation."""
    found = {}
    for model in set(rows.values()):
        names = [field.name for field in model._meta.many_to_many]
        stored = model._base_manager.filter(pk__in=[pk for (_, pk), other in rows.items() if other is model])
        for row in stored.prefetch_related(*names):
            many = {name: frozenset(map(str, getattr(row, name).all())) for name in names}
            found[key_of(row)] = {**values_of(row), **many}
    return found


def values_of(row: models.Model) -> dict[str, Any]:
    """Return the values of the row's own fields, without those that change by themselves."""
    fields = [field for field in row._meta.concrete_fields if field.name not in CLOCKS]
    return {field.name: field.value_from_object(row) for field in fields}


def difference(model: type[models.Model], before: Mapping[str, Any], after: Mapping[str, Any]) -> Changes:
    """Return the fields whose values differ, as texts; of many-to-many fields what was taken away and added."""
    changes = {}
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if isinstance(old, frozenset) or isinstance(new, frozenset):
            before_all, after_all = frozenset[str](old or ()), frozenset[str](new or ())
            old, new = sorted(before_all - after_all), sorted(after_all - before_all)
        changes[name] = (as_text(name, _named(model, name, old)), as_text(name, _named(model, name, new)))
    return {name: values for name, values in changes.items() if values != (None, None)}


def as_text(name: str, value: Any) -> str | None:
    """Return a value of the field `name` as the log shows it, secrets hidden; None where there is none."""
    if value is None or value == "":
        return None
    many = isinstance(value, list | tuple | set | models.QuerySet)
    if many and not value:
        return None
    if SECRET.search(name):
        return HIDDEN
    return (", ".join(sorted(map(str, value))) if many else str(value))[:MAX_VALUE_LENGTH]


def _named(model: type[models.Model], name: str, value: Any) -> Any:
    """Return the object that a foreign key refers to instead of its key, where it still exists."""
    field = model._meta.get_field(name)
    if value is None or not isinstance(field, models.ForeignKey):
        return value
    found: Iterable[models.Model] = field.remote_field.model._base_manager.filter(**{field.target_field.name: value})
    return next(iter(found), value)


def _write(actor: User | None, action: str, key: Key, text: str, changes: Changes) -> None:
    recorded, origin = _recorded.get(), _origin.get()
    if recorded is not None and key in recorded:
        return
    AuditEntry.objects.create(
        actor=actor,
        actor_name=actor.email if actor else f"{getpass.getuser()}@{socket.gethostname()}"[:254],
        source=origin.source.value,
        address=origin.address,
        action=action[:64],
        object_type=key[0],
        object_id=key[1] if len(key[1]) <= MAX_ID_LENGTH else "",  # the digest of a token is not for logs
        object_text=text[:200],
        changes={name: list(values) for name, values in changes.items()},
    )
    if recorded is not None:
        recorded.add(key)
