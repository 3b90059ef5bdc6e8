"""The script that starts a shell, at a pseudo-terminal of this machine."""

import os
import pty
import subprocess
from pathlib import Path

import pytest

from engine.shell import CONFIRM, PLAIN_START, START
from tests.wait import SECONDS, until

# What tmux does with its terminal when it starts: tcflush(3).
FLUSHING = """#!/usr/bin/env python3
import pathlib, sys, termios
termios.tcflush(1, termios.TCOFLUSH)
pathlib.Path(sys.argv[0] + ".started").touch()
sys.stdin.read(1)
"""
READ_OF_STDIN = ("0 0x0 ", "63 0x0 ")  # in /proc/PID/syscall, on x86-64 and arm64


def read_line(master: int) -> bytes:
    """Return a line, which the kernel may hand over in pieces."""
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(master, 1024)
    return line


@pytest.mark.parametrize("start", [START, PLAIN_START.replace('"$shell" -l', "tmux")], ids=["tmux", "ssh"])
def test_no_program_can_discard_the_process_id(start: str, tmp_path: Path) -> None:
    program = tmp_path / "tmux"
    program.write_text(FLUSHING)
    program.chmod(0o755)
    marker = tmp_path / "tmux.started"
    master, slave = pty.openpty()
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    shell = subprocess.Popen(["sh", "-c", start], stdin=slave, stdout=slave, stderr=slave, env=environment)
    try:
        system_call = Path(f"/proc/{shell.pid}/syscall")
        until(lambda: marker.exists() or system_call.read_text().startswith(READ_OF_STDIN), seconds=SECONDS)
        assert not marker.exists()
        assert read_line(master) == b"%d\r\n" % shell.pid
        os.write(master, CONFIRM)
        until(marker.exists, seconds=SECONDS)
    finally:
        shell.kill()
        shell.wait()
        os.close(master)
        os.close(slave)
