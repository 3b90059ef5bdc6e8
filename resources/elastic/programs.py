"""Runs the programs of providers: no shell, few variables, a time limit, and an end of what they may write."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from resources.elastic.providers import ProviderError

MAX_OUTPUT: Final = 1 << 20  # bytes that a program may write
LOOK_SECONDS: Final = 0.5  # interval at which that is looked at; an end is seen at once


def output_of(command: Sequence[str], given: str, seconds: int, environment: Mapping[str, str]) -> tuple[int, str, str]:
    """Run a program; return its status and what it wrote. Raises ProviderError; its group is killed then.

    It reads and writes files, so that nothing waits for what a process that it has left behind may write.
    """
    name, deadline = Path(command[0]).name, time.monotonic() + seconds
    with TemporaryFile() as stdin, TemporaryFile() as stdout, TemporaryFile() as stderr:
        stdin.write(given.encode())
        stdin.seek(0)
        try:
            process = subprocess.Popen(
                command, stdin=stdin, stdout=stdout, stderr=stderr, env=environment, cwd="/", start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise ProviderError(f"{name} cannot be run: {getattr(error, 'strerror', error)}.") from error
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_SECONDS)
            is_long = any(os.fstat(file.fileno()).st_size > MAX_OUTPUT for file in (stdout, stderr))
            is_late = process.returncode is None and time.monotonic() > deadline
            if process.returncode is None and (is_long or is_late):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if is_long:
                raise ProviderError(f"{name} wrote more than {MAX_OUTPUT >> 20} MiB.")
            if is_late:
                raise ProviderError(f"{name} did not end within {seconds} seconds.")
            if process.returncode is not None:
                return process.returncode, _text_of(stdout), _text_of(stderr)


def _text_of(file: IO[bytes]) -> str:
    """Return what was written, without what the database cannot hold."""
    file.seek(0)
    return file.read().decode(errors="replace").replace("\0", "")
