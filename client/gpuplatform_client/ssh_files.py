"""Files for OpenSSH: the platform's own key, and a configuration by which ssh, scp and editors find sessions.

Both are this program's own, and written anew; of ~/.ssh/config only the line that includes the latter is changed.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpuplatform_client import stored_login
from gpuplatform_client.client import Client
from gpuplatform_client.errors import ClientError, MissingObjectError
from gpuplatform_client.models.platform import SshServerInfo

SUFFIX: Final = ".gpu"
DATA_FOLDERS: Final = "data"  # the user name that opens data folders
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]*")  # what stands in the files unquoted


def ssh_server(client: Client) -> SshServerInfo:
    """Return the platform's SSH server. Raises ClientError where there is none."""
    try:
        server = client.ssh_server()
    except MissingObjectError as error:
        raise ClientError("This platform has no SSH server.") from error
    if not _PLAIN.fullmatch(server.host):
        raise ClientError(f"The platform's SSH server has no usable name: {server.host!r}")
    return server


def pin(server: SshServerInfo) -> dict[str, str]:
    """Store the server's key, and return the options by which ssh trusts no other; none before its first start."""
    if not server.known_hosts:
        return {}
    path = stored_login.folder() / "known_hosts"
    _replace(path, os.fsencode(" ".join(server.known_hosts.split()) + "\n"))
    return {"UserKnownHostsFile": _quoted(path), "StrictHostKeyChecking": "yes"}


def session_hosts(client: Client) -> dict[str, str]:
    """Return {id: host name for ssh} of the user's running sessions, members of clusters included."""
    mine, hosts = client.account().email, {}
    for session in client.sessions(status="RUNNING"):
        if session.owner != mine:
            continue
        hosts[session.id] = f"{session.name}{SUFFIX}"
        for member in session.cluster.members[1:] if session.cluster else ():
            hosts[member.id] = f"{session.name}.{member.name}{SUFFIX}"
    return {key: host for key, host in hosts.items() if _PLAIN.fullmatch(key) and _PLAIN.fullmatch(host)}


def configuration(server: SshServerInfo, hosts: Mapping[str, str], options: Mapping[str, str]) -> str:
    """Return the configuration, in which equal sessions have equal bytes."""
    users = {**hosts, DATA_FOLDERS: f"{DATA_FOLDERS}{SUFFIX}"}
    common = {"HostName": server.host, "Port": str(server.port), **options}
    return "".join(
        [
            "# Written by `gpuplatform ssh-config`, which writes it anew.\n",
            *(f"Host {host}\n    User {user}\n" for user, host in users.items()),
            f"Host *{SUFFIX}\n",
            *(f"    {name} {value}\n" for name, value in common.items()),
        ]
    )


def config_path() -> Path:
    """Return where the configuration is."""
    return stored_login.folder() / "ssh_config"


def install(text: str) -> None:
    """Write the configuration, and have ~/.ssh/config include it."""
    _replace(config_path(), os.fsencode(text))
    own, lines = _own_config()
    if _include_line() not in lines:
        own.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(own, b"".join([_include_line(), *lines]))  # first: below a Host it would be for that alone


def uninstall() -> None:
    """Remove the configuration, and the line that includes it."""
    own, lines = _own_config()
    if _include_line() in lines:
        _replace(own, b"".join(line for line in lines if line != _include_line()))
    config_path().unlink(missing_ok=True)


def _include_line() -> bytes:
    return os.fsencode(f"Include {_quoted(config_path())}\n")


def _own_config() -> tuple[Path, list[bytes]]:
    """Return the user's own file, or what a link leads to as among dot files, and its lines, in any encoding."""
    own = (Path.home() / ".ssh" / "config").resolve()
    return own, own.read_bytes().splitlines(keepends=True) if own.exists() else []


def _quoted(path: Path) -> str:
    return f'"{path}"'.replace("%", "%%")


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole, for this user alone; one that has these bytes stays as it is."""
    if path.exists() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    os.replace(draft, path)
