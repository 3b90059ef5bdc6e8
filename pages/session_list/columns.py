"""The columns of the list, and which of them a user has chosen."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from accounts.models import User
from pages.session_list.list_query import ListQuery
from pages.session_list.models import ListColumns
from sessions.lifecycle import Tab


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column that can be hidden."""

    key: str
    label: str | Promise
    sort: str = ""  # of list_query.SORTS
    is_default: bool = True
    for_superadmins: bool = False
    tabs: frozenset[Tab] = frozenset(Tab)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of a shown column: the order that a click on it asks for, "" for none, and the present one."""

    key: str
    label: str | Promise
    sort: str
    aria_sort: str


ORDERS: Final = (  # as narrow windows offer them, where the table has no heads
    ("-created", _("newest first")),
    ("created", _("oldest first")),
    ("name", _("name")),
    ("status", _("status")),
    ("environment", _("environment")),
    ("group", _("group and host")),
    ("-fgpu", _("largest share of a GPU first")),
    ("-memory", _("largest memory first")),
    ("-ended", _("ended last first")),
)
SUPERADMIN_ORDERS: Final = (("owner", _("owner")),)
_LIVE: Final = frozenset({Tab.RUNNING})
_ENDED: Final = frozenset(Tab) - _LIVE
DOWN_FIRST: Final = frozenset({"created", "ended", "fgpu"})  # newest and largest first
ALWAYS: Final = (
    Column(key="name", sort="name", label=_("Session")),
    Column(key="status", sort="status", label=_("Status")),
)
COLUMNS: Final = (
    Column(key="environment", sort="environment", label=_("Environment")),
    Column(key="resources", sort="fgpu", label=_("Resources")),
    Column(key="place", sort="group", label=_("Group and host"), is_default=False),
    Column(key="folders", label=_("Folders"), is_default=False),
    Column(key="owner", sort="owner", label=_("Owner"), for_superadmins=True),
    Column(key="left", label=_("Time left"), tabs=_LIVE),
    Column(key="reserved", sort="created", label=_("Reserved")),
    Column(key="ended", sort="ended", label=_("Ended"), tabs=_ENDED, is_default=False),
)


def offered_to(user: User, tab: Tab | None = None) -> list[Column]:
    """Return the columns that the user may choose, in one tab or in any."""
    offered = [column for column in COLUMNS if user.is_superuser or not column.for_superadmins]
    return [column for column in offered if tab is None or tab in column.tabs]


def chosen_by(user: User) -> frozenset[str]:
    """Return the keys of the columns that the user sees; one query."""
    stored = ListColumns.objects.filter(user=user).values_list("columns", flat=True).first()
    if stored is None:
        return frozenset(column.key for column in COLUMNS if column.is_default)
    return frozenset(stored)


def choose(user: User, keys: Iterable[str]) -> None:
    """Store which of the columns that the user may see are shown; unknown ones are ignored."""
    known = {column.key for column in offered_to(user)}
    values: dict[str, Any] = {"columns": sorted(known.intersection(keys))}
    ListColumns.objects.update_or_create(user=user, defaults=values)


def shown(user: User, tab: Tab, chosen: frozenset[str]) -> tuple[str, ...]:
    """Return the keys of the columns of a tab, in order."""
    return tuple(column.key for column in offered_to(user, tab) if column.key in chosen)


def headers(keys: Iterable[str], query: ListQuery) -> list[Head]:
    """Return the headers of the shown columns, those that cannot be hidden first."""
    labels = {column.key: column for column in (*ALWAYS, *COLUMNS)}
    shown_keys = (*(column.key for column in ALWAYS), *keys)
    return [_head(labels[key], query) for key in shown_keys if key != "owner"]  # it stands below the session's name


def _head(column: Column, query: ListQuery) -> Head:
    order = {column.sort: "ascending", f"-{column.sort}": "descending"}.get(query.sort, "") if column.sort else ""
    begins_down = column.sort in DOWN_FIRST
    is_next_down = order == "ascending" or (begins_down and not order)
    sort = f"-{column.sort}" if is_next_down else column.sort
    return Head(key=column.key, label=column.label, sort=sort, aria_sort=order)
