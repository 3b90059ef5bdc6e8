"""The manual page, gpuplatform(1), made of the commands: `python -m gpuplatform_client.cli.manual > gpuplatform.1`."""

from collections.abc import Iterator
from typing import Any, Final

import typer

from gpuplatform_client.cli.app import app

DESCRIPTION: Final = "Launches and uses sessions, deployments and data folders of a GPU Platform."
VARIABLES: Final = (
    ("GPUPLATFORM_URL", "The address of the platform, in place of the one that was signed in at."),
    ("GPUPLATFORM_TOKEN", "A token of its API."),
)
EXIT_STATUS: Final = (
    "0 on success, 1 where the platform refuses or cannot be reached, 2 for a wrong command line. "
    "run, exec and ssh exit as the command does that they run; run with 125 where none was started, and all three with "
    "255 where the connection was lost."
)


def page() -> str:
    """Return the page in the language of man(7)."""
    command: Any = typer.main.get_command(app)
    context = typer.Context(command, info_name="gpuplatform")
    return "\n".join(
        [
            '.TH GPUPLATFORM 1 "" "GPU Platform" "GPU Platform"',
            *(".SH NAME", r"gpuplatform \- GPU Platform from the command line"),
            *(".SH SYNOPSIS", ".B gpuplatform", r"\fICOMMAND\fR [\fIARGUMENT\fR]..."),
            *(".SH DESCRIPTION", _plain(DESCRIPTION)),
            *(".SH COMMANDS", *_subcommands(command, context)),
            *(".SH ENVIRONMENT", *_items(VARIABLES)),
            *(".SH EXIT STATUS", _plain(EXIT_STATUS)),
            "",
        ]
    )


def _subcommands(group: Any, context: typer.Context) -> Iterator[str]:
    for name, command in group.commands.items():
        own = typer.Context(command, info_name=name, parent=context)
        if not hasattr(command, "commands") or command.invoke_without_command:
            yield from _command(command, own)
        if hasattr(command, "commands"):
            yield from _subcommands(command, own)


def _command(command: Any, context: typer.Context) -> Iterator[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield from (f".SS {_plain(usage)}", _plain(command.help or ""))
    records = (param.get_help_record(context) for param in command.params)
    yield from _items(record for record in records if record and "--help" not in record[0])


def _items(items: Any) -> Iterator[str]:
    for name, text in items:
        yield from (".TP", rf"\fB{_plain(name)}\fR", _plain(text or "-"))


def _plain(text: str) -> str:
    """Return a text on one line without anything that is a request to roff."""
    return r"\&" + " ".join(text.split()).replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq")


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201
