"""How the process of a service ends."""

import subprocess
import sys

from django.conf import settings

from tests.wait import SECONDS

HANGING = """
import threading
from celery.signals import worker_shutting_down
from gpuplatform import ending
ending.SECONDS = 0.1
threading.Thread(target=threading.Event().wait, name="hangs").start()
worker_shutting_down.send(sender=None)
"""
IMPORTING = """
import atexit, gc
atexit.register(lambda: print("frozen", gc.get_freeze_count() > 10_000))  # the last to be called
import gpuplatform
"""


def _run(program: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_a_thread_that_hangs_does_not_hold_a_workers_end() -> None:
    assert "ended by force while these threads worked: MainThread, hangs" in _run(HANGING).stderr


def test_the_end_looks_for_no_cycles_in_imported_modules() -> None:
    assert _run(IMPORTING).stdout == "frozen True\n"
