"""Template tags about environments."""

from functools import lru_cache
from typing import Final

from django import template
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

from pages.launch.offer import PRIVATE_ENVIRONMENT

register = template.Library()

MARKS: Final = frozenset({"python", "pytorch", "tensorflow", "jax", "scikit-learn"})  # of static/img/environments.svg
MAX_MARKS: Final = 512  # kept of a process
TONES: Final = 5  # of those without a mark, see site.css


@register.simple_tag
@lru_cache(MAX_MARKS)
def environment_mark(name: str) -> SafeString:
    """Return the mark of an environment, or two letters. It is decorative: the name stands beside it."""
    mark = "mine" if name == PRIVATE_ENVIRONMENT else name.rsplit("/", 1)[-1].casefold()
    if mark in MARKS or mark == "mine":
        return format_html(
            '<span class="environment-mark" aria-hidden="true"><svg><use href="{}#{}"></use></svg></span>',
            static("img/environments.svg"),
            mark,
        )
    tone = sum(name.encode()) % TONES
    return format_html(
        '<span class="environment-mark" data-tone="{}" aria-hidden="true">{}</span>', tone, monogram(name)
    )


def monogram(name: str) -> str:
    """Return two letters that stand for an environment: "PT" for PyTorch, "Py" for Python."""
    capitals = "".join(letter for letter in name if letter.isupper())
    return capitals[:2] if len(capitals) > 1 else name[:2].capitalize()
