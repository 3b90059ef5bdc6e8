"""Starts of sessions in a test's own thread, pulls included."""

from hostworker.containers import runner
from hostworker.runtime_protocol import Runtime
from resources.models import Host
from sessions.launching import services
from sessions.lifecycle import Status
from sessions.models import Session
from tests.factories import session_in


def start_session(runtime: Runtime, session_id: str, attempt: int) -> None:
    """Bring the attempt from SCHEDULED, or from PREPARING where an earlier worker died, to RUNNING, back or ERROR."""
    if session := runner.claim(session_id, attempt):
        runner.bring_up(runtime, session)


def started(runtime: Runtime, host: Host | None = None) -> Session:
    """Return a session that has been started on `host`, else on one made for it."""
    session = session_in(Status.SCHEDULED, host=host)
    start_session(runtime, session.pk, 1)
    return fresh(session)


def stopping(runtime: Runtime) -> Session:
    """Return a session whose owner has ended it, and whose container runs still."""
    session = started(runtime)
    services.terminate(session, actor=session.owner)
    return session


def fresh(session: Session) -> Session:
    """Return the session as the database has it."""
    return Session.objects.get(pk=session.pk)
