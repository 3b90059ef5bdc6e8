"""Whether there is room for the replicas that a change of a deployment launches beside those that serve."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from deployments.previews import LaunchPreview
from deployments.services import count
from scheduler.advice.advisor import SessionAdvice
from scheduler.advice.estimate import estimate
from sessions.launching import mounts


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlacement:
    """When the replicas of a change start, which are launched while others serve."""

    launches: int
    starts_now: int  # of them
    starts: datetime | Literal["now"] | None  # all of them; None: cannot be estimated
    words: str

    @property
    def waits(self) -> bool:
        """Whether some of them wait."""
        return self.starts_now < self.launches


def placement_of(preview: LaunchPreview) -> RolloutPlacement:
    """Return what the next pass would do with these replicas; a dozen queries or two, and no writes."""
    if not preview.launches:
        return RolloutPlacement(launches=0, starts_now=0, starts="now", words=_words_of_none(preview))
    planned = mounts.plan(preview.owner, preview.launch.mounts)
    sessions = estimate(preview.owner, preview.launch, planned).advice.sessions
    starts_now = sum(each.starts == "now" for each in sessions)
    return RolloutPlacement(
        launches=preview.launches,
        starts_now=starts_now,
        starts=sessions[-1].starts,
        words=_words(preview.launches, starts_now, sessions[-1]),
    )


def _words_of_none(preview: LaunchPreview) -> str:
    if preview.in_place:
        return "No replica is launched beside those that serve: each new one takes the place of one of them."
    return "No further replica is launched."


def _words(launches: int, starts_now: int, last: SessionAdvice) -> str:
    if starts_now == launches:
        return f"There is room now: {count(launches)} can start at once, while what serves goes on."
    waiting = f"There is too little room now: {starts_now} of {launches} can start at once, while what serves goes on."
    return f"{waiting} {last.reason}".strip()
