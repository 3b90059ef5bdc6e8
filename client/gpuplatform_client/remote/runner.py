"""What a session runs: it reads a function and calls of it, and leaves what came of them in a file.

The text of this module is sent there, where nothing but the standard library can be imported.
"""

import os
import pickle
import sys
import tempfile
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

Outcome = tuple[bytes | None, bytes | None, str]  # the value, else the exception, each pickled; and its traceback

job: dict[str, Any] = {}  # processes of the pool have it by being forked


def main() -> None:
    """Carry out the job that comes as input."""
    job.update(pickle.load(sys.stdin.buffer))  # noqa: S301  # of who may run anything here
    with tempfile.TemporaryDirectory() as directory:  # a module of the caller's version, which images need not have
        path = os.path.join(directory, "cloudpickle.zip")
        with open(path, "wb") as archive:
            archive.write(job["cloudpickle"])
        sys.path.insert(0, path)
        import cloudpickle  # noqa: F401
    outcomes = in_processes(job["parallel"]) if job["parallel"] else [carry_out(0)]
    with open(os.open(job["result"], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        pickle.dump(outcomes, file)


def in_processes(count: int) -> list[Outcome]:
    """Carry out all calls, so many at once."""
    with ProcessPoolExecutor(count, get_context("fork")) as pool:
        futures = [pool.submit(carry_out, index) for index in range(len(job["calls"]))]
        return [caught(future.result) for future in futures]  # that of a process which ended is an exception, too


def carry_out(index: int) -> Outcome:
    """Carry out a call."""
    import cloudpickle

    def call() -> Outcome:
        function = pickle.loads(job["function"])  # noqa: S301
        args, options = pickle.loads(job["calls"][index])  # noqa: S301
        return cloudpickle.dumps(function(*args, **options)), None, ""

    return caught(call)


def caught(call: Callable[[], Outcome]) -> Outcome:
    """Return what the call returns, or the exception that it raises."""
    try:
        return call()
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        import cloudpickle

        try:
            return None, cloudpickle.dumps(error), text
        except Exception:  # of its attributes
            return None, None, text


if __name__ == "__main__":
    main()
