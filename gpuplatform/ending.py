"""The end of a service's process in time, whatever its threads wait for."""

import logging
import os
import threading
from typing import Final

SECONDS: Final = 4.0  # from SIGTERM, so that systemd and `make up` need no SIGKILL

logger = logging.getLogger(__name__)


def end_in_time() -> None:
    """End this process once SECONDS have passed, unless it has ended by then.

    A thread may wait for an engine, a registry or a file system that hangs. Its work is safe to be cut off: the next
    process goes on with it.
    """
    timer = threading.Timer(SECONDS, _end_now)
    timer.daemon = True
    timer.start()


def _end_now() -> None:
    left = sorted(thread.name for thread in threading.enumerate() if not thread.daemon)
    logger.warning("ended by force while these threads worked: %s", ", ".join(left))
    os._exit(0)
