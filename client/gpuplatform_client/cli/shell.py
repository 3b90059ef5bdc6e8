"""What there is to know of the program itself: its version, and the script by which a shell completes its words."""

from enum import StrEnum
from typing import Annotated, Final

import httpx
import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]

from gpuplatform_client import stored_login
from gpuplatform_client.cli.connection import messages, output
from gpuplatform_client.http.transport import client_version

PLATFORM_SECONDS: Final = 5.0  # in which the platform says what it offers


class CompletedShell(StrEnum):
    """A shell whose words are completed."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def show_version(is_asked: bool) -> None:
    """Print the version of this program, and the one that its platform offers."""
    if not is_asked:
        return
    output.print(f"gpuplatform {client_version()}", highlight=False, markup=False)
    if url := stored_login.load().url:
        try:
            response = httpx.get(f"{url.rstrip('/').removesuffix('/api/v1')}/healthz", timeout=PLATFORM_SECONDS)
            output.print(
                f"{url} offers {response.headers.get('X-Client-Version', 'none')}", highlight=False, markup=False
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            messages.print(f"{url} cannot be reached: {error}", highlight=False, markup=False)
    raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option(
        "--version",
        callback=show_version,
        is_eager=True,
        help="Of this program, and of the one that the platform offers",
    ),
]


def completion(shell: Annotated[CompletedShell, typer.Argument(help="The shell")]) -> None:
    """Print a shell's completion of commands, options and names: `source <(gpuplatform completion bash)`."""
    script = get_completion_script(prog_name="gpuplatform", complete_var="_GPUPLATFORM_COMPLETE", shell=shell.value)
    output.out(script, highlight=False)
