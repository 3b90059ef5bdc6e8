"""Arrays over the life of their tasks: window, limits, retries, cancelling, and what happens to their owners."""

import math
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import AuditEntry, User
from arrays import reconciliation, services, tasks
from arrays.models import Array, ArrayState, TaskState
from arrays.tests.making import advance, finish, make_array, task_of
from operations import retention
from resources import clock, kick
from resources.amounts.units import GIB
from resources.models import Host, Image
from sessions.errors import RejectedError
from sessions.launching import services as sessions
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from sessions.projects import services as projects
from tests.factories import make_gpu, make_host, make_policy, make_project, make_user, run_session
from tests.queues import take_all

pytestmark = pytest.mark.django_db


@pytest.fixture
def host() -> Host:
    return make_host(cpu=64)


@pytest.fixture
def owner(host: Host) -> User:
    return make_user()


def states(array: Array) -> dict[int, str]:
    return dict(array.tasks.order_by("index").values_list("index", "state"))


def test_tasks_become_sessions_with_their_variables(owner: User) -> None:
    array = advance(make_array(owner, tasks={"grid": {"lr": [0.1, 0.01], "amp": [True]}}, env={"HOME_DIR": "x"}))
    session = task_of(array, 1).session
    assert session is not None
    assert (session.name, session.command, session.kind, session.is_task) == ("sweep-1", "train", "batch", True)
    assert session.environment == {
        **{"HOME_DIR": "x", "lr": "0.01", "amp": "true", "GP_ARRAY_ID": array.pk, "GP_ARRAY_TASK_ID": "1"},
        **{"SLURM_ARRAY_JOB_ID": array.pk, "SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "2"},
        **{"SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_MAX": "1"},
    }
    assert array.counts | {"pending": 0} == dict.fromkeys(array.counts, 0)
    assert array.pending == 2


def test_what_is_asked_for_reaches_the_sessions(owner: User) -> None:
    make_gpu(host=Host.objects.get())
    asked = {"fgpu": Decimal("0.5"), "memory": "2g", "time_limit": "90m", "priority": 3, "preemptible": True}
    session = task_of(advance(make_array(owner, **asked)), 0).session
    assert session is not None
    assert (session.fgpu, session.memory, session.time_limit) == (500, 2 * GIB, timedelta(minutes=90))
    assert (session.priority, session.is_preemptible) == (3, True)


def test_variables_of_tasks_are_checked_at_the_launch(owner: User) -> None:
    array = make_array(owner, tasks={"grid": {"lr": [1, 2]}})
    array.tasks.filter(index=1).update(parameters={"LD_PRELOAD": "x"})  # as an older version may have stored it
    array = advance(array)
    assert (array.state, array.waiting) == (ArrayState.HELD, 2)
    assert "LD_PRELOAD" in array.reason


def test_each_task_is_asked_whether_variables_are_parameters(owner: User) -> None:
    with pytest.raises(RejectedError) as refused:
        make_array(owner, tasks={"list": [{"a": 1}, {"b": 2}]}, env={"b": "x"})
    assert "b is a parameter" in refused.value.errors["environment"]


def test_what_ends_together_is_noted_in_portions(owner: User, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciliation, "NOTES_AT_ONCE", 2)
    array = advance(make_array(owner, tasks="0-2"))
    for index in range(3):
        finish(task_of(array, index), host)
    assert reconciliation.reconcile(array.pk)
    array.refresh_from_db()
    assert (array.succeeded, array.pending, array.has_ended) == (2, 1, False)
    assert not reconciliation.reconcile(array.pk)
    array.refresh_from_db()
    assert array.has_succeeded


def test_a_task_that_waits_again_has_no_metrics(owner: User, host: Host) -> None:
    array = advance(make_array(owner, tasks="0"))
    finish(task_of(array, 0), host, exit_code=1, log='GP_METRICS {"loss": 1}\n')
    array = advance(array)
    assert task_of(array, 0).metrics == {"loss": 1}
    services.retry(array, actor=owner)
    assert task_of(array, 0).metrics == {}


def test_metrics_of_output_that_is_stored_late_are_taken(owner: User, host: Host) -> None:
    array = advance(make_array(owner, tasks="0"))
    finish(task_of(array, 0), host)
    array = advance(array)
    assert (array.has_ended, task_of(array, 0).metrics) == (True, {})
    Session.objects.update(log_tail='GP_METRICS {"loss": 1}\n')
    reconciliation.advance_all()
    assert task_of(array, 0).metrics == {"loss": 1}


def test_no_more_than_asked_run_at_once(owner: User, host: Host) -> None:
    array = advance(make_array(owner, tasks="0-5%2"))
    assert (array.pending, array.waiting, array.max_parallel) == (2, 4, 2)
    assert reconciliation.due() == []  # the window is full
    finish(task_of(array, 0), host)
    assert reconciliation.due() == [array.pk]
    array = advance(array)
    assert (array.succeeded, array.pending, array.waiting) == (1, 2, 3)


def test_the_queue_never_sees_more_than_the_window(owner: User) -> None:
    array = advance(advance(make_array(owner, tasks="1-200")))
    assert Session.objects.count() == array.pending == services.WINDOW
    assert reconciliation.due() == []


def test_half_of_the_waiting_limit_is_left(host: Host) -> None:
    owner = make_user(policy=make_policy(max_pending=7, max_per_launch=2))
    array = make_array(owner, tasks="1-20")
    for pending in (2, 3, 3):
        assert advance(array).pending == pending


def test_a_small_policy_waits_without_an_error(host: Host) -> None:
    owner = make_user(policy=make_policy(max_pending=0))
    array = advance(make_array(owner))
    assert (array.state, array.waiting) == (ArrayState.ACTIVE, 3)


def test_a_whole_array_succeeds(owner: User, host: Host) -> None:
    array = advance(make_array(owner))
    for index in range(3):
        finish(task_of(array, index), host, log='x\nGP_METRICS {"loss": 0.5}\n')
    array = advance(array)
    assert (array.state, array.has_ended, array.has_succeeded, array.succeeded) == ("SUCCEEDED", True, True, 3)
    task = task_of(array, 0)
    assert (task.exit_code, task.metrics, task.attempts) == (0, {"loss": 0.5}, 1)
    assert task.started_at is not None
    assert reconciliation.due() == []


def test_a_failed_task_is_started_again_after_a_pause(owner: User, host: Host) -> None:
    array = advance(make_array(owner, tasks="0", retries=1))
    finish(task_of(array, 0), host, 3)
    task = task_of(advance(array), 0)
    assert (task.state, task.exit_code) == (TaskState.WAITING, 3)
    assert task.not_before is not None
    assert task.not_before > clock.now()
    array.tasks.update(not_before=clock.now())
    task = task_of(advance(array), 0)
    assert (task.state, task.attempts, task.exit_code) == (TaskState.PENDING, 2, None)
    finish(task, host, 3)
    array = advance(array)
    assert (array.state, array.failed, task_of(array, 0).reason) == (ArrayState.FAILED, 1, "Exit code 3.")


def test_retrying_opens_an_ended_array_again(owner: User, host: Host) -> None:
    array = advance(make_array(owner, tasks="0-1"))
    finish(task_of(array, 0), host, 1)
    finish(task_of(array, 1), host)
    array = advance(array)
    services.retry(array, actor=owner)
    assert (array.state, array.ended_at, array.waiting, array.succeeded) == (ArrayState.ACTIVE, None, 1, 1)
    array = advance(array)
    finish(task_of(array, 0), host)
    assert advance(array).has_succeeded


def test_an_array_whose_tasks_are_being_removed_is_not_retried(owner: User, host: Host) -> None:
    array = advance(make_array(owner, tasks="0-1"))
    finish(task_of(array, 0), host, 1)
    finish(task_of(array, 1), host)
    array = advance(array)
    task_of(array, 1).delete()  # as retention does, in portions
    with pytest.raises(RejectedError, match="being removed"):
        services.retry(array, actor=owner)
    array.refresh_from_db()
    assert array.has_ended


def test_an_array_of_the_same_name_blocks_retrying(owner: User, host: Host) -> None:
    array = advance(make_array(owner, tasks="0"))
    finish(task_of(array, 0), host, 1)
    array = advance(array)
    make_array(owner)
    with pytest.raises(RejectedError):
        services.retry(array, actor=owner)
    array.refresh_from_db()
    assert array.has_ended


def test_a_range_is_cancelled_with_its_sessions(owner: User, host: Host) -> None:
    array = advance(make_array(owner, tasks="0-5%2"))
    run_session(task_of(array, 0).session, host=host)
    array = advance(array)
    services.cancel(array, actor=owner, indices=[0, 2, 3])
    assert states(array) == {0: "RUNNING", 1: "PENDING", 2: "CANCELLED", 3: "CANCELLED", 4: "WAITING", 5: "WAITING"}
    array = advance(array)
    session = task_of(array, 0).session
    assert session is not None
    assert (session.status, session.reason) == (Status.TERMINATING, Reason.USER_REQUEST)
    session.move_to(Status.TERMINATED, Reason.USER_REQUEST, session.detail)
    array = advance(array)
    assert (task_of(array, 0).state, array.cancelled, array.pending) == (TaskState.CANCELLED, 3, 2)
    assert task_of(array, 0).reason == f"Cancelled by {owner}."


def test_a_cancelled_array_ends(owner: User) -> None:
    array = advance(make_array(owner, retries=2))
    services.cancel(array, actor=owner)
    array = advance(advance(array))
    assert (array.state, array.cancelled, array.reason) == ("CANCELLED", 3, f"Cancelled by {owner}.")
    assert not Session.objects.live().exists()


def test_many_cancelled_sessions_end_in_steps(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciliation, "ENDS_AT_ONCE", 2)
    monkeypatch.setattr(reconciliation, "ROUND_SECONDS", math.inf)
    array = advance(make_array(owner, tasks="1-5"))
    services.cancel(array, actor=owner)
    reconciliation.advance_all()
    assert not Session.objects.live().exists()


@pytest.mark.django_db(transaction=True)
def test_ends_of_many_tasks_request_one_round(owner: User, host: Host) -> None:
    array = advance(make_array(owner))
    tasks.advance()
    take_all("scheduler")
    for index in range(3):
        finish(task_of(array, index), host)
    assert take_all("scheduler").count((kick.ARRAYS, ())) == 1
    tasks.advance()
    services.retry(array, actor=owner)
    assert take_all("scheduler").count((kick.ARRAYS, ())) == 1


def test_a_project_with_an_array_is_not_deleted(owner: User) -> None:
    project = make_project(owner)
    array = make_array(owner, project=project.name)
    services.cancel(array, actor=owner)
    with pytest.raises(RejectedError, match="arrays"):
        projects.delete(project, actor=make_user(is_superuser=True))


def test_a_cancelled_task_that_fails_is_not_tried_again(owner: User, host: Host) -> None:
    array = advance(make_array(owner, tasks="0", retries=3))
    services.cancel(array, actor=owner)
    finish(task_of(array, 0), host, 1)  # before its session is ended
    assert advance(array).state == ArrayState.CANCELLED


def test_a_session_ended_by_hand_is_not_tried_again(owner: User) -> None:
    array = advance(make_array(owner, tasks="0", retries=3))
    sessions.terminate(Session.objects.get(), actor=owner)
    assert advance(array).state == ArrayState.CANCELLED


def test_a_held_array_starts_nothing_until_released(owner: User) -> None:
    array = make_array(owner)
    services.hold(array, actor=owner)
    assert (advance(array).pending, array.reason) == (0, f"Held by {owner}.")
    services.release(array, actor=owner)
    assert advance(array).pending == 3


def test_an_ended_array_does_not_say_why_it_was_held(owner: User, host: Host) -> None:
    array = advance(make_array(owner, tasks="0"))
    services.hold(array, actor=owner)
    finish(task_of(array, 0), host)
    array = advance(array)
    assert (array.state, array.reason) == (ArrayState.SUCCEEDED, "")


def test_a_held_array_that_is_cancelled_says_by_whom(owner: User) -> None:
    array = advance(make_array(owner))
    services.hold(array, actor=owner)
    services.cancel(array, actor=owner)
    advance(array)
    assert advance(array).reason == f"Cancelled by {owner}."
    assert array.state == ArrayState.CANCELLED


def test_more_tasks_run_once_the_limit_is_raised(owner: User) -> None:
    array = advance(make_array(owner, tasks="0-5%1"))
    services.change(array, {"max_parallel": 4}, actor=owner)
    assert advance(array).pending == 4


def test_a_removed_image_holds_the_array_with_words(owner: User) -> None:
    array = make_array(owner)
    Image.objects.update(is_enabled=False)
    array = advance(array)
    assert array.state == ArrayState.HELD
    assert "is not offered" in array.reason
    Image.objects.update(is_enabled=True)
    services.release(array, actor=owner)
    assert advance(array).pending == 3


def test_a_name_in_use_is_waited_for(owner: User, host: Host) -> None:
    array = make_array(owner)
    other = run_session(owner=owner, name="sweep-1", host=host)
    array = advance(array)
    assert (array.state, array.pending) == (ArrayState.ACTIVE, 0)
    assert "sweep-1" in array.reason
    assert reconciliation.due() == []
    sessions.terminate(other, actor=owner)
    other.move_to(Status.TERMINATED, Reason.USER_REQUEST)
    Array.objects.update(refused_until=clock.now())
    assert advance(array).pending == 3


def test_a_failed_dependency_cancels_the_array(owner: User, host: Host) -> None:
    first = run_session(owner=owner, host=host)
    array = advance(make_array(owner, tasks="0-99", depends_on=[first.pk]))
    first.move_to(Status.ERROR, Reason.OUT_OF_MEMORY)
    for session in Session.objects.filter(status=Status.PENDING):
        sessions.end(session, Reason.DEPENDENCY_FAILED, "It depends on a failure.")
    array = advance(array)
    assert (array.state, array.cancelled, array.reason) == ("CANCELLED", 100, "It depends on a failure.")


def test_a_disabled_owners_array_ends(owner: User) -> None:
    array = advance(make_array(owner, tasks="0-99"))
    User.objects.filter(pk=owner.pk).update(is_active=False)
    reconciliation.advance_all()
    reconciliation.advance_all()
    array.refresh_from_db()
    assert (array.state, array.reason, array.cancelled) == ("CANCELLED", reconciliation.DISABLED, 100)


def test_what_fails_between_leaves_no_session(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    array = make_array(owner)

    def die(*_arguments: Any) -> None:
        raise SystemError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(reconciliation, "_record", die)
        reconciliation.advance_all()
    assert not Session.objects.exists()
    assert advance(array).pending == 3


def test_old_arrays_are_removed_and_sessions_stay(owner: User, host: Host) -> None:
    array = advance(make_array(owner, tasks="0"))
    finish(task_of(array, 0), host)
    advance(array)
    later = clock.now() + timedelta(days=366)
    assert retention.remove_old(later).items() >= {"array_tasks": 1, "arrays": 1}.items()
    assert not Array.objects.exists()
    assert Session.objects.count() == 1


def test_waiting_tasks_of_an_owner_are_bounded(owner: User, settings: Any) -> None:
    settings.COMPUTE_MAX_ARRAY_TASKS = 3
    for number in range(services.OPEN_ARRAYS):
        make_array(owner, name=f"sweep{number}")
    with pytest.raises(RejectedError, match="At most 30 tasks"):
        make_array(owner, name="another")


def test_a_policy_bounds_the_tasks_of_an_array(host: Host) -> None:
    owner = make_user(policy=make_policy(max_array_tasks=3))
    project = make_project(owner, name="vision", policy=make_policy(max_array_tasks=2))
    make_array(owner)
    with pytest.raises(RejectedError) as refused:
        make_array(owner, name="longer", tasks="0-3")
    assert refused.value.errors == {"tasks": "Your policy allows at most 3 tasks in an array; this makes 4."}
    with pytest.raises(RejectedError) as refused:
        make_array(owner, name="theirs", project=project.name)
    assert refused.value.errors == {"tasks": "The project vision allows at most 2 tasks in an array; this makes 3."}


def test_what_is_cancelled_counts_for_a_day(owner: User, settings: Any) -> None:
    settings.COMPUTE_MAX_ARRAY_TASKS = 3
    for _ in range(services.DAILY_ARRAYS):
        services.cancel(make_array(owner), actor=owner)
    with pytest.raises(RejectedError, match="At most 60 tasks of yours can be submitted") as refused:
        make_array(owner)
    assert refused.value.errors.keys() == {"tasks"}
    Array.objects.update(created_at=clock.now() - timedelta(days=1, minutes=1))
    make_array(owner)


def test_what_others_do_is_audited(owner: User) -> None:
    admin = make_user(is_superuser=True)
    array = make_array(owner)
    services.cancel(array, actor=admin)
    entry = AuditEntry.objects.get(actor=admin)
    assert (entry.action, entry.object_id) == ("cancel", array.pk)


def test_managers_see_and_others_do_not(host: Host) -> None:
    owner, manager = make_user(), make_user()
    project = make_project(owner, managers=[manager])
    array = make_array(owner, project=project.name)
    assert list(Array.objects.visible_to(manager)) == [array]
    assert not Array.objects.visible_to(make_user()).exists()
    assert not Array.objects.operable_by(manager).exists()


def test_a_waiting_array_costs_no_more_queries(owner: User) -> None:
    def queries(tasks: str) -> int:
        array = make_array(owner, tasks=tasks, name=f"sweep{tasks[2:]}")
        with CaptureQueriesContext(connection) as captured:
            reconciliation.reconcile(array.pk)
        return len(captured)

    make_image_once = queries("1-60")
    assert queries("1-5000") <= make_image_once
