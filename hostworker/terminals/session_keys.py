"""The key pair of each session: the private half lies in its home folder as `id_container`, the public half in its row.

Created once a session runs, so that no start waits for it. Idempotent, also across crashes: a session whose
row has no key gets a new pair, which replaces what a worker that died may have left in the container.
"""

import logging
import math
import time
from datetime import timedelta
from typing import Final

from django.conf import settings

from hostworker.containers import runner
from hostworker.runtime_protocol import ContainerRuntimeError, EngineUnreachableError, ExecutionError, Runtime
from resources import clock
from resources.models import Host
from sessions import notify
from sessions.lifecycle import Status
from sessions.models import Session

logger = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS: Final = 1.0
IDLE_SECONDS: Final = 15.0  # between two queries where no session was started lately: each host asks the one database
LATELY_SECONDS: Final = 30.0
START_GRACE: Final = timedelta(seconds=10)  # for which a new session waits while others start
FILE: Final = "id_container"
PUT: Final = """
umask 077
draft="$HOME/.$1.$$"
printf '%s' "$GP_KEY" >"$draft" && mv -f "$draft" "$HOME/$1" && exit 0
rm -f "$draft"
exit 1
"""


class SessionKeys:
    """Creates the key pairs of one host's sessions."""

    def __init__(self, runtime: Runtime, host: Host) -> None:
        self._runtime = runtime
        self._host = host
        self._failed: set[str] = set()  # sessions whose containers take no file
        self._asked_at = -math.inf
        self._is_anyone_waiting = False

    def poll(self) -> None:
        """Create the missing keys of running sessions. Raises EngineUnreachableError; the next poll continues."""
        if not settings.COMPUTE_SSH_ADDRESS or not self._is_due():
            return
        running = Session.objects.filter(host=self._host, status=Status.RUNNING, ssh_public_key="")
        if runner.is_any_preparing():
            running = running.filter(started_at__lte=clock.now() - START_GRACE)
        waiting = list(running.order_by("started_at").values_list("pk", flat=True))
        self._failed.intersection_update(waiting)
        self._is_anyone_waiting = len(waiting) > len(self._failed)
        for session_id in waiting:
            if session_id not in self._failed:
                self._give(session_id)

    def _is_due(self) -> bool:
        """Return whether to ask the database: often after a start or while a key is missing, else now and then."""
        now = time.monotonic()
        was_started = runner.is_any_preparing() or runner.seconds_since_start() < LATELY_SECONDS
        if not was_started and not self._is_anyone_waiting and now - self._asked_at < IDLE_SECONDS:
            return False
        self._asked_at = now
        return True

    def _give(self, session_id: str) -> None:
        import asyncssh  # here, as in accounts/credentials/public_keys.py

        with runner.container_lock(session_id):
            session = Session.objects.filter(pk=session_id, status=Status.RUNNING, ssh_public_key="").first()
            if session is None:
                return
            key = asyncssh.generate_private_key("ssh-ed25519", comment=session_id)
            try:
                self._put(session, key.export_private_key().decode())
            except EngineUnreachableError:
                raise
            except ContainerRuntimeError as failure:
                logger.info("session %s: it has no key of its own: %s", session_id, failure)
                self._failed.add(session_id)
                return
            text = " ".join(key.export_public_key().decode().split()[:2])
            Session.objects.filter(pk=session_id).update(ssh_public_key=text)
        notify.sessions_changed([(session_id, session.owner_id, session.project_id)])

    def _put(self, session: Session, private: str) -> None:
        """Write the file in the container. Raises ExecutionError."""
        done = self._runtime.execute(
            session.pk, session.attempt, ["/bin/sh", "-c", PUT, "sh", FILE], {"GP_KEY": private}
        )
        if done.exit_code != 0:
            raise ExecutionError(f"its home folder takes no file: {done.output.strip()}")
