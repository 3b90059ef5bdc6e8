"""Template filter for texts that were composed in English."""

from django import template

from translation import english

register = template.Library()


@register.filter
def from_english(text: str) -> str:
    """Return a text that was composed in English in the reader's language."""
    return english.from_english(text)
