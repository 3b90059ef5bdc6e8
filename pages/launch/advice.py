"""What the launch page says about the starts of the sessions that a form describes: sentences made of an estimate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from django.template.defaultfilters import capfirst
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from resources.amounts.units import amount_text, fgpu_text, size_text
from scheduler.advice.advisor import Alternative, SessionAdvice
from scheduler.advice.estimate import Estimate
from sessions.estimates.words import clock, range_words
from sessions.launching.services import LaunchRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsTogether:
    """Sessions that start at the same time for the same reason, in words."""

    is_now: bool
    headline: str
    cause: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SoonerChoice:
    """A change by which all sessions start sooner: in words, and as values of the form's fields."""

    text: str
    values: Mapping[str, Any]


def parts_of(sessions: Sequence[SessionAdvice]) -> list[StartsTogether]:
    """Return what is said of the sessions, those with the same advice together; each reason stands once."""
    parts: list[StartsTogether] = []
    for advice, same in groupby(sessions):
        is_new = not any(part.reason == advice.reason for part in parts)
        parts.append(
            StartsTogether(
                is_now=advice.starts == "now",
                headline=_headline(len(list(same)), len(sessions), advice),
                cause=advice.eta_reason,
                reason=advice.reason if is_new else "",
            )
        )
    return parts


def start_of(tasks: int) -> str:
    """Return what the button says that launches an array."""
    return ngettext("Start %(count)s task", "Start %(count)s tasks", tasks) % {"count": tasks}


def button_of(sessions: Sequence[SessionAdvice]) -> str:
    """Return what the button that launches the sessions says will happen."""
    starting = sum(advice.starts == "now" for advice in sessions)
    if starting == len(sessions):
        return _("Launch")
    if starting:
        return _("Launch %(count)s, queue %(waiting)s") % {"count": starting, "waiting": len(sessions) - starting}
    if isinstance(first := sessions[0].starts, datetime):
        return format_html(_("Queue, starts about {time}"), time=clock(first))
    return _("Queue")


def choices_of(found: Estimate, order: LaunchRequest) -> list[SoonerChoice]:
    """Return what would start sooner than the order."""
    return [_choice(each, found, order) for each in found.advice.alternatives]


def rooms_of(found: Estimate) -> str:
    """Return how often a request by GPU memory fits now on each model of GPU, largest room first; "" for others."""
    rooms: dict[str, int] = {}
    for room in found.rooms:
        name = room.model or _("GPUs of %(size)s") % {"size": size_text(room.memory)}
        rooms[name] = rooms.get(name, 0) + room.fits
    ordered = sorted(rooms.items(), key=lambda room: (-room[1], room[0]))
    return ", ".join(
        ngettext("%(count)s time on %(gpu)s", "%(count)s times on %(gpu)s", count) % {"count": count, "gpu": name}
        for name, count in ordered
    )


def _headline(count: int, total: int, advice: SessionAdvice) -> str:
    """Return when `count` of `total` sessions start."""
    numbers, starts = {"count": count}, advice.starts
    if advice.starts_from is not None and advice.starts_until is not None:
        words = range_words(advice.starts_from, advice.starts_until)
        if count == total == 1:
            return capfirst(words)
        text = ngettext("{count} session: {range}", "{count} sessions: {range}", count)
        return format_html(text, count=count, range=words)
    if starts == "now":
        if count == total:
            return ngettext("Starts now", "All %(count)s start now", count) % numbers
        return ngettext("%(count)s starts now", "%(count)s start now", count) % numbers
    if starts is None:
        if count == total:
            return ngettext("Starts when there is room", "All %(count)s start when there is room", count) % numbers
        return ngettext("%(count)s starts when there is room", "%(count)s start when there is room", count) % numbers
    if count == total:
        text = ngettext("Starts about {time}", "All {count} start about {time}", count)
    else:
        text = ngettext("{count} starts about {time}", "{count} start about {time}", count)
    return format_html(text, count=count, time=clock(starts))


def _choice(alternative: Alternative, found: Estimate, order: LaunchRequest) -> SoonerChoice:
    group = "" if alternative.group_id == order.resource_group.pk else found.group_names[alternative.group_id]
    values: dict[str, Any]
    text: str
    if group:
        what, values = group, {"resource_group": alternative.group_id}
    elif alternative.fgpu_milli != order.fgpu:
        what, values = amount_text("fgpu", alternative.fgpu_milli), {"fgpu": fgpu_text(alternative.fgpu_milli)}
    elif alternative.cpu != order.cpu:
        what, values = amount_text("cpu", alternative.cpu), {"cpu": alternative.cpu}
    else:
        what, values = amount_text("memory", alternative.memory_bytes), {"memory": size_text(alternative.memory_bytes)}
    if isinstance(alternative.starts, datetime):
        text = format_html(_("about {time} in {group}"), time=clock(alternative.starts), group=group)
    elif group:
        text = ngettext("now in %(what)s", "all now in %(what)s", order.count) % {"what": what}
    else:
        number = order.count * order.members
        text = ngettext("now with %(what)s", "all now with %(what)s each", number) % {"what": what}
    return SoonerChoice(text=text, values=values)
