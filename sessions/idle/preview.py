"""What an idle rule would have ended lately: a replay of it on what was recorded, before it is switched on."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final

from django.db.models import Exists, OuterRef

from sessions.idle.enforcement import sessions_under
from sessions.idle_rules import MAX_SPAN, PERIOD, IdleLimits, PeriodUse, first_idle, start_of_period
from sessions.lifecycle import Kind
from sessions.models import IdleRule, Session, UsagePeriod

LOOKED_BACK: Final = timedelta(days=7)
_COLUMNS: Final = ("at", "cpu_milli", "cpu_percent", "gpu_percent", "network_bytes", "fgpu", "was_used")


@dataclass(frozen=True, slots=True)
class WouldEnd:
    """A session that the rule would have ended, and when; what it held from then on in milli-fGPU seconds.

    A cluster is one session, its first member that was recorded.
    """

    session: Session
    warned_at: datetime
    ended_at: datetime
    saved_milli_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a rule would have done: the sessions that it would have ended, of how many that ran under it."""

    ended: list[WouldEnd]
    session_count: int
    unknown: int  # of them, those that had no period with all figures known: no rule ends them
    recorded_since: datetime | None

    @property
    def saved_milli_seconds(self) -> int:
        """The milli-fGPU seconds that would have been free for others."""
        return sum(each.saved_milli_seconds for each in self.ended)


def preview(rule: IdleRule, now: datetime) -> Preview:
    """Return what the rule would have ended within LOOKED_BACK, the first of them first; three queries.

    A cluster is as idle as the member that is least so.

    Nobody is taken to have answered the warning by using the session, nor to have put its end off.
    """
    since = start_of_period(now - LOOKED_BACK)
    recorded = UsagePeriod.objects.filter(session=OuterRef("pk"), at__gte=since)
    sessions = sessions_under(rule).filter(Exists(recorded))
    found = {session.pk: session for session in sessions.select_related("owner", "resource_group").order_by("rank")}
    use_of = dict(_recorded(list(found), since - min(rule.window(), MAX_SPAN)))
    wholes: dict[str, list[Session]] = {}
    for session in found.values():
        wholes.setdefault(session.cluster_id or session.pk, []).append(session)
    ended, unknown = [], 0
    for members in wholes.values():
        periods = _of_whole([use_of.get(member.pk, []) for member in members])
        unknown += not any(use and use.is_known for _, use in periods)
        if would_end := _replayed(rule, members, periods, since, now):
            ended.append(would_end)
    first = UsagePeriod.objects.order_by("at").values_list("at", flat=True).first()
    ended.sort(key=lambda each: each.ended_at)
    return Preview(
        ended=ended, session_count=len(wholes), unknown=unknown, recorded_since=max(first, since) if first else None
    )


_Periods = list[tuple[datetime, PeriodUse | None]]


def _recorded(session_ids: list[str], since: datetime) -> Iterator[tuple[str, _Periods]]:
    """Return (session id, its periods from the first to the last, with None for those that are missing)."""
    rows = UsagePeriod.objects.filter(session__in=session_ids, at__gte=since).order_by("session", "at")
    values = rows.values_list("session_id", *_COLUMNS).iterator(chunk_size=20_000)
    for session_id, group in groupby(values, key=itemgetter(0)):
        periods: _Periods = []
        for _, at, *use in group:
            while periods and periods[-1][0] + PERIOD < at:
                periods.append((periods[-1][0] + PERIOD, None))
            periods.append((at, _use(use)))
        yield session_id, periods


def _of_whole(members: list[_Periods]) -> _Periods:
    """Return the periods of a cluster: of each figure the most that a member has, None where that of one is missing."""
    if len(members) == 1:
        return members[0]
    by_time: dict[datetime, list[PeriodUse | None]] = {}
    for at, use in chain.from_iterable(members):
        by_time.setdefault(at, []).append(use)
    return [(at, _most(uses)) for at, uses in sorted(by_time.items())]


def _most(uses: list[PeriodUse | None]) -> PeriodUse | None:
    known = [use for use in uses if use is not None]
    if len(known) < len(uses):
        return None
    most: dict[str, Any] = {}
    for name in PeriodUse.__dataclass_fields__:
        figures = [getattr(use, name) for use in known]
        most[name] = None if None in figures else max(figures)
    return PeriodUse(**most)


def _use(values: list[Any]) -> PeriodUse:
    cpu_milli, cpu_percent, gpu_percent, network_bytes, fgpu, was_used = values
    return PeriodUse(
        cpu_milli=cpu_milli,
        cpu_percent=cpu_percent,
        gpu_percent=gpu_percent,
        network_bytes=network_bytes,
        has_gpu=fgpu > 0,
        was_used=was_used,
    )


def _replayed(
    rule: IdleRule, members: list[Session], periods: _Periods, since: datetime, now: datetime
) -> WouldEnd | None:
    """Return when the rule would have ended the session, or these members of a cluster; None if not."""
    limits: IdleLimits = rule.limits()
    if any(member.kind != Kind.INTERACTIVE for member in members):
        limits = replace(limits, idle_timeout=None)
    numbers = first_idle(limits, [use for _, use in periods], rule.warning)
    if numbers is None:
        return None
    warned_at, ended_at = (periods[number][0] + PERIOD for number in numbers)
    if ended_at < since:
        ended_at = since
    saved = sum(max(0.0, ((each.ended_at or now) - ended_at).total_seconds()) * each.fgpu for each in members)
    return WouldEnd(members[0], warned_at, ended_at, round(saved))
