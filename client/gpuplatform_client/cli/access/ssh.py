"""Commands that enter a session by SSH: a shell, its files, its ports. They need the system's ssh and scp."""

import os
import shlex
import shutil
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from gpuplatform_client import ssh_files
from gpuplatform_client.cli.connection import connected, messages, output, reporting
from gpuplatform_client.cli.names import SessionName
from gpuplatform_client.client import Client
from gpuplatform_client.errors import ClientError
from gpuplatform_client.models.platform import SshServerInfo
from gpuplatform_client.operations.lookups import find_folder, find_session, folder_place

PASSED_ON: Final = {"ignore_unknown_options": True, "allow_interspersed_args": False}  # to what runs in the session


@reporting()
def ssh(
    name: SessionName,
    command: Annotated[list[str] | None, typer.Argument(help="What to run in place of a shell")] = None,
) -> None:
    """Open a shell in a session, or run a command there; a key of yours must be known to the platform."""
    become([*session_words(name), *(command or [])])


@reporting()
def port_forward(
    name: SessionName,
    ports: Annotated[list[str], typer.Argument(help="PORT, or LOCAL:REMOTE")],
    address: Annotated[str, typer.Option(help="Of this machine, to listen at; 0.0.0.0 lets others in")] = "127.0.0.1",
) -> None:
    """Forward TCP ports of this machine to ports of a session until it is interrupted, or the session ends."""
    here = _bind_address(address)
    forwards: list[str] = []
    for text in ports:
        local, _, remote = text.rpartition(":")
        if not (_is_port(remote) and _is_port(local or remote)):
            raise typer.BadParameter(f"{text!r} is neither PORT nor LOCAL:REMOTE.", param_hint="PORTS")
        forwards += ["-L", f"{here}:{local or remote}:localhost:{remote}"]
    ssh_program, *words = session_words(name)
    for forward in forwards[1::2]:
        listening, remote = forward.split(":localhost:")
        messages.print(f"{listening} -> {name}:{remote}", highlight=False, markup=False)
    become([ssh_program, "-N", "-o", "ExitOnForwardFailure=yes", *forwards, *words])


@reporting()
def copy(
    source: Annotated[str, typer.Argument(help="A file here, SESSION:PATH, or folder:FOLDER/PATH")],
    target: Annotated[str, typer.Argument(help="As the source; one of them is here")],
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Directories, to and from sessions")] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace a file of a folder")] = False,
) -> None:
    """Copy files between this machine and a session or a data folder."""
    places = (source, target)
    if sum(is_remote(place) for place in places) != 1:
        raise ClientError("One side is SESSION:PATH or folder:FOLDER/PATH, and the other a path of this machine.")
    in_folders = [place for each in places if (place := folder_place(each)) is not None]
    if in_folders:
        with connected() as client:
            _copy_by_folder(client, *in_folders[0].partition("/")[::2], source, target, overwrites=force)
        return
    remote = source if is_remote(source) else target
    name, _, path = remote.partition(":")
    _, *options, destination = session_words(name)
    options = ["-P" if word == "-p" else word for word in options]
    there = f"{destination}:{path}"
    words = ["scp", *options, *(["-r"] if recursive else [])]
    become([*words, *((there, target) if remote is source else (source, there))])


def _copy_by_folder(client: Client, name: str, path: str, source: str, target: str, *, overwrites: bool) -> None:
    folder = find_folder(client, name)
    if is_remote(source):
        here = Path(target)
        client.download(folder.id, path, here / Path(path).name if here.is_dir() else here)
        return
    file = Path(source)
    if not file.is_file():
        raise ClientError(f"{source} is not a file.")
    path = f"{path}{file.name}" if path.endswith("/") or not path else path
    client.upload(folder.id, file, path, overwrites=overwrites)
    output.print(f"{source} -> folder:{name}/{path}", highlight=False, markup=False)


def _bind_address(text: str) -> str:
    try:
        address = ip_address("127.0.0.1" if text == "localhost" else text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no IP address.", param_hint="--address") from None
    return f"[{address}]" if address.version == 6 else str(address)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 0 < int(text[:6]) < 2**16


def is_remote(place: str) -> bool:
    """Return whether a place is in a session or folder; a colon behind a slash belongs to a path of this machine."""
    return ":" in place.partition("/")[0]


def session_words(name: str) -> list[str]:
    """Return the command that enters a session: ssh, its options, user and host."""
    with connected() as client:
        session, server = find_session(client, name), ssh_files.ssh_server(client)
    if not session.ssh:
        raise ClientError(f"Session {session.name} is {session.status}: it can be entered while it is RUNNING.")
    return [*_pinned_ssh(server), *shlex.split(session.ssh)[1:]]


def folder_words() -> list[str]:
    """Return the command that reaches the data folders."""
    with connected() as client:
        server = ssh_files.ssh_server(client)
    return [*_pinned_ssh(server), "-p", str(server.port), f"{ssh_files.DATA_FOLDERS}@{server.host}"]


def _pinned_ssh(server: SshServerInfo) -> list[str]:
    return ["ssh", *(word for option in ssh_files.pin(server).items() for word in ("-o", "=".join(option)))]


def become(words: list[str]) -> NoReturn:
    """Replace this process by another program, so that signals and the exit code are its own."""
    program = shutil.which(words[0])
    if program is None:
        raise ClientError(f"{words[0]} is not installed on this machine.")
    os.execv(program, words)  # noqa: S606  # no shell is wanted
