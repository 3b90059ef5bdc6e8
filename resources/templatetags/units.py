"""Template filters that format amounts."""

from datetime import timedelta

from django import template
from django.utils.translation import ngettext

from resources.accelerators import kinds
from resources.amounts import units
from resources.gpus.shares import SHARING_WORDS, Sharing
from resources.gpus.tiers import GATED, TIER_WORDS, Tier
from translation.english import from_english

register = template.Library()


@register.filter
def size(value: int) -> str:
    """Return bytes in the largest fitting unit: "2 GiB"."""
    return units.size_text(value)


@register.filter
def fgpu(milli: int) -> str:
    """Return milli-fGPU as a decimal: "0.35"."""
    return units.fgpu_text(milli)


@register.filter
def cores(milli: int) -> str:
    """Return thousandths of a core as a number of cores: "0.25"."""
    return units.fgpu_text(milli)


@register.filter
def guaranteed(cpu: int, core_milli: int) -> str:
    """Return how many cores are guaranteed to a session, by the thousandths of each."""
    return units.fgpu_text(cpu * core_milli)


@register.filter
def tier_words(tier: str) -> str:
    """Return the description of an enforcement tier."""
    return from_english(TIER_WORDS[Tier(tier)])


@register.filter
def is_gated(tier: str) -> bool:
    """Return whether the hook's gate divides the time of GPUs in this tier."""
    return tier in GATED


@register.filter
def sharing_words(sharing: str) -> str:
    """Return what becomes of a GPU's idle time."""
    return from_english(SHARING_WORDS[Sharing(sharing)])


@register.filter
def named_for(text: str, name: str) -> str:
    """Return a text about GPUs with what the devices of a group are called (`accelerator_name`)."""
    return kinds.named_for(name, text)


@register.filter
def span(value: timedelta) -> str:
    """Return a length of time in the largest units: "1 d 4 h"."""
    return from_english(units.span_text(value))


@register.filter
def duration(value: timedelta) -> str:
    """Return a length of time in minutes or hours, rounded up: "15 minutes", "1 hour"."""
    minutes = max(1, -(-int(value.total_seconds()) // 60))
    if minutes % 60:
        return ngettext("%(count)s minute", "%(count)s minutes", minutes) % {"count": minutes}
    return ngettext("%(count)s hour", "%(count)s hours", minutes // 60) % {"count": minutes // 60}
