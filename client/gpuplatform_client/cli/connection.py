"""The connection of a command to the platform, and how its failures end the command."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from gpuplatform_client import stored_login
from gpuplatform_client.client import Client
from gpuplatform_client.errors import ClientError, SignInRequiredError
from gpuplatform_client.http.retries import RETRY_SECONDS

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

FAILED = 1
PIPE_COLUMNS = 1000  # what is read by programs is not cut
output = Console(soft_wrap=True, width=None if sys.stdout.isatty() else PIPE_COLUMNS)
messages = Console(stderr=True, soft_wrap=True)


def table_of(*headings: str) -> Table:
    """Return an empty table with these columns, which no line is broken in but in details."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, no_wrap=heading != "DETAIL")
    return table


@contextmanager
def connected(retry_seconds: float = RETRY_SECONDS) -> Iterator[Client]:
    """Yield a client of the platform at which this user is signed in."""
    login = stored_login.load()
    if not login.url:
        raise ClientError("No platform is known yet: sign in with `gpuplatform login https://...`.")
    with Client(login.url, login.token, retry_seconds=retry_seconds) as client:
        yield client


def reporting(status: int = FAILED) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Make a command print errors of the platform and exit with `status`."""

    def decorate(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @wraps(command)
        def reported(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            try:
                return command(*args, **kwargs)
            except ClientError as error:
                show(error)
                raise typer.Exit(status) from error
            except OSError as error:
                if isinstance(error, BrokenPipeError):  # who reads the output has left, which needs no message
                    raise
                show(ClientError(f"{error.filename}: {error.strerror}" if error.filename else str(error)))
                raise typer.Exit(status) from error

        return reported

    return decorate


def show(error: ClientError) -> None:
    """Print an error for a person."""
    messages.print(f"[red]Error:[/] {_text(error)}", highlight=False)


def _text(error: ClientError) -> str:
    hint = "\nSign in with `gpuplatform login`." if isinstance(error, SignInRequiredError) else ""
    return str(error).replace("[", r"\[") + hint
