"""What the tasks of an array that wait cost a pass: the window of sessions, which are one request class."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from arrays import services
from arrays.services import WINDOW
from arrays.tests.making import advance, make_array
from scheduler.cycle.passes import place, run_pass
from tests.factories import make_host, make_user

pytestmark = pytest.mark.django_db


def test_ten_thousand_waiting_tasks_are_a_window_of_one_class() -> None:
    host, owner = make_host(cpu=1), make_user()
    advance(make_array(owner, tasks="0"))
    run_pass()  # it fills the host
    advance(make_array(owner, tasks="1-10000", name="sweep-of-many"))
    state, placed, _ = place(host.group_id)
    assert placed == 0
    assert len(state.waiting) == WINDOW
    assert len({session.request.shape for session in state.waiting.values()}) == 1


def queries_of_pass(tasks: str) -> int:
    array = advance(make_array(make_user(), tasks=tasks))
    with CaptureQueriesContext(connection) as captured:
        run_pass()
    services.cancel(array, actor=array.owner)
    advance(array)
    return len(captured)


def test_a_pass_asks_no_more_for_many_tasks() -> None:
    make_host(cpu=1)
    queries_of_pass("0")
    assert queries_of_pass("1-60") == queries_of_pass("1-5000")
