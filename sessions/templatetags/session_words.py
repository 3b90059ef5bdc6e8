"""Template filters for the text of a session's state."""

from datetime import timedelta

from django import template

from sessions.estimates.words import range_words
from sessions.models import Session, SessionEvent
from sessions.words import reason_text
from translation.english import from_english

register = template.Library()
register.simple_tag(range_words, name="start_range")


@register.filter
def step_span(value: timedelta) -> str:
    """Return a length of time to a tenth of a second below a minute: "0.3 s", "2 min 5 s"."""
    seconds = value.total_seconds()
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds) // 60} min {int(seconds) % 60} s"


@register.filter
def reason_words(subject: Session | SessionEvent) -> str:
    """Return the text of the reason of a session or event, in the reader's language."""
    return from_english(reason_text(subject.reason, subject.detail))
