"""Template tags: icons from the sprite, and the main navigation."""

from django import template
from django.template.context import RequestContext
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

from gpuplatform import navigation

register = template.Library()


@register.simple_tag
def icon(name: str, classes: str = "") -> SafeString:
    """Return an icon of static/img/icons.svg. It is decorative, so the element around it needs a label."""
    return format_html(
        '<svg class="icon {}" aria-hidden="true" focusable="false"><use href="{}#{}"></use></svg>',
        classes,
        static("img/icons.svg"),
        name,
    )


@register.simple_tag(takes_context=True)
def navigation_links(context: RequestContext) -> list[navigation.Link]:
    """Return the links of the main navigation for the user of the request."""
    return list(navigation.links(context["request"]))
