"""`gpuplatform attach` and `exec`, the former at a real pseudo-terminal, against a live server and a real container."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings

from accounts.models import ApiToken, TokenScope
from gpuplatform_client.cli.exit_codes import REFUSED
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.containers import lent_container
from tests.factories import make_host, make_user, run_session
from tests.live import ROOT, serving
from tests.relay import Relay, relaying
from tests.tiny_image import ensure_tiny_image
from tests.wait import SECONDS

pytestmark = [pytest.mark.long, pytest.mark.docker, pytest.mark.django_db(transaction=True)]

PROMPT = "/ # "


class Keyboard:
    """The program at a terminal of its own."""

    def __init__(self, url: str, token: str, home: Path, columns: int) -> None:
        self._main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {
            **{"HOME": str(home), "PYTHONPATH": str(ROOT / "client"), "PATH": "/usr/bin:/bin", "TERM": "xterm"},
            **{"GPUPLATFORM_URL": url, "GPUPLATFORM_TOKEN": token},
        }
        command = [sys.executable, "-m", "gpuplatform_client", "attach", "mine"]
        self.process = subprocess.Popen(
            command, env=environment, start_new_session=True, stdin=side, stdout=side, stderr=side
        )
        os.close(side)
        self._unread = ""

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._main, text.encode())

    def read_until(self, text: str) -> None:
        """Read until the text was shown after what was read before."""
        while text not in self._unread:
            ready, _, _ = select.select([self._main], [], [], SECONDS)
            assert ready, f"no {text!r} in {self._unread!r}"
            self._unread += os.read(self._main, 65536).decode(errors="replace")
        self._unread = self._unread.partition(text)[2]

    def close(self) -> None:
        """End the program if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SECONDS)
        os.close(self._main)


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    """The web process behind a relay, and a session `mine` that runs in a real container."""
    with lent_container(ensure_tiny_image()) as container:
        session = run_session(host=make_host(name=settings.COMPUTE_HOST_NAME), owner=make_user(), name="mine")
        Session.objects.filter(pk=session.pk).update(container_id=container.id)
        with serving(tmp_path / "web.log") as web, relaying(web.port) as between:
            yield between


@contextmanager
def attached(relay: Relay, home: Path, scope: TokenScope = TokenScope.FULL) -> Iterator[Keyboard]:
    """Run the program as the session's owner, in a window of 97 columns."""
    _, token = ApiToken.objects.issue(Session.objects.get().owner, scope=scope)
    keyboard = Keyboard(relay.url, token, home, columns=97)
    try:
        yield keyboard
    finally:
        keyboard.close()


def test_a_terminal_is_attached_and_outlives_its_connection(relay: Relay, tmp_path: Path) -> None:
    with attached(relay, tmp_path) as keyboard:
        keyboard.read_until(PROMPT)
        keyboard.type('until [ "$(stty size)" = "24 97" ]; do :; done; echo $((6 * 7))-sized\r')
        keyboard.read_until("42-sized")
        keyboard.type("yes 0123456789012345678901234567890 | head -c 3000000; echo all-$((1 + 1))\r")
        keyboard.read_until("all-2")
        relay.cut()
        keyboard.read_until("built-in shell")  # of the tiny image, which has no tmux, so that another one greets
        keyboard.read_until(PROMPT)
        keyboard.type("exit\r")
        assert keyboard.process.wait(SECONDS) == 0
    with attached(relay, tmp_path) as keyboard:
        keyboard.read_until(PROMPT)
        keyboard.type("\x1d")
        assert keyboard.process.wait(SECONDS) == 0
    with attached(relay, tmp_path, TokenScope.READ) as keyboard:
        keyboard.read_until("only be used for reading")
        assert keyboard.process.wait(SECONDS) == REFUSED


def test_commands_have_input_output_errors_and_an_exit_code(relay: Relay, tmp_path: Path) -> None:
    _, token = ApiToken.objects.issue(Session.objects.get().owner)
    environment = {
        **{"HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "client"), "PATH": "/usr/bin:/bin"},
        **{"GPUPLATFORM_URL": relay.url, "GPUPLATFORM_TOKEN": token},
    }

    def run(*command: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        program = [sys.executable, "-m", "gpuplatform_client", "exec", "mine", "--", *command]
        return subprocess.run(program, env=environment, input=given, capture_output=True, timeout=SECONDS)

    large = bytes(range(256)) * 8192
    echoed = run("cat", given=large)
    assert (echoed.returncode, echoed.stdout == large, echoed.stderr) == (0, True, b"")
    failed = run("sh", "-c", "echo good; echo 'bad  one' >&2; exit 7")
    assert (failed.returncode, failed.stdout, failed.stderr) == (7, b"good\n", b"bad  one\n")
    Session.objects.get().move_to(Status.TERMINATING, Reason.USER_REQUEST)
    ended = run("true")
    assert (ended.returncode, b"it can be entered while it is RUNNING" in ended.stderr) == (255, True)
