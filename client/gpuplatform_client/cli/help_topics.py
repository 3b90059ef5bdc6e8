"""`gpuplatform help`: of a command, or of a topic that no command is about."""

from typing import Annotated, Final

import typer

from gpuplatform_client.cli.connection import output, table_of
from gpuplatform_client.cli.exit_codes import MEANINGS

EXIT_CODES: Final = "exit-codes"


def show_help(
    context: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND...|exit-codes]")] = None,
) -> None:
    """Show the help of a command, or what exit codes mean."""
    if words == [EXIT_CODES]:
        table = table_of("CODE", "DETAIL")
        for code, meaning in MEANINGS.items():
            table.add_row(str(code), meaning)
        output.print(table, markup=False)
        return
    found = context.find_root()
    for word in words or ():
        lookup = getattr(found.command, "get_command", None)
        command = lookup(found, word) if lookup else None
        if command is None:
            raise typer.BadParameter(f"There is no command {' '.join(words or ())!r}, and no topic but {EXIT_CODES}.")
        found = type(found)(command, info_name=word, parent=found)
    typer.echo(found.get_help())
