"""Runs a command and leaves nothing of it behind: `python -m bench.process_tree SECONDS COMMAND...`.

What the command starts becomes a child of this process when its parent dies (prctl(2), PR_SET_CHILD_SUBREAPER),
whatever its session or group. When the command has ended, its time is up, or this process is asked to end, the command
is interrupted, gets time to clean up, and what then still runs is killed. Exit status: the command's, or as of
timeout(1) 124 when its time was up.
"""

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Final

from resources import procfs

PR_SET_CHILD_SUBREAPER: Final = 36
CLEAN_UP_SECONDS: Final = 30.0
TIMED_OUT: Final = 124


def main() -> int:
    """Run the command that the arguments say; return the exit status."""
    seconds, *command = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    process: subprocess.Popen[bytes] | None = None
    try:
        process = subprocess.Popen(command, start_new_session=True)
        return process.wait(float(seconds))
    except subprocess.TimeoutExpired:
        return TIMED_OUT
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # what follows has an end
        _end(process)


def _end(process: "subprocess.Popen[bytes] | None") -> None:
    """Have the command clean up, then kill all that it started and left."""
    if process and process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(CLEAN_UP_SECONDS)
    while children := procfs.children(os.getpid()):  # the next ones are those that were theirs
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


if __name__ == "__main__":
    sys.exit(main())
