"""Template tag for how far an array is."""

from typing import Any

from django import template

from arrays.models import ENDED, Array, TaskState

register = template.Library()


@register.inclusion_tag("arrays/_progress.html")
def array_progress(array: Array) -> dict[str, Any]:
    """Return how many tasks have ended, and the word and number of each state that some are in."""
    counts = array.counts
    words = [(TaskState[name.upper()].label, count) for name, count in counts.items() if count]
    return {"array": array, "done": sum(counts[state.lower()] for state in ENDED), "words": words}
