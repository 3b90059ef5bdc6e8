"""The tasks of a host's worker: each message has one, and its log lines name the session that it is for."""

from typing import Any

import pytest

from gpuplatform.celery import _begin_log, app
from hostworker import tasks
from hostworker.agent.acts import ACTS
from operations.logs import lines as log_lines


@pytest.mark.parametrize(
    ("name", "argument", "logged"),
    [("stop_session", "abc", "abc"), ("open_app", 7, None), ("convert_session", "def", None)],
)
def test_only_messages_about_sessions_log_their_id(name: str, argument: object, logged: object) -> None:
    _begin_log(task_id="1", task=app.tasks[f"{tasks.__name__}.{name}"], args=(argument, 1))
    context = log_lines.current()
    log_lines.end()
    assert context is not None
    assert context.fields.get("session_id") == logged


def test_a_task_calls_its_function_with_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    def note(*arguments: Any) -> None:
        calls.append(arguments)

    monkeypatch.setattr(tasks, "get_runtime", lambda: "runtime")
    tasks._register("note", note)
    app.tasks.pop(f"{tasks.__name__}.note")("abc", 1)
    assert calls == [("runtime", "abc", 1)]


def test_each_message_has_a_task() -> None:
    assert {f"{tasks.__name__}.{name}" for name in ACTS} <= set(app.tasks)
