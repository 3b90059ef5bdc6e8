"""The lists of sessions that the page offers by name, with their counts: a tab, or what has one status in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from sessions.lifecycle import TABS, Status, Tab


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSection:
    """A list by name; `tab` and `status` are the parameters of its address."""

    key: str
    label: str | Promise
    tab: Tab
    status: Status | None = None  # None: all of the tab

    def count(self, by_status: Mapping[str, int]) -> int:
        """Return how many of these numbers of sessions by status are its own."""
        return sum(by_status.get(status, 0) for status in ([self.status] if self.status else TABS[self.tab]))


SECTIONS: Final = (
    ListSection(key="active", label=_("All active"), tab=Tab.RUNNING),
    ListSection(key="running", label=pgettext_lazy("sessions", "Running"), tab=Tab.RUNNING, status=Status.RUNNING),
    ListSection(key="waiting", label=pgettext_lazy("sessions", "Waiting"), tab=Tab.RUNNING, status=Status.PENDING),
    ListSection(key="parked", label=pgettext_lazy("sessions", "Parked"), tab=Tab.RUNNING, status=Status.PARKED),
    ListSection(key="finished", label=pgettext_lazy("sessions", "Finished"), tab=Tab.FINISHED),
    ListSection(key="others", label=pgettext_lazy("sessions", "Failed"), tab=Tab.OTHERS),
)


def section_of(tab: Tab, status: str) -> ListSection:
    """Return the section that lists a status of a tab, or all of the tab; what has none is part of its tab's."""
    found = [section for section in SECTIONS if section.tab == tab and (section.status or "") in (status, "")]
    return found[-1]


def counts(by_status: Mapping[str, int]) -> dict[str, int]:
    """Return the number of sessions in each section, by key."""
    return {section.key: section.count(by_status) for section in SECTIONS}
