"""SIGTERM at a host worker that has yet to hand over to Celery."""

import subprocess
import sys

import pytest
from django.conf import settings

from tests.wait import SECONDS

DURING_A_DESTRUCTOR = """
import os, signal
import django
django.setup()
from gpuplatform.celery import app
from hostworker.management.commands.hostworker import end_before_celery

class Dying:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(100_000):  # the handler runs between two of these, and what it raises is ignored
            pass

signal.signal(signal.SIGTERM, end_before_celery)
Dying()
print("not ended", flush=True)
app.worker_main(["--quiet", "worker", "--pool=threads", "--queues=none", "--without-gossip", "--without-mingle"])
"""


@pytest.mark.loopback
def test_sigterm_during_a_destructor_is_not_lost() -> None:
    words = [sys.executable, "-c", DURING_A_DESTRUCTOR]
    done = subprocess.run(words, cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("not ended")
