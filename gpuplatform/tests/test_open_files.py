"""Processes that serve refuse a limit on open files that is too low for them."""

import subprocess
import sys

import pytest
from django.conf import settings

from tests.ports import free_port
from tests.wait import SECONDS


@pytest.mark.loopback
@pytest.mark.parametrize("command", ["web", "appproxy", "sshserver", "hostworker"])
def test_a_low_hard_limit_is_refused(command: str) -> None:
    address = ["--address", f"127.0.0.1:{free_port()}"] if command in ("web", "appproxy") else []
    limited = ["prlimit", "--nofile=1024:4095", sys.executable, "manage.py", command, *address]
    done = subprocess.run(limited, check=False, capture_output=True, text=True, cwd=settings.BASE_DIR, timeout=SECONDS)
    assert done.returncode == 1
    assert "at most 4095 files may be open, and 4096 are needed" in done.stderr
    assert "Traceback" not in done.stderr
