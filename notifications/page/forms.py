"""The form of how a user wants to be told."""

from collections.abc import Mapping
from dataclasses import dataclass

from django.utils.functional import Promise

from accounts.models import User
from notifications import services
from notifications.delivery.texts import KIND_NAMES
from notifications.kinds import WAYS, Ways


@dataclass(frozen=True, slots=True)
class PreferenceRow:
    """One kind, and whether each way is ticked, by the name of its box."""

    kind: str
    label: Promise
    boxes: tuple[tuple[str, bool], ...]  # in the order of WAYS


def rows_for(user: User) -> list[PreferenceRow]:
    """Return the rows of the form as they are stored; one query."""
    ways = services.ways_of(user)
    return [
        PreferenceRow(kind.value, KIND_NAMES[kind], tuple((f"{kind}.{way}", getattr(ways[kind], way)) for way in WAYS))
        for kind in ways
    ]


def save(user: User, data: Mapping[str, str]) -> None:
    """Store what is ticked; a box that is not sent is not ticked."""
    kinds = services.ways_of(user)
    services.choose_ways(user, {kind: Ways(**{way: f"{kind}.{way}" in data for way in WAYS}) for kind in kinds})
