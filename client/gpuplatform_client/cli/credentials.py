"""Commands about the credentials that open private repositories for imports."""

import sys
from typing import Annotated

import typer

from gpuplatform_client.cli.amounts import clock_text
from gpuplatform_client.cli.connection import connected, output, reporting
from gpuplatform_client.cli.printing import ListFormat, ListOption, print_list
from gpuplatform_client.lookups import find_credential

app = typer.Typer(help="Tokens and keys for private repositories.", no_args_is_help=True)


@app.command("ls")
@reporting()
def list_credentials(form: ListOption = ListFormat.TABLE) -> None:
    """List your credentials."""
    with connected() as client:
        print_list(
            client.import_credentials(),
            form,
            (
                ("NAME", lambda each: each.name),
                ("HOST", lambda each: each.host),
                ("KIND", lambda each: each.kind),
                ("USED", lambda each: clock_text(each.last_used_at) if each.last_used_at else "-"),
            ),
            wide=(("PUBLIC KEY", lambda each: each.public_key or "-"),),
            name_of=lambda each: each.name,
        )


@app.command("add")
@reporting()
def add_credential(
    name: Annotated[str, typer.Argument(help="What it is to be called")],
    host: Annotated[str, typer.Argument(help="To which alone it is sent, such as github.com")],
    username: Annotated[str, typer.Option(help="Where the host wants one with the token")] = "",
    deploy_key: Annotated[bool, typer.Option("--deploy-key", help="Make a key, and print its public half")] = False,
    key_file: Annotated[typer.FileText | None, typer.Option(help="A private key; - is standard input")] = None,
) -> None:
    """Store a token, asked for or read from standard input; or a key."""
    private_key = key_file.read() if key_file else ""
    token = ""
    if not deploy_key and not private_key:
        token = typer.prompt("Token", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline().strip()
        if not token:
            raise typer.BadParameter("Give a token on standard input, --key-file or --deploy-key.", param_hint="token")
    with connected() as client:
        added = client.add_import_credential(name, host, token=token, username=username, private_key=private_key)
        output.print(added.public_key or added.name, highlight=False, markup=False)


@app.command("rm")
@reporting()
def remove_credential(name: Annotated[str, typer.Argument(help="Name of a credential")]) -> None:
    """Delete a credential."""
    with connected() as client:
        client.delete_import_credential(find_credential(client, name).id)
