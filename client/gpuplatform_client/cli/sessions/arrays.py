"""Commands about arrays that are more than a request; the others are rows of `resources.table`."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final

import typer

from gpuplatform_client.cli.amounts import seconds_of
from gpuplatform_client.cli.connection import connected, messages, output, reporting
from gpuplatform_client.cli.exit_codes import FAILED, TIMED_OUT
from gpuplatform_client.models.arrays import ArrayInfo, ArraySpec
from gpuplatform_client.models.platform import LaunchSpec
from gpuplatform_client.operations.lookups import completed, find_array

OUTAGE_SECONDS: Final = 600.0  # of the connection, after which waiting is given up
POLL_SECONDS: Final = 2.0
app = typer.Typer(help="Arrays: many tasks by one request.", no_args_is_help=True)
Tasks = str | dict[str, Any]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name or id of an array")]


@app.command()
@reporting()
def logs(
    name: Name,
    task: Annotated[int, typer.Argument(help="Its index")],
    tail: Annotated[int, typer.Option(min=1, help="Lines from the end")] = 500,
    previous: Annotated[bool, typer.Option("--previous", "-p", help="Of the attempt before")] = False,
) -> None:
    """Print the end of a task's output."""
    with connected() as client:
        text = client.array_task_logs(find_array(client, name).id, task, tail, previous=previous)
        output.out(text, end="" if text.endswith("\n") else "\n", highlight=False)


@app.command()
@reporting()
def wait(
    name: Name,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help='After which it exits with 124, such as "10m"')
    ] = None,
) -> None:
    """Wait until all tasks have ended, and say each time that some have; the exit code says whether all succeeded."""
    deadline = None if timeout is None else time.monotonic() + seconds_of(timeout, "--timeout")
    with connected(OUTAGE_SECONDS) as client:
        array, said = find_array(client, name), ""
        while True:
            if (text := _progress(array)) != said:
                messages.print(said := text, highlight=False, markup=False)
            if array.is_over:
                break
            if deadline is not None and time.monotonic() > deadline:
                messages.print(f"That did not come within {timeout}.", highlight=False, markup=False)
                raise typer.Exit(TIMED_OUT)
            time.sleep(POLL_SECONDS)
            array = client.array(array.id)
    raise typer.Exit(0 if array.state == "SUCCEEDED" else FAILED)


def submit(spec: LaunchSpec, tasks: Tasks, limits: Mapping[str, Any], *, is_dry: bool) -> None:
    """Submit an array whose tasks are launched as `spec` says, and print its id."""
    if is_dry:
        raise typer.BadParameter("Of an array there is a dry run as a spec file alone.", param_hint="--dry-run")
    with connected() as client:
        made = client.submit_array(ArraySpec(**vars(completed(spec, client.images())), tasks=tasks, **limits))
    text = f"Array {made.name}: {made.size} tasks. See `gpuplatform arrays tasks {made.name}`."
    messages.print(text, highlight=False, markup=False)
    output.print(made.id, highlight=False)


def tasks_of(indices: str | None, parameters: Sequence[str]) -> Tasks | None:
    """Return the tasks of `--array` or `--param` as the API takes them, or None. Raises BadParameter."""
    if indices is not None and parameters:
        raise typer.BadParameter("Tasks have indices, or parameters.", param_hint="--array, --param")
    grid = {name: values.split(",") for name, equals, values in (text.partition("=") for text in parameters) if equals}
    if len(grid) < len(parameters):
        raise typer.BadParameter("Write NAME=VALUE,VALUE, each name once.", param_hint="--param")
    return {"grid": {name: [_plain(value) for value in values] for name, values in grid.items()}} if grid else indices


def _plain(text: str) -> str | int | float:
    """Return the number that a text is written as, else the text."""
    for kind in (int, float):
        with suppress(ValueError):
            if str(number := kind(text)) == text:
                return number
    return text


def _progress(array: ArrayInfo) -> str:
    counts = {name: count for name, count in array.counts.model_dump().items() if count}
    shown = ", ".join(f"{count} {name}" for name, count in counts.items())
    return f"{array.state}: {shown}" + (f" ({array.reason})" if array.reason else "")
