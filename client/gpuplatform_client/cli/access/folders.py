"""Commands about data folders."""

from typing import Annotated

import typer

from gpuplatform_client.cli.amounts import size_text
from gpuplatform_client.cli.connection import connected, output, reporting
from gpuplatform_client.cli.names import FolderName, complete_folder
from gpuplatform_client.cli.printing import ListFormat, ListOption, fields_of, print_list
from gpuplatform_client.operations.lookups import find_folder

app = typer.Typer(
    help="Data folders: list, create, look into, remove. `gpuplatform cp` copies files.", no_args_is_help=True
)


@app.command("ls")
@reporting()
def list_folders(
    name: Annotated[
        str | None, typer.Argument(help="A folder, to list its files", autocompletion=complete_folder)
    ] = None,
    path: Annotated[str, typer.Argument(help="A directory in it")] = "",
    form: ListOption = ListFormat.TABLE,
) -> None:
    """List folders, or the files of one."""
    with connected() as client:
        if name is None:
            print_list(
                client.folders(),
                form,
                fields_of("name owner access used_bytes"),
                wide=fields_of("id root"),
                name_of=lambda folder: folder.id,
            )
        else:
            print_list(
                client.entries(find_folder(client, name).id, path),
                form,
                (
                    ("NAME", lambda entry: entry.name),
                    ("KIND", lambda entry: entry.kind),
                    ("SIZE", lambda entry: size_text(entry.length_bytes) if entry.kind == "file" else ""),
                ),
                wide=fields_of("modified_at"),
                name_of=lambda entry: entry.name,
            )


@app.command("create")
@reporting()
def create_folder(name: str) -> None:
    """Create a folder."""
    with connected() as client:
        output.print(client.create_folder(name).name, highlight=False, markup=False)


@app.command("rm")
@reporting()
def remove_folder(name: FolderName) -> None:
    """Move a folder to the trash; the pages can restore it."""
    with connected() as client:
        client.delete_folder(find_folder(client, name).id)
