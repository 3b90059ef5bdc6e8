"""The range in which something is likely to start, as pages show it."""

from datetime import datetime

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from sessions.lifecycle import START_CERTAINTY


def clock(moment: datetime) -> SafeString:
    """Return the element that shows a time of day in the browser's zone."""
    text = moment.strftime("%Y-%m-%d %H:%M UTC")
    return format_html('<time data-time="clock" datetime="{}">{}</time>', moment.isoformat(), text)


def range_words(starts_from: datetime, starts_until: datetime) -> SafeString:
    """Return when something starts, with the certainty: "starts 14:10 to 14:50, 8 of 10"."""
    hits, times = START_CERTAINTY
    return format_html(
        _("starts {begin} to {end}, {hits} of {times}"),
        begin=clock(starts_from),
        end=clock(starts_until),
        hits=hits,
        times=times,
    )
