"""What is wrong with a spec file, by line and field."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from django.utils.translation import gettext as _
from rest_framework import serializers

from accounts.serializers import UNKNOWN_FIELD
from restapi.plain_yaml import Place
from restapi.problems import GENERAL
from sessions.launching.serializers import MountQuery, MountsField
from translation.english import from_english

MAX_PROBLEMS: Final = 50  # that are told at once
MAX_COMPARED: Final = 64  # characters of a name that is compared with those that there are


class SpecProblem(NamedTuple):
    """A message at a line; `field` is its name, "cluster.mode" inside of another, or "" for the whole document."""

    line: int
    field: str
    message: str

    def __str__(self) -> str:
        """Return it as a line of text."""
        return f"{self.place}: {self.message}"

    @property
    def place(self) -> str:
        """Return line and field, by which the API names the problem."""
        return f"line {self.line}: {self.field}" if self.field else f"line {self.line}"


class SpecError(Exception):
    """Nothing of the text was carried out."""

    def __init__(self, problems: list[SpecProblem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = sorted(problems)[:MAX_PROBLEMS]


def messages(detail: Any, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yield what a ValidationError says, each with the place that it concerns."""
    if isinstance(detail, Mapping):
        for name, inner in detail.items():
            yield from messages(inner, (*place, *_parts(name)))
    elif isinstance(detail, list):
        for at, inner in enumerate(detail):
            yield from messages(inner, (*place, at) if isinstance(inner, Mapping) else place)
    else:
        yield place, str(detail)


def _parts(name: str | int) -> Place:
    """Return the place of a name as the services and the API write it, such as `cluster.mode`."""
    if isinstance(name, int):
        return (name,)
    return () if name in GENERAL else tuple(name.split("."))


def with_allowed(serializer: serializers.Serializer[Any], place: Place, message: str) -> str:
    """Return a serializer's message in the reader's language, with what the field takes."""
    *outer, last = place or ("",)
    if message == UNKNOWN_FIELD:
        around = field_at(serializer, tuple(outer))
        return did_you_mean(_("There is no such field."), str(last), getattr(around, "fields", ()))
    allowed = _allowed(field_at(serializer, place)) if place else ""
    return f"{from_english(message)} {allowed}".strip()


def did_you_mean(message: str, name: str, known: Any) -> str:
    """Return the message about an unknown name with the nearest known one, or else with all of them."""
    if found := get_close_matches(name[:MAX_COMPARED], list(known), n=1):
        return _("%(message)s Did you mean “%(name)s”?") % {"message": message, "name": found[0]}
    return _("%(message)s Allowed: %(names)s.") % {"message": message, "names": ", ".join(known)}


def field_at(serializer: Any, place: Place) -> Any:
    """Return the field or serializer at a place; None where there is none."""
    found = serializer
    for part in place:
        if isinstance(found, MountsField):
            found = MountQuery()
        elif isinstance(part, int):
            found = getattr(found, "child", None)
        else:
            found = getattr(found, "fields", {}).get(part)
    return found


def _allowed(field: Any) -> str:
    """Return what a field takes, where its messages do not say it."""
    if isinstance(field, serializers.ChoiceField):
        return _("Allowed: %(names)s.") % {"names": ", ".join(map(str, field.choices))}
    if isinstance(field, serializers.BooleanField):
        return _("Allowed: %(names)s.") % {"names": "true, false"}
    low, high = getattr(field, "min_value", None), getattr(field, "max_value", None)
    if low is not None and high is not None:
        return _("Allowed: %(low)s to %(high)s.") % {"low": low, "high": high}
    if isinstance(field, serializers.RegexField):
        return str(field.help_text or "")
    return ""
