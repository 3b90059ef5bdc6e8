"""The connection of a command to the platform, and how its failures end the command."""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Annotated, Any, Final, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from gpuplatform_client import stored_login
from gpuplatform_client.cli.exit_codes import FAILED, code_of
from gpuplatform_client.client import Client
from gpuplatform_client.errors import ClientError, SignInRequiredError, UnknownPlatformError
from gpuplatform_client.http.retries import RETRY_SECONDS

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

PROSE = {"DETAIL", "WHAT", "TEXT", "BODY", "PROBLEM", "DESCRIPTION", "CHANGES", "ERRORS", "CORDON REASON"}
PIPE_COLUMNS = 1000  # what is read by programs is not cut
output = Console(soft_wrap=True, width=None if sys.stdout.isatty() else PIPE_COLUMNS)
messages = Console(stderr=True, soft_wrap=True)
shows_headings: Final = ContextVar("shows_headings", default=True)
LIST_OPTIONS: Final = {  # of every command that has `--output`
    "no_headers": Annotated[bool, typer.Option("--no-headers", help="The rows of a table alone")],
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="As --output name")],
}


def table_of(*headings: str) -> Table:
    """Return an empty table with these columns, which no line is broken in but in prose."""
    table = Table(box=None, pad_edge=False, show_header=shows_headings.get())
    for heading in headings:
        table.add_column(heading, no_wrap=heading not in PROSE)
    return table


@contextmanager
def connected(retry_seconds: float = RETRY_SECONDS) -> Iterator[Client]:
    """Yield a client of the platform at which this user is signed in."""
    login = stored_login.load()
    if not login.url:
        raise UnknownPlatformError("No platform is known yet: sign in with `gpuplatform login https://...`.")
    with Client(login.url, login.token, retry_seconds=retry_seconds) as client:
        yield client


def reporting(status: int = FAILED) -> Callable[[Callable[Parameters, Result]], Callable[..., Result]]:
    """Make a command print errors of the platform and exit with `status`, or by what the error is (`exit_codes`).

    A command with `form`, which is `--output`, gets LIST_OPTIONS too.
    """

    def decorate(command: Callable[Parameters, Result]) -> Callable[..., Result]:
        @wraps(command)
        def reported(*args: Any, no_headers: bool = False, quiet: bool = False, **kwargs: Any) -> Result:
            shows_headings.set(not no_headers)
            options = kwargs | {"form": "name"} if quiet else kwargs
            try:
                return command(*args, **options)
            except ClientError as error:
                show(error)
                raise typer.Exit(code_of(error) if status == FAILED else status) from error
            except OSError as error:
                if isinstance(error, BrokenPipeError):  # who reads the output has left, which needs no message
                    raise
                show(ClientError(f"{error.filename}: {error.strerror}" if error.filename else str(error)))
                raise typer.Exit(status) from error

        signature = inspect.signature(command)
        added = LIST_OPTIONS if "form" in signature.parameters else {}
        keyword = inspect.Parameter.KEYWORD_ONLY
        options = [inspect.Parameter(name, keyword, default=False, annotation=kind) for name, kind in added.items()]
        reported.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*signature.parameters.values(), *options]
        )
        return reported

    return decorate


def show(error: ClientError) -> None:
    """Print an error for a person."""
    messages.print(f"[red]Error:[/] {_text(error)}", highlight=False)


def _text(error: ClientError) -> str:
    hint = "\nSign in with `gpuplatform login`." if isinstance(error, SignInRequiredError) else ""
    return str(error).replace("[", r"\[") + hint
