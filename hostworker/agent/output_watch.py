"""Slows down sessions whose output would have the container engine copy all day, and names them.

The engine's copying is nobody's lease. Its work is in `runtime/docker_outputs.py`; this says on the session's timeline,
and in the worker's log, who is held back.
"""

import logging
from datetime import timedelta
from typing import Final

from hostworker.runtime_protocol import Runtime
from resources.models import Host
from sessions import notes
from sessions.lifecycle import Reason, Status
from sessions.models import Session

logger = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS: Final = 10.0
REPEAT: Final = timedelta(hours=1)
SLOWED: Final = (
    "It writes to its standard output faster than its host copies for a session, so that its programs wait as they "
    "write. Write to a file, or write less."
)


class OutputWatch:
    """The outputs of one host's sessions."""

    def __init__(self, runtime: Runtime, host: Host) -> None:
        self._runtime = runtime
        self._host = host

    def poll(self) -> None:
        """Slow down who floods, and note who was found to go on. Raises EngineUnreachableError."""
        outputs = self._runtime.outputs
        slowed = outputs.slowed()
        for key in outputs.flooding():
            outputs.slow_down(*key)
        if not slowed:
            return
        running = Session.objects.filter(host=self._host, status=Status.RUNNING, pk__in={key[0] for key in slowed})
        for session in running.select_related("owner").defer("owner__password"):
            is_noted = (session.pk, session.attempt) in slowed and notes.note_once(
                session, Reason.OUTPUT_SLOWED, SLOWED, within=REPEAT
            )
            if is_noted:
                logger.warning("host %s: session %s of %s floods its output", self._host, session.pk, session.owner)
