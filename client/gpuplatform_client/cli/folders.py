"""Commands about data folders."""

from typing import Annotated

import typer

from gpuplatform_client.cli.amounts import size_text
from gpuplatform_client.cli.connection import connected, output, reporting, table_of
from gpuplatform_client.lookups import find_folder

app = typer.Typer(
    help="Data folders: list, create, look into, remove. `gpuplatform cp` copies files.", no_args_is_help=True
)


@app.command("ls")
@reporting()
def list_folders(
    name: Annotated[str | None, typer.Argument(help="A folder, to list its files")] = None,
    path: Annotated[str, typer.Argument(help="A directory in it")] = "",
) -> None:
    """List folders, or the files of one."""
    with connected() as client:
        if name is None:
            table = table_of("NAME", "OWNER", "ACCESS", "USED")
            for folder in client.folders():
                table.add_row(folder.name, folder.owner, folder.access, size_text(folder.used_bytes))
        else:
            table = table_of("NAME", "KIND", "SIZE")
            for entry in client.entries(find_folder(client, name).id, path):
                table.add_row(entry.name, entry.kind, size_text(entry.length_bytes) if entry.kind == "file" else "")
    output.print(table, markup=False)


@app.command("create")
@reporting()
def create_folder(name: str) -> None:
    """Create a folder."""
    with connected() as client:
        output.print(client.create_folder(name).name, highlight=False, markup=False)


@app.command("rm")
@reporting()
def remove_folder(name: str) -> None:
    """Move a folder to the trash; the pages can restore it."""
    with connected() as client:
        client.delete_folder(find_folder(client, name).id)
