"""The start of a session as steps with their durations, from its events. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sessions.lifecycle import Reason, Status
from sessions.models import Session, SessionEvent


class StepName(StrEnum):
    """The steps, in order."""

    QUEUE = "queue"  # waits for resources
    HOST = "host"  # its host takes over
    IMAGE = "image"  # its image is pulled, where the host has it not
    CONTAINER = "container"  # its container starts


class StepState(StrEnum):
    """How far a step is."""

    DONE = "done"
    CURRENT = "current"
    COMING = "coming"
    FAILED = "failed"  # the session ended in it


@dataclass(frozen=True, slots=True, kw_only=True)
class StartStep:
    """One step of the start; without an end it is under way, without a beginning it is still to come."""

    name: StepName
    state: StepState
    began_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def span(self) -> timedelta | None:
        """How long it took; None until it has ended."""
        return self.ended_at - self.began_at if self.began_at and self.ended_at else None


def start_steps(session: Session, events: Iterable[SessionEvent]) -> list[StartStep]:
    """Return the steps of the session's last attempt; the image is one only where it was pulled."""
    moments = _moments(events)
    names = [StepName.QUEUE, StepName.HOST, StepName.IMAGE, StepName.CONTAINER]
    is_pulling = session.pulled_bytes is not None and session.started_at is None
    if moments.get(StepName.IMAGE) is None and not is_pulling:
        names.remove(StepName.IMAGE)
    steps: list[StartStep] = []
    began: datetime | None = session.created_at
    for name in names:
        ended = moments.get(name)
        if began is None:
            state = StepState.COMING
        elif ended is not None:
            state = StepState.DONE
        else:
            state = StepState.FAILED if session.is_final else StepState.CURRENT
            ended = session.ended_at
        steps.append(StartStep(name=name, state=state, began_at=began, ended_at=ended))
        began = ended if state == StepState.DONE else None
    return steps


def is_started(steps: Iterable[StartStep]) -> bool:
    """Return whether every step is done."""
    return all(step.state == StepState.DONE for step in steps)


def total(steps: list[StartStep]) -> timedelta | None:
    """Return how long the whole start took; None until it has ended."""
    first, last = steps[0].began_at, steps[-1].ended_at
    return last - first if first and last and is_started(steps) else None


def _moments(events: Iterable[SessionEvent]) -> dict[StepName, datetime]:
    """Return when each step of the last attempt ended."""
    moments: dict[StepName, datetime] = {}
    for event in events:
        if event.new_status == Status.PENDING and event.old_status:  # back in the queue
            moments.clear()
        elif event.reason == Reason.ASSIGNED:
            moments[StepName.QUEUE] = event.at
        elif event.reason == Reason.CLAIMED:
            moments[StepName.HOST] = event.at
        elif event.reason == Reason.IMAGE_PULLED:
            moments[StepName.IMAGE] = event.at
        elif event.reason == Reason.STARTED:
            moments[StepName.CONTAINER] = event.at
    return moments
