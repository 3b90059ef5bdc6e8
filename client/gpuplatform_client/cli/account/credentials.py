"""Commands about the credentials that open private repositories for imports."""

from typing import Annotated

import typer

from gpuplatform_client.cli.connection import connected, output, reporting

app = typer.Typer(help="Tokens and keys for private repositories.", no_args_is_help=True)


@app.command("add")
@reporting()
def add_credential(
    name: Annotated[str, typer.Argument(help="What it is to be called")],
    host: Annotated[str, typer.Argument(help="To which alone it is sent, such as github.com")],
    username: Annotated[str, typer.Option(help="Where the host wants one with the token")] = "",
    deploy_key: Annotated[bool, typer.Option("--deploy-key", help="Make a key, and print its public half")] = False,
    token_file: Annotated[typer.FileText | None, typer.Option(help="Holds the token; - is standard input")] = None,
    key_file: Annotated[typer.FileText | None, typer.Option(help="Holds a private key; - is standard input")] = None,
) -> None:
    """Store a token, which is asked for unless a file has it; or a key."""
    private_key = _content(key_file, "--key-file")
    token = _content(token_file, "--token-file").strip()
    if not (deploy_key or key_file or token_file):
        token = typer.prompt("Token", hide_input=True)
    with connected() as client:
        added = client.add_import_credential(name, host, token=token, username=username, private_key=private_key)
        output.print(added.public_key or added.name, highlight=False, markup=False)


def _content(file: typer.FileText | None, option: str) -> str:
    """Return what a file holds, "" without a file. Raises BadParameter for an empty one."""
    content = file.read() if file else ""
    if file and not content.strip():
        raise typer.BadParameter("There is nothing in this file.", param_hint=option)
    return content
