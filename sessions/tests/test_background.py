"""Background work runs in order, and its exceptions are logged."""

from threading import Event

import pytest
from django.db import transaction

from messaging.background import BackgroundThread, finish_all
from sessions import notify


def test_functions_run_one_after_another() -> None:
    done: list[int] = []
    background = BackgroundThread("test")
    futures = [background.run(done.append, number) for number in range(100)]
    futures[-1].result()
    assert done == list(range(100))


def test_work_is_not_queued_again_while_it_goes_on() -> None:
    done: list[int] = []
    go_on = Event()

    def work() -> None:
        go_on.wait()
        done.append(len(done))

    background = BackgroundThread("test")
    for _ in range(3):
        background.run_unless_busy(work)
    go_on.set()
    background.run(int).result()
    assert done == [0]
    background.run_unless_busy(work)
    background.run(int).result()
    assert done == [0, 1]


def test_what_is_queued_can_be_waited_for() -> None:
    done: list[int] = []
    background = BackgroundThread("test")
    background.run(Event().wait, 0.2)
    background.run(done.append, 1)
    finish_all()
    assert done == [1]


def test_an_exception_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    background = BackgroundThread("test")
    background.run(divmod, 1, 0)
    background.run(int).result()  # the thread lives on
    assert "background work failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_an_unexpected_failure_of_a_message_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notify, "publish", lambda message, host_name: 1 / 0)
    with transaction.atomic():
        notify.routes_changed("a" * 16)
    notify._proxies.run(int).result()
    assert "background work failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text
