"""A machine with repositories, which sessions reach as they reach a lab's own GitLab."""

import base64
import io
import secrets
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

import docker

from tests.execs import output_of
from tests.fgpu_sessions import PYTHON_IMAGE
from tests.test_folders_in_sessions import WHEEL, wheel

BACKEND: Final = "/cgi-bin/git"
REPOSITORY: Final = f"{BACKEND}/work"  # with a notebook and packages
NETWORKS: Final = "198.18.0.0/15"  # kept for tests, RFC 2544: not public, so `COMPUTE_IMPORT_NETWORKS` names it
# Makes a host of repositories where it is run, by HTTP at port 8123 and by SSH at port 2222 of the machine itself.
SCRIPT: Final = f"""
mkdir -p /tmp/host/cgi-bin /tmp/copy/wheels && cd /tmp/copy && git init -q -b main
echo {base64.b64encode(wheel()).decode()} | base64 -d >wheels/{WHEEL}
printf -- '--no-index\\n--find-links wheels\\nhello\\n' >requirements.txt
echo '{{"cells": [], "metadata": {{}}, "nbformat": 4, "nbformat_minor": 5}}' >first.ipynb
git add -A && git -c user.name=a -c user.email=a@b commit -qm first
git clone -q --bare . /tmp/host/work.git && touch /tmp/host/work.git/git-daemon-export-ok
cat >/tmp/host/cgi-bin/git <<'END'
#!/bin/sh
case $PATH_INFO in */info/lfs/objects/batch) printf '\r\n'; exec cat /tmp/host/batch;; esac
name=${{PATH_INFO#/}}; rest=${{name#*/}}; name=${{name%%/*}}
GIT_PROJECT_ROOT=/tmp/host GIT_HTTP_EXPORT_ALL=1 PATH_INFO="/${{name%.git}}.git/$rest" exec git http-backend
END
printf '#!/bin/sh\nsleep 600\n' >/tmp/host/cgi-bin/slow
chmod +x /tmp/host/cgi-bin/* && cd /tmp/host
nohup python3 -m http.server --cgi 8123 >/tmp/host.log 2>&1 </dev/null &
ssh-keygen -q -t ed25519 -N '' -f /tmp/hostkey && cat >/tmp/sshd_config <<'END'
Port 2222
ListenAddress 127.0.0.1
HostKey /tmp/hostkey
AuthorizedKeysFile /tmp/keys
StrictModes no
UsePAM no
PidFile none
PasswordAuthentication no
END
/usr/sbin/sshd -f /tmp/sshd_config
until python3 -c 'import socket; socket.create_connection(("127.0.0.1", 8123))' 2>/dev/null; do sleep 0.1; done
"""


@contextmanager
def git_container(fill: Callable[[str], Path] | None = None) -> Iterator[str]:
    """Run a host of repositories, and yield the address of the one that it has.

    `fill` gets its URL, and returns a directory with more repositories, with what Git LFS answers, and with its files.

    It is a container at the other end of a cable, in no network of Docker's: sessions do not reach each other.
    """
    token = secrets.token_hex(4)
    near_end, far_end = f"gpg{token}a", f"gpg{token}b"
    network, start = f"198.18.{secrets.randbelow(256)}", 4 * secrets.randbelow(64)
    with ExitStack() as undo:
        client = undo.enter_context(closing(docker.from_env()))
        made = client.containers.run(PYTHON_IMAGE, ["sleep", "3600"], detach=True, network_mode="none")
        undo.callback(made.remove, force=True)
        made.reload()
        pid = str(made.attrs["State"]["Pid"])
        _run("ip", "link", "add", near_end, "type", "veth", "peer", far_end, "netns", pid)
        undo.callback(_run, "ip", "link", "del", near_end)
        _run("ip", "addr", "add", f"{network}.{start + 1}/30", "dev", near_end)
        _run("ip", "link", "set", near_end, "up")
        for words in (("addr", "add", f"{network}.{start + 2}/30", "dev", far_end), ("link", "set", far_end, "up")):
            _run("nsenter", f"--target={pid}", "--net", "ip", *words)
        url = f"http://{network}.{start + 2}:8123"
        code, output = output_of(client.api, str(made.id), SCRIPT, "work")
        assert code == 0, output
        if fill is not None:
            made.put_archive("/tmp/host", _tar_of(fill(url)))
        yield f"{url}{REPOSITORY}"


def _tar_of(directory: Path) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.add(directory, ".", filter=_of_work)
    return content.getvalue()


def _of_work(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 1000
    entry.uname = entry.gname = ""
    return entry


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
