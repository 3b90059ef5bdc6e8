"""`gpuplatform ssh`, `cp` and `port-forward` with OpenSSH's programs, on the whole platform."""

import shlex
import shutil
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from gpuplatform_client import Client
from gpuplatform_client.tests.program import RunningProgram
from sshserver.tests.ssh_client import SshClient
from tests.guide import USER
from tests.platform import Platform
from tests.ports import free_port
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.long, pytest.mark.docker]

Start = Callable[..., RunningProgram]
SERVE = "cd ~/kept && (setsid python -m http.server 8123 > /dev/null 2>&1 &)"


@pytest.fixture
def start(platform: Platform, tmp_path: Path) -> Iterator[Start]:
    """Starts the program, for which ssh and scp read nothing of this machine; a session `mine` runs."""
    keys = SshClient(tmp_path, 0)
    for name in ("ssh", "scp"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {shutil.which(name)} {shlex.join(keys.options())} "$@"\n')
        program.chmod(0o755)
    with Client(platform.url) as client:
        token = client.login(USER, platform.passwords[USER]).token
        headers = {"Authorization": f"Token {token}"}
        url = f"{platform.url}/api/v1/ssh-keys/"
        key = httpx.post(url, json={"key": keys.new_key()}, headers=headers, timeout=SECONDS)
        key.raise_for_status()

        def started(*arguments: str) -> RunningProgram:
            path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
            return RunningProgram(platform.url, token, tmp_path, *arguments, path=path)

        with started("run", "--image", "python", "--name", "mine") as launching:
            assert launching.wait() == 0, launching.messages
        yield started
        [session] = client.sessions(name="mine")
        client.terminate(session.id)
        until(lambda: client.session(session.id).is_final)
        httpx.delete(f"{url}{key.json()['id']}/", headers=headers, timeout=SECONDS).raise_for_status()


def test_a_session_is_entered_copied_to_and_forwarded_from(start: Start, tmp_path: Path) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        with start(*arguments) as program:
            return program.wait(), "".join(program.lines)

    assert run("ssh", "mine", "echo", "$((6 * 7))") == (0, "42\n")
    assert run("ssh", "mine", "exit", "3")[0] == 3
    results = tmp_path / "results"
    results.mkdir()
    (results / "data.bin").write_bytes(bytes(range(256)) * 4096)
    assert run("cp", "-r", str(results), "mine:kept")[0] == 0
    assert run("cp", "mine:kept/data.bin", str(tmp_path / "back.bin"))[0] == 0
    assert (tmp_path / "back.bin").read_bytes() == (results / "data.bin").read_bytes()
    assert run("sync", str(results), "mine:kept/all", "--delete") == (0, "+ data.bin\n")
    assert run("sync", "mine:kept/all", str(tmp_path / "all")) == (0, "+ data.bin\n")
    assert (tmp_path / "all/data.bin").read_bytes() == (results / "data.bin").read_bytes()
    assert run("cp", "mine:nothing", str(tmp_path))[0] != 0
    assert run("ssh", "mine", SERVE)[0] == 0
    port = free_port()
    with start("port-forward", "mine", f"{port}:8123") as forwarding:
        until(lambda: _is_served(port))
        forwarding.process.send_signal(signal.SIGINT)
        forwarding.wait()
    assert not _is_served(port)


def _is_served(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/data.bin", timeout=5) as response:
            return len(response.read()) == 256 * 4096
    except OSError:
        return False
