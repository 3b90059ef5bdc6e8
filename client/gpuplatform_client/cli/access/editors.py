"""Commands by which ssh, scp and editors find sessions."""

import shlex
import shutil
from typing import Annotated

import typer

from gpuplatform_client import ssh_files
from gpuplatform_client.cli.access.ssh import become
from gpuplatform_client.cli.connection import connected, messages, output, reporting
from gpuplatform_client.cli.names import SessionName
from gpuplatform_client.client import Client
from gpuplatform_client.errors import ClientError
from gpuplatform_client.operations.lookups import find_running_session

PrintOption = Annotated[bool, typer.Option("--print", help="Print it, and change nothing")]


@reporting()
def ssh_config(
    prints: PrintOption = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take back what it has written")] = False,
) -> None:
    """Have ssh, scp and editors find your running sessions as NAME.gpu, and your data folders as data.gpu."""
    if remove:
        ssh_files.uninstall()
        return
    with connected() as client:
        text, hosts = _configuration(client)
    if prints:
        output.out(text, end="", highlight=False)
        return
    ssh_files.install(text)
    for host in hosts.values():
        output.print(host, highlight=False, markup=False)
    messages.print(f"{ssh_files.config_path()} is included by ~/.ssh/config.", highlight=False, markup=False)


@reporting()
def code(
    name: SessionName,
    path: Annotated[str | None, typer.Argument(help="A directory or file there, from /")] = None,
    cursor: Annotated[bool, typer.Option("--cursor", help="Cursor in place of VS Code")] = False,
    prints: PrintOption = False,
) -> None:
    """Open a session in VS Code, by its extension Remote - SSH; a key of yours must be known to the platform."""
    if path and not path.startswith("/"):
        raise ClientError(f"Write the path from / on, such as /{path}.")
    with connected() as client:
        session = find_running_session(client, name)
        text, hosts = _configuration(client)
    if session.id not in hosts:
        raise ClientError(f"{name} is not yours: use `gpuplatform ssh {session.id}`.")
    program = "cursor" if cursor else "code"
    words = [program, "--remote", f"ssh-remote+{hosts[session.id]}", *([path] if path else [])]
    if prints:
        output.out(shlex.join(words), highlight=False)
        return
    ssh_files.install(text)
    if shutil.which(program) is None:
        raise ClientError(
            f"There is no {program} on the PATH; the editor's command palette has 'Shell Command: Install'. "
            f"ssh finds the session now, so that this opens it where there is one:\n{shlex.join(words)}"
        )
    become(words)


def _configuration(client: Client) -> tuple[str, dict[str, str]]:
    """Return the configuration for ssh, and {id: host name} of the sessions in it."""
    server, hosts = ssh_files.ssh_server(client), ssh_files.session_hosts(client)
    return ssh_files.configuration(server, hosts, ssh_files.pin(server)), hosts
