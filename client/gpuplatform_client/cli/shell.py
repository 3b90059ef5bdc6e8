"""`gpuplatform completion`: the script by which a shell completes commands, options and names."""

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]

from gpuplatform_client.cli.connection import output


class CompletedShell(StrEnum):
    """A shell whose words are completed."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[CompletedShell, typer.Argument(help="The shell")]) -> None:
    """Print a shell's completion of commands, options and names: `source <(gpuplatform completion bash)`."""
    script = get_completion_script(prog_name="gpuplatform", complete_var="_GPUPLATFORM_COMPLETE", shell=shell.value)
    output.out(script, highlight=False)
