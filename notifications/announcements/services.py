"""What administrators tell everybody, or the users of some resource groups."""

from typing import Final

from accounts.models import User
from notifications.models import Announcement, Dismissal
from sessions import notify

GROUP: Final = "announcements"  # of the channel layer: the browsers of everybody


def current_for(user: User) -> list[Announcement]:
    """Return those for the user that they have not dismissed, the most serious first. One query without."""
    if not (found := list(Announcement.objects.current())):
        return found  # as nearly always, without the dear question of which groups are the user's
    found = list(Announcement.objects.current().visible_to(user))
    dismissed = set(Dismissal.objects.filter(user=user).values_list("announcement_id", flat=True))
    return [announcement for announcement in found if announcement.pk not in dismissed]


def dismiss(announcement: Announcement, user: User) -> None:
    """Show it to the user no more."""
    Dismissal.objects.get_or_create(announcement=announcement, user=user)


def changed() -> None:
    """After the commit, have all browsers fetch the announcements again."""
    notify.tell_group(GROUP, "announcements.changed")
