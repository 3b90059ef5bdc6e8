"""Template tags of the launch wizard, for other pages."""

from typing import Any

from django import template

from pages.launch.quick_starts import quick_starts as found_for

register = template.Library()


@register.inclusion_tag("launch/_quick_starts.html", takes_context=True)
def quick_starts(context: Any) -> dict[str, Any]:
    """Show launches that only wait to be confirmed; needs the request in the context. Four queries."""
    return {"quick_starts": found_for(context["request"].user)}
