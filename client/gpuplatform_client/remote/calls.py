"""Calls of functions on their way to a session, and what came of them on the way back."""

import inspect
import io
import pickle
import shlex
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import cloudpickle

from gpuplatform_client.errors import ClientError
from gpuplatform_client.remote import runner

MAX_BYTES: Final = 256 * 2**20  # of a function and its arguments; more belongs into a folder
Arguments = tuple[Sequence[Any], Mapping[str, Any]]


class RemoteError(ClientError):
    """A call gave nothing that this process can have: its process ended, or what came of it cannot be unpickled."""


class RemoteTracebackError(Exception):
    """The cause of an exception that a call raised: the traceback in the session."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


@dataclass(frozen=True, slots=True)
class RemoteJob:
    """Calls of a function: the command that carries them out, its input, and where it leaves what came of them."""

    command: str
    given: bytes
    result: str

    @classmethod
    def of(cls, function: Callable[..., Any], calls: Iterable[Arguments], parallel: int = 0) -> "RemoteJob":
        """Return the job, in so many processes, or for one call in none but its own. Raises ClientError."""
        result = f"/tmp/gpuplatform-{uuid4().hex}"  # noqa: S108  # in the session, made exclusively
        given = pickle.dumps(
            {
                "cloudpickle": _cloudpickle(),
                "function": cloudpickle.dumps(function),
                "calls": [cloudpickle.dumps(call) for call in calls],
                "parallel": parallel,
                "result": result,
            }
        )
        _check_size(len(given))
        return cls(shlex.join(["exec", "python3", "-uc", inspect.getsource(runner)]), given, result)


def task_calls(function: Callable[..., Any], chunks: Iterable[Iterable[Any]]) -> bytes:
    """Return the file from which each task of an array reads its calls of the function. Raises ClientError."""
    parts = [pickle.dumps([cloudpickle.dumps(((item,), {})) for item in chunk]) for chunk in chunks]
    places = [0, *accumulate(map(len, parts[:-1]))]
    head = {"cloudpickle": _cloudpickle(), "function": cloudpickle.dumps(function), "places": places}
    data = b"".join([pickle.dumps(head), *parts])
    _check_size(len(data))
    return data


def task_command(folder: str, python: str) -> str:
    """Return what the tasks of an array run whose calls are in this folder."""
    return shlex.join(["exec", "python3", "-uc", inspect.getsource(runner), folder, python, str(MAX_BYTES)])


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        text = f"{size / 2**20:.0f} MiB, of {MAX_BYTES >> 20}"
        raise ClientError(f"Function and arguments have {text}: put data into a folder.")


@dataclass(frozen=True, slots=True)
class Raised:
    """The exception of a call."""

    error: Exception


def read_outcomes(data: bytes) -> list[Any]:
    """Return what a job left: of each call its value, or the exception that it raised, as a `Raised`."""
    return [_value(*outcome) for outcome in pickle.loads(data)]  # noqa: S301  # see the class AsyncSession


def results_of(outcomes: Iterable[Any], *, return_exceptions: bool = False) -> list[Any]:
    """Return the values of outcomes; the first exception is raised, or each is returned in its place."""
    results = []
    for outcome in outcomes:
        if isinstance(outcome, Raised) and not return_exceptions:
            raise outcome.error
        results.append(outcome.error if isinstance(outcome, Raised) else outcome)
    return results


def _value(value: bytes | None, error: bytes | None, trace: str) -> Any:
    try:
        if value is not None:
            return pickle.loads(value)  # noqa: S301
        raised = pickle.loads(error or b"")  # noqa: S301
    except Exception as problem:
        about = trace.strip().rpartition("\n")[2] or "The result"
        raised = RemoteError(f"{about} (it cannot be unpickled here: {problem!r})")
    if isinstance(raised, ModuleNotFoundError):
        raised.add_note("cloudpickle.register_pickle_by_value(module) has a module of your own sent along.")
    if trace:
        raised.__cause__ = RemoteTracebackError(trace)
    return Raised(raised)


@cache
def _cloudpickle() -> bytes:
    """Return the module as an archive that Python imports from: both ends need the same version."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in Path(cloudpickle.__file__).parent.glob("*.py"):
            archive.write(path, f"cloudpickle/{path.name}")
    return target.getvalue()
