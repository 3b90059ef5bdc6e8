"""Template filters for the text of a session's state."""

from django import template

from sessions.models import Session, SessionEvent
from sessions.words import reason_text
from translation.english import from_english

register = template.Library()


@register.filter
def reason_words(subject: Session | SessionEvent) -> str:
    """Return the text of the reason of a session or event, in the reader's language."""
    return from_english(reason_text(subject.reason, subject.detail))
