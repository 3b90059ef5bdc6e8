"""What a session runs: it reads a function and calls of it, and leaves what came of them in a file.

The text of this module is sent there, where nothing but the standard library can be imported. Without arguments the job
is its input; a task of an array has the folder with it, the caller's version of Python, and the most bytes of a result.
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
    """Carry out the job that comes as input, or a task's part of the one in a folder."""
    if len(sys.argv) > 1:
        sys.exit(run_task(sys.argv[1], sys.argv[2], int(sys.argv[3])))
    job.update(pickle.load(sys.stdin.buffer))  # noqa: S301  # of who may run anything here
    import_cloudpickle()
    outcomes = in_processes(job["parallel"]) if job["parallel"] else [carry_out(0)]
    with open(os.open(job["result"], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        pickle.dump(outcomes, file)


def run_task(folder: str, python: str, most: int) -> int:
    """Carry out the calls of this task, one after the other, and return the exit code: 1 where one has failed."""
    own, index = f"{sys.version_info.major}.{sys.version_info.minor}", os.environ["GP_ARRAY_TASK_ID"]
    if own != python:
        leave(f"{folder}/python", own.encode())
        sys.exit(f"Here is Python {own}, and the program that sent the function has {python}.")
    with open(f"{folder}/calls", "rb") as file:
        job.update(pickle.load(file))  # noqa: S301
        file.seek(job["places"][int(index)], os.SEEK_CUR)
        job["calls"] = pickle.load(file)  # noqa: S301
    import_cloudpickle()
    outcomes = [carry_out(each) for each in range(len(job["calls"]))]
    data = pickle.dumps(outcomes)
    if len(data) > most:
        size = f"{len(data) >> 20} MiB, of {most >> 20}"

        def refuse() -> Outcome:
            raise ValueError(f"The results of task {index} have {size}: put data into a folder.")

        outcomes = [caught(refuse)] * len(outcomes)
        data = pickle.dumps(outcomes)
    leave(f"{folder}/result-{index}", data)
    for _value, _error, trace in outcomes:
        sys.stderr.write(trace)
    return int(any(value is None for value, _error, _trace in outcomes))


def leave(path: str, data: bytes) -> None:
    """Write a file, at once or not at all: a task may be started again."""
    part = f"{path}.{os.getpid()}.part"
    with open(part, "wb") as file:
        file.write(data)
    os.replace(part, path)


def import_cloudpickle() -> None:
    """Have the module of the caller's version, which images need not have."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "cloudpickle.zip")
        with open(path, "wb") as archive:
            archive.write(job["cloudpickle"])
        sys.path.insert(0, path)
        import cloudpickle  # noqa: F401


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
