"""A line of text is shown in the terminals of a session, unless it comes too late."""

import time
from typing import Any

import pytest

from hostworker.runtime.memory.runtime import MemoryRuntime
from hostworker.runtime_protocol import ExecutionError
from hostworker.terminals import message as terminal_message


@pytest.fixture
def runtime() -> MemoryRuntime:
    return MemoryRuntime("installation", "host")


def test_a_message_is_shown_unless_it_is_late(runtime: MemoryRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(runtime, "execute", lambda *arguments: shown.append(arguments[-1]))
    terminal_message.show(runtime, "s", 1, "late", time.time() - 1)
    terminal_message.show(runtime, "s", 1, "#1 soon", time.time() + 60)
    assert shown == [{"GP_TEXT": "##1 soon"}]


def test_a_session_without_a_container_is_no_error(runtime: MemoryRuntime) -> None:
    with pytest.raises(ExecutionError):
        runtime.execute("s", 1, ["true"], {})
    terminal_message.show(runtime, "s", 1, "soon", time.time() + 60)
