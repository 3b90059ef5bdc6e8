"""Template tags of the launch wizard, for other pages."""

from collections.abc import Sequence
from typing import Any

from django import template
from django.forms import BoundField

from pages.launch.clusters import MODE_WORDS
from pages.launch.fields import DEPENDENCY_WORDS
from pages.launch.quick_starts import quick_starts as found_for
from resources.models import ResourceGroup
from sessions.lifecycle import DependencyKind
from sessions.models import ClusterMode

register = template.Library()


@register.inclusion_tag("launch/_quick_starts.html", takes_context=True)
def quick_starts(context: Any, groups: Sequence[ResourceGroup] | None = None) -> dict[str, Any]:
    """Show launches that only wait to be confirmed; needs the request in the context. Four queries.

    `groups` are the resource groups of the user, where they are known.
    """
    return {"quick_starts": found_for(context["request"].user, groups)}


@register.filter
def mode_words(mode: str) -> str:
    """Return on which hosts the members of a cluster are, or would be."""
    return str(MODE_WORDS[ClusterMode(mode)])


@register.filter
def dependency_words(kind: str) -> str:
    """Return what is waited for of another session."""
    return str(DEPENDENCY_WORDS[DependencyKind(kind)])


@register.filter
def link_problem(field: BoundField) -> str:
    """Return what the link that a form began with says in vain for a field; "" for forms that no link fills in."""
    problems: dict[str, str] = getattr(field.form, "link_problems", {})
    return problems.get(field.name, "")
