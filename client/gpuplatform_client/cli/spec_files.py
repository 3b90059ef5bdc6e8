"""Spec files: `gpuplatform run --file` prints what becomes of one, `gpuplatform export` writes one."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from gpuplatform_client.cli.amounts import clock_text, fgpu_text, range_text, size_text
from gpuplatform_client.cli.connection import connected, messages, output, reporting, table_of
from gpuplatform_client.client import Client
from gpuplatform_client.errors import ClientError
from gpuplatform_client.models.platform import GpuRoomInfo, LaunchEstimate
from gpuplatform_client.models.specs import SpecDocumentInfo, SpecResult, SpecText
from gpuplatform_client.operations.lookups import LookupFailedError, find_deployment, find_session

STDIN: Final = Path("-")
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file", "-f", allow_dash=True, help="A spec file, a script with #GP or #SBATCH lines, a task file; -: input"
    ),
]


@reporting()
def export(name: Annotated[str, typer.Argument(help="Name or id of a session or deployment")]) -> None:
    """Print a session or deployment as a spec file, without the values of secrets."""
    with connected() as client:
        output.out(_spec_of(client, name).spec, end="", highlight=False)


def _spec_of(client: Client, name: str) -> SpecText:
    try:
        return client.session_spec(find_session(client, name).id)
    except LookupFailedError:
        return client.deployment_spec(find_deployment(client, name).id)


def read_file(path: Path) -> str:
    """Return the text of a file, or of the input. Raises ClientError and OSError."""
    content = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ClientError(f"{path}: line {line} is no UTF-8.") from error


def print_translated(result: SpecResult) -> None:
    """Print what became of the options of a script or task file, beside the output."""
    if result.translated:
        table = table_of("LINE", "OPTION", "OUTCOME", "BECAME", "DETAIL")
        for each in result.translated:
            outcome = each.outcome.replace("_", " ")
            table.add_row(str(each.line), each.option, outcome, each.became.partition("\n")[0], each.note)
        messages.print(table, markup=False)


def print_outlook(result: SpecResult) -> None:
    """Print what would be made, and when it would start; before it the spec file of a script or task file."""
    output.out(result.spec, end="", highlight=False)
    for each in result.documents:
        parts = [f"Line {each.line}: {each.kind} {each.name}".strip(), _granted(each)]
        parts.append(outlook_text(each.estimate) if each.estimate else "It would be there at once.")
        (messages if result.spec else output).print(". ".join(filter(None, parts)), markup=False, highlight=False)


def print_made(result: SpecResult) -> None:
    """Print the kind, name and id of each thing that was made; of one kind alone the ids, for other commands."""
    is_one_kind = len({each.kind for each in result.documents}) == 1
    for each in result.documents:
        kind = "" if is_one_kind else f"{each.kind} {each.name or '-'} "
        for made in each.ids:
            output.print(f"{kind}{made}", highlight=False, markup=False)


def outlook_text(estimate: LaunchEstimate) -> str:
    """Return when something would start, and why not now."""
    if estimate.starts == "now":
        return "It would start now."
    likely = f"It is likely to start {range_text(estimate)}. " if estimate.starts_until else ""
    if estimate.starts is None:
        return f"{likely or 'It would wait, for how long is not known. '}{estimate.reason}"
    return f"{likely}It would start at {clock_text(estimate.starts)}. {estimate.eta_reason}"


def rooms_text(rooms: Sequence[GpuRoomInfo]) -> str:
    """Return how often what was asked for by GPU memory fits now on each kind of GPU; "" where it was not."""
    texts = [
        f"{room.fits} x {room.gpu_model or size_text(room.gpu_memory)} ({fgpu_text(room.fgpu)} fGPU each)"
        for room in rooms
    ]
    return f"Fits now: {', '.join(texts)}." if texts else ""


def _granted(document: SpecDocumentInfo) -> str:
    if document.resource_group is None:
        return ""
    times = f"{document.count} x " if document.count > 1 else ""
    gpu = f", {fgpu_text(document.fgpu)} fGPU" if document.fgpu else ""
    if document.gpu_memory:
        gpu = f", {size_text(document.gpu_memory)} of GPU memory"
    return f"{times}{document.cpu} CPU, {size_text(document.memory or 0)}{gpu} in {document.resource_group}"
