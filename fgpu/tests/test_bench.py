"""The benchmark's last line is one JSON object with the promised keys."""

from __future__ import annotations

import json

import pytest

from bench import fgpu


def test_the_benchmark_prints_what_it_promises(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"ROUNDS": 1, "CALLS": 100, "STARTS": 1, "GATE_MS": 500, "SHARES": ("50",), "CONTENTION_MS": 500}
    small |= {"STREAM_ROUNDS": 1, "CONTENDERS": ((50, 50),), "LAUNCHES_MS": (1,), "GRAPHS_MS": (10,)}
    for name, value in small.items():
        monkeypatch.setattr(fgpu, name, value)
    fgpu.main()
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    costs = {"alloc_free_ns", "launch_ns", "process_start_ms", "gate_error_points"}
    costs |= {"streams_1000_launch_ns", "streams_10000_launch_ns"}
    sharing = {"contention", "lone_burst", "lone_cap", "handback_ms", "short_lived_at_10_percent"}
    assert set(figures) == costs | sharing
    assert {"sessions", "share", "launch_ms", "each", "total"} <= set(figures["contention"][0])
    for key in ("alloc_free_ns", "launch_ns", "process_start_ms"):
        assert {"plain", "hooked"} <= set(figures[key])
    assert set(figures["streams_1000_launch_ns"]["gated"]) == {"each", "afterwards"}
    assert set(figures["gate_error_points"]["1 process"]["50"]) == {"sync", "async", "graph"}
