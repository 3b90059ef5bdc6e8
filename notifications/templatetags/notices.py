"""Template tags of announcements."""

from django import template

from accounts.models import User
from notifications.announcements.services import current_for
from notifications.models import Announcement

register = template.Library()


@register.simple_tag
def announcements_for(user: User) -> list[Announcement]:
    """Return the announcements to show to a signed-in user; one query."""
    return current_for(user)
