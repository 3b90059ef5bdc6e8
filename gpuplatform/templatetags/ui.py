"""Template tags: icons from the sprite."""

from django import template
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

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
