"""How far a rollout by steps is, as pages and the API show it."""

from dataclasses import dataclass

from redis.exceptions import RedisError

from deployments import figures
from deployments.models import Deployment, StepwiseRollout
from deployments.replicas import stepping
from deployments.replicas.stepwise import StepComparison


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """A rollout by steps that is under way."""

    rollout: StepwiseRollout
    old_revision: int
    new_revision: int
    words: str  # which share the new revision gets, and what is awaited
    compared: StepComparison | None  # what both have answered; None while it is not known, or before the first step
    is_known: bool  # what was answered could be read

    @property
    def step_number(self) -> int:
        """The running step, from 1."""
        return self.rollout.step + 1

    @property
    def steps(self) -> list[int]:
        """Percent of the requests, of each step."""
        return list(self.rollout.steps) if self.rollout.is_canary else [self.rollout.percent]

    @property
    def may_promote(self) -> bool:
        """Whether the step has begun, so that it can be passed before its time."""
        return self.rollout.begun_at is not None


def progress_of(deployment: Deployment, *, reads_figures: bool = True) -> RolloutProgress | None:
    """Return how far it is, None where none is under way. Fetch both revisions and the rollout with the deployment."""
    found: StepwiseRollout | None = getattr(deployment, "rollout", None)
    if found is None or deployment.revision is None or deployment.previous_revision is None:
        return None
    totals = _totals(deployment.pk) if reads_figures else None
    has_begun = found.begun_at is not None or found.step > 0
    return RolloutProgress(
        rollout=found,
        old_revision=deployment.previous_revision.number,
        new_revision=deployment.revision.number,
        words=stepping.status_words(deployment, found, totals),
        compared=stepping.comparison(deployment, found, totals) if totals is not None and has_begun else None,
        is_known=totals is not None,
    )


def _totals(pk: str) -> stepping.Totals | None:
    try:
        return figures.revision_totals(pk)
    except (RedisError, OSError):
        return None
