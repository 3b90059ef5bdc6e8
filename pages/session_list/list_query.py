"""What a request asks of the list: tab, search, filters, order and page; and the sessions that match."""

import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Count, Q, QuerySet

from accounts.models import User
from pages.session_list.occupancy import MAX_AGE_SECONDS, Version
from pages.session_list.sections import ListSection, counts, section_of
from sessions.lifecycle import TABS, Kind, Status, Tab
from sessions.models import Session, SessionQuerySet, whole_status
from sessions.search import DEFAULT_SORT, SORTS, match, order_of

PAGE_SIZES: Final = (25, 50, 100)
MAX_COUNTED: Final = 4096  # users whose counts a process keeps
_counted: dict[int | None, tuple[Version, float, dict[str, int]]] = {}
_TAB_NAMES: Final[dict[str, Tab]] = {tab.value: tab for tab in Tab}
TAB_OF: Final = {status.value: tab for tab, statuses in TABS.items() for status in statuses}
MINE: Final = "mine"
REPLICAS, NO_REPLICAS = ("replica", "-replica")
FILTERS: Final = frozenset({"q", "status", "environment", "in", "kind", "owner", "sort"})  # of the filter


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """A well-formed request for a list; what was not understood is the default."""

    tab: Tab = Tab.RUNNING
    search: str = ""
    sort: str = DEFAULT_SORT
    status: str = ""
    environment: str = ""
    group_id: int | None = None
    kind: str = ""  # REPLICAS or NO_REPLICAS
    is_mine_only: bool = False
    size: int = PAGE_SIZES[0]

    @classmethod
    def from_parameters(cls, given: Mapping[str, str]) -> "ListQuery":
        """Return the query of a URL's parameters."""
        tab = _TAB_NAMES.get(given.get("tab", ""), Tab.RUNNING)
        sort = given.get("sort", "")
        status, group, size = given.get("status", ""), given.get("in", ""), given.get("size", "")
        return cls(
            tab=tab,
            search=_without_nul(given.get("q", "")),
            sort=sort if sort.removeprefix("-") in SORTS else DEFAULT_SORT,
            status=status if status in TABS[tab] else "",
            environment=_without_nul(given.get("environment", "")),
            group_id=int(group) if group.isascii() and group.isdigit() and len(group) <= 9 else None,
            kind=kind if (kind := given.get("kind", "")) in (REPLICAS, NO_REPLICAS) else "",
            is_mine_only=given.get("owner") == MINE,
            size=next((each for each in PAGE_SIZES if str(each) == size), PAGE_SIZES[0]),
        )

    @property
    def section(self) -> ListSection:
        """The list by name of which this is all, or a part."""
        return section_of(self.tab, self.status)

    @property
    def filter_count(self) -> int:
        """How many filters beside the search are set."""
        return sum(
            (
                self.status != (self.section.status or ""),
                bool(self.environment),
                self.group_id is not None,
                bool(self.kind),
                self.is_mine_only,
            )
        )

    @property
    def is_plain(self) -> bool:
        """True if neither a search nor a filter leaves out sessions of the section."""
        return not self.search and not self.filter_count

    @property
    def takes_new_first(self) -> bool:
        """True if a new session of the tab belongs at the top of the first page."""
        return self.is_plain and not self.status and self.sort == DEFAULT_SORT

    def sessions(self, user: User) -> QuerySet[Session]:
        """Return the sessions of `user`, or of everybody for a superadmin, that match, in order."""
        found = Session.objects.operable_by(user).outside_arrays()
        found = found.mains_in([self.status] if self.status else TABS[self.tab])
        if self.is_mine_only:
            found = found.filter(owner=user)
        if self.environment:
            found = found.filter(image__environment=self.environment)
        if self.group_id is not None:
            elsewhere = Q(status=Status.PENDING, group_choices__contains=[self.group_id])
            found = found.filter(Q(resource_group=self.group_id) | elsewhere)
        if self.kind:
            found = found.filter(kind=Kind.REPLICA) if self.kind == REPLICAS else found.exclude(kind=Kind.REPLICA)
        if self.search:
            found = found.filter(match(self.search, user))
        return found.order_by(*order_of(self.sort))


def section_counts(user: User, version: Version | None = None) -> dict[str, int]:
    """Return the number of sessions in each section for this user: one query, none where `version` has been counted."""
    key = None if user.is_superuser else user.pk
    now = time.monotonic()
    known = _counted.get(key)
    if version and known and known[0] == version and now - known[1] < MAX_AGE_SECONDS:
        return known[2]
    by_status: Counter[str] = Counter()
    for status, number in _by_status(Session.objects.operable_by(user)):
        by_status[status] += number
    found = counts(by_status)
    if version:
        if len(_counted) >= MAX_COUNTED:
            _counted.clear()
        _counted[key] = (version, now, found)
    return found


def counts_by_owner(owner_ids: Collection[int | None]) -> dict[int | None, dict[str, int]]:
    """Return the number of sessions in each section by owner; None is everybody. Two queries at most."""
    rows: list[tuple[int | None, str, int]] = []
    if None in owner_ids:
        rows += [(None, *row) for row in _by_status(Session.objects.all())]
    if owners := [each for each in owner_ids if each is not None]:
        rows += _by_status(Session.objects.filter(owner__in=owners), "owner_id")
    by_status: dict[int | None, Counter[str]] = {each: Counter() for each in owner_ids}
    for owner_id, status, number in rows:
        by_status[owner_id][status] += number
    return {owner_id: counts(found) for owner_id, found in by_status.items()}


def _by_status(sessions: SessionQuerySet, *fields: str) -> QuerySet[Any, Any]:
    """Return the number of sessions by fields and status, which may come twice: (*values, status, number)."""
    mains, number = sessions.outside_arrays().order_by(), Count("pk")
    plain = mains.filter(cluster=None).values_list(*fields, "status").annotate(number=number)
    clusters = mains.filter(cluster__isnull=False).annotate(whole=whole_status())  # apart: it costs more
    return plain.union(clusters.values_list(*fields, "whole").annotate(number=number), all=True)


def _without_nul(text: str) -> str:
    return text.replace("\0", "").strip()[:200]  # PostgreSQL refuses NUL in text
