"""Faults planted in the product, each of which a campaign must find; its option `--plant` has them in place."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest import mock

from django.utils import timezone

from arrays import reconciliation as array_reconciliation
from deployments.replicas import status
from hostworker.agent import reconciler
from hostworker.containers import resizer, runner
from imports.runs import progress
from resources.clock import SharedClock
from resources.models import HostStatus
from sessions import sweeps
from sessions.clusters import settling
from sessions.lifecycle import IN_CONTAINER, Reason, Status
from sessions.models import Session
from sessions.models import session as session_model
from sessions.resizing import services as resizing
from tests.virtual.faults import Fault, FaultKind
from tests.virtual.story import Operation, Story
from tests.virtual.world import no_op


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Have the product wrong in this way until the block ends."""
    with ExitStack() as stack:
        for module, attribute, wrong in PLANTS[name].wrong:
            stack.enter_context(mock.patch.object(module, attribute, wrong))
        yield


def _without(**left_out: Any) -> Callable[..., reconciler.Findings]:
    decide = reconciler.decide
    return lambda *arguments, **named: replace(decide(*arguments, **named), **left_out)


def _claim_new_alone(session_id: str, attempt: int, claim: Callable[..., Any] = runner.claim) -> Session | None:
    is_new = Session.objects.filter(pk=session_id, status=Status.SCHEDULED).exists()
    return claim(session_id, attempt) if is_new else None


def _end_at_once() -> None:
    for session in Session.objects.filter(status__in=IN_CONTAINER, host__status=HostStatus.LOST):
        sweeps._move(session, Status.ERROR, Reason.HOST_LOST, "")


def _finish_unapplied(runtime: object, session_id: str, resize_id: str) -> None:
    resizing.finish(session_id, resize_id)


@dataclass(frozen=True)
class Plant:
    """What is wrong instead of what, and a short story that fails by it."""

    wrong: list[tuple[Any, str, Any]]  # module or class, attribute, and what stands in its place
    story: Story


def _story(*operations: Operation, runs: bool = True) -> Story:
    """Return the story of a session that runs, unless it is not to, and what then happens."""
    begin = (SUBMIT, Operation("run_pass"), Operation("go_on")) if runs else ()
    return Story(1, (*begin, *operations))


SUBMIT: Final = Operation("submit", 1, 2)  # one interactive session of three cores
CLUSTER: Final = Operation("submit", 7, 0)  # two interactive members
_REFUSED: Final = Operation("deliver", fault=Fault(FaultKind.START_REFUSED, 1))
_WEB_IS_LATE: Final = Operation("set_clock", 3, 5)  # by thirty hours
_AWAY_AS_IT_STARTS: Final = Operation("deliver", fault=Fault(FaultKind.ENGINE_ERROR, 1))
_A_WHILE: Final = Operation("pass_time", 6, 1)  # shorter than the grace of a silent host
PLANTS: Final = {
    "leases are not freed": Plant([(session_model, "HOSTED", frozenset(Status))], _story()),
    "starts of dead workers are not taken up": Plant(
        [(runner, "claim", _claim_new_alone)], _story(SUBMIT, Operation("run_pass"), _AWAY_AS_IT_STARTS, runs=False)
    ),
    "stops that were lost are not taken up": Plant(
        [(reconciler, "decide", _without(to_stop=[]))], _story(Operation("terminate"), Operation("lose_message"))
    ),
    "orphans stay": Plant([(runner, "clear_away", no_op)], _story(Operation("force_end"))),
    "lost containers are not noticed": Plant([(runner, "note_lost", no_op)], _story(Operation("lose_container"))),
    "lifetimes are forgotten": Plant([(sweeps, "end_expired", no_op)], _story()),
    "starts of silent hosts are forgotten": Plant(
        [(sweeps, "requeue_unclaimed", no_op)],
        _story(SUBMIT, Operation("run_pass"), Operation("lose_host"), runs=False),
    ),
    "sessions of lost hosts are forgotten": Plant(
        [(sweeps, "end_on_lost_hosts", no_op)], _story(Operation("lose_host"))
    ),
    "hosts get no grace": Plant(
        [(sweeps, "end_on_lost_hosts", _end_at_once)],
        _story(Operation("cut_off"), _A_WHILE, Operation("return_host")),
    ),
    "resizes are not applied": Plant([(resizer, "apply", _finish_unapplied)], _story(Operation("resize"))),
    "ends of members are not followed": Plant(
        [(settling, "_end_others", no_op)],
        _story(CLUSTER, Operation("run_pass"), Operation("go_on"), Operation("terminate"), runs=False),
    ),
    "returns of members are not followed": Plant(
        [(settling, "_return_others", no_op)], _story(CLUSTER, Operation("run_pass"), _REFUSED, runs=False)
    ),
    "ends of tasks are not followed": Plant(
        [(array_reconciliation, "_take_note", lambda *_: False)], _story(Operation("submit_array", 1), runs=False)
    ),
    "imports outlive their sessions": Plant([(progress, "_conclude", no_op)], _story(Operation("import_"), runs=False)),
    "ended sessions are told that they run": Plant([(sweeps, "PARKED_LONG", "Running.")], _story(Operation("park"))),
    "nobody says why replicas wait": Plant(
        [(status, "problem_of", lambda *_: "")], _story(Operation("deploy", 1, 8), runs=False)
    ),
    "clocks of machines are trusted": Plant(
        [(SharedClock, "now", lambda self: timezone.now())], _story(_WEB_IS_LATE, SUBMIT, runs=False)
    ),
}
