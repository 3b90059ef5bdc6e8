"""Template tag for how far an array is."""

from typing import Any

from django import template

from arrays.models import ENDED, Array, TaskState

register = template.Library()


@register.inclusion_tag("arrays/_progress.html")
def array_progress(array: Array) -> dict[str, Any]:
    """Return how many tasks have ended, and each state that some are in: its name, word and number."""
    counts = array.counts
    states = [(TaskState[name.upper()], count) for name, count in counts.items() if count]
    words = [(state.value, state.label, count) for state, count in states]
    return {"array": array, "done": sum(counts[state.lower()] for state in ENDED), "words": words}
