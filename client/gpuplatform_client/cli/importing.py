"""`gpuplatform import`: fetch what is at an address, say how far it is, and launch a session with it."""

import time
from typing import Annotated, Final

import typer

from gpuplatform_client.cli.amounts import size_text
from gpuplatform_client.cli.connection import connected, messages, output, reporting
from gpuplatform_client.cli.exit_codes import FAILED, INTERRUPTED
from gpuplatform_client.cli.names import complete_folder
from gpuplatform_client.cli.printing import ListFormat
from gpuplatform_client.cli.sessions.run import fgpu_of
from gpuplatform_client.client import Client
from gpuplatform_client.models.imports import ImportInfo, ImportProposal, ImportSpec
from gpuplatform_client.models.platform import LaunchSpec
from gpuplatform_client.operations.lookups import LookupFailedError, completed, find_credential, find_folder

POLL_SECONDS: Final = 1.0
MAX_NOTEBOOKS: Final = 5  # that are printed
PLAIN: Final = "python"


@reporting()
def import_work(
    address: Annotated[str, typer.Argument(help="Of a repository, notebook, archive or record")],
    folder: Annotated[
        str | None,
        typer.Option(help="A data folder of yours, or a new one of this name", autocompletion=complete_folder),
    ] = None,
    ref: Annotated[str | None, typer.Option(help="Branch, tag or commit")] = None,
    path: Annotated[str | None, typer.Option(help="The file to open")] = None,
    credential: Annotated[str | None, typer.Option(help="Name of a credential, for what is private")] = None,
    whole_history: Annotated[bool, typer.Option("--whole-history", help="Not the last commit alone")] = False,
    look: Annotated[bool, typer.Option("--look", help="Only say what is there")] = False,
    launch: Annotated[bool, typer.Option("--launch", help="Launch a session with it")] = False,
    image: Annotated[str | None, typer.Option(help="Environment of the session; without, one that fits")] = None,
    cpu: Annotated[int | None, typer.Option(help="CPU cores of the session")] = None,
    memory: Annotated[str | None, typer.Option(help='Of the session, such as "4g"')] = None,
    fgpu: Annotated[str | None, typer.Option(help="Fractions of a GPU of the session")] = None,
    group: Annotated[str | None, typer.Option(help="Resource group")] = None,
    form: Annotated[ListFormat, typer.Option("--output", "-o", help="json: what was found, as one object")] = (
        ListFormat.TABLE
    ),
) -> None:
    """Fetch work from an address into a folder or a session. Ctrl-C cancels it, and leaves nothing."""
    if look == bool(folder or launch):
        raise typer.BadParameter("Say --folder NAME, --launch, both, or --look.", param_hint="--look")
    asked = {"image": image, "cpu": cpu, "memory": memory, "fgpu": fgpu}
    if not launch and (named := [f"--{name}" for name, value in asked.items() if value is not None]):
        raise typer.BadParameter("This is of a session: say --launch.", param_hint=named[0])
    session = LaunchSpec(image=image, cpu=cpu, memory=memory, fgpu=fgpu_of(fgpu), resource_group=group)
    with connected() as client:
        spec = ImportSpec(
            address=address,
            ref=ref,
            path=path,
            credential=find_credential(client, credential).id if credential else None,
            whole_history=whole_history or None,
            resource_group=group,
            **_folder(client, folder),
        )
        done = _fetched(client, client.begin_import(spec))
        proposed = client.launch_options(done.id)
        if form == ListFormat.JSON:
            output.out(done.model_dump_json(), highlight=False)
        else:
            _print(done, proposed)
        if launch:
            [launched] = client.launch_import(done.id, _completed(client, session, proposed))
            output.print(f"{launched.name} ({launched.id})", highlight=False, markup=False)


def _folder(client: Client, name: str | None) -> dict[str, str]:
    """Return the field of the folder of this name: of one that is there, else of a new one."""
    if name is None:
        return {}
    try:
        return {"folder": find_folder(client, name).id}
    except LookupFailedError:
        if "@" in name:
            raise
        return {"folder_name": name}


def _fetched(client: Client, current: ImportInfo) -> ImportInfo:
    """Return the import once it is done; print how far it is meanwhile. Cancels it at an interrupt."""
    said = ""
    try:
        while not current.is_over:
            text = current.progress or {"WAITING": "Waits for its session", "FETCHING": "Fetches"}[current.state]
            if text != said:
                messages.print(text, highlight=False, markup=False)
            said = text
            time.sleep(POLL_SECONDS)
            current = client.import_state(current.id)
    except KeyboardInterrupt:
        client.cancel_import(current.id)
        messages.print("Interrupted: the import is cancelled.")
        raise typer.Exit(INTERRUPTED) from None
    if current.state != "DONE":
        messages.print(current.problem or "The import was cancelled.", highlight=False, markup=False)
        raise typer.Exit(FAILED)
    return current


def _print(done: ImportInfo, proposed: ImportProposal) -> None:
    """Print what was found, one fact a line."""
    found = done.found
    files = f"{found['files']} files" if found.get("files") is not None else ""
    size = size_text(found["bytes"]) if found.get("bytes") is not None else ""
    facts = {
        "Branch": " ".join(filter(None, (found.get("branch"), str(found.get("commit", ""))[:12]))),
        "Size": ", ".join(filter(None, (size, files))),
        "Needs": ", ".join(found.get("present", ())),
        "Notebooks": ", ".join(found.get("notebooks", ())[:MAX_NOTEBOOKS]),
        "Environment": " ".join(filter(None, (proposed.image, proposed.reasons.get("image")))),
        "Is at": done.tree if done.folder else "",
    }
    for name, text in facts.items():
        if text:
            output.print(f"{name + ':':<13}{text}", highlight=False, markup=False)


def _completed(client: Client, asked: LaunchSpec, proposed: ImportProposal) -> LaunchSpec:
    """Return the session that is asked for, with what the import proposes where nothing was."""
    update = {
        "image": asked.image or proposed.image or PLAIN,
        "cpu": asked.cpu or proposed.cpu,
        "memory": asked.memory or proposed.memory,
        "fgpu": proposed.fgpu if asked.fgpu is None else asked.fgpu,
    }
    return completed(asked.model_copy(update=update), client.images())
