"""What administrators tell everybody."""

from typing import Final

from accounts.models import User
from notifications.models import Announcement, Dismissal
from sessions import notify

GROUP: Final = "announcements"  # of the channel layer: the browsers of everybody


def current_for(user: User) -> list[Announcement]:
    """Return the announcements that the user has not dismissed, the most serious first; one query."""
    return list(Announcement.objects.current().exclude(dismissals__user=user))


def dismiss(announcement: Announcement, user: User) -> None:
    """Show it to the user no more."""
    Dismissal.objects.get_or_create(announcement=announcement, user=user)


def changed() -> None:
    """After the commit, have all browsers fetch the announcements again."""
    notify.tell_group(GROUP, "announcements.changed")
