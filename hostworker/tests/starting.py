"""Starts of sessions in a test's own thread, pulls included."""

from hostworker.containers import runner
from hostworker.runtime_protocol import Runtime


def start_session(runtime: Runtime, session_id: str, attempt: int) -> None:
    """Bring the attempt from SCHEDULED, or from PREPARING where an earlier worker died, to RUNNING, back or ERROR."""
    if session := runner.claim(session_id, attempt):
        runner.bring_up(runtime, session)
