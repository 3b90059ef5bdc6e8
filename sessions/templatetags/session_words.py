"""Template filters that put a session's state into words."""

from django import template

from sessions.models import Session, SessionEvent
from sessions.words import reason_text

register = template.Library()


@register.filter
def reason_words(subject: Session | SessionEvent) -> str:
    """Write why the session is in its state, or why the event happened."""
    return reason_text(subject.reason, subject.detail)
