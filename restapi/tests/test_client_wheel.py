"""The command line as a package for pip has equal bytes wherever and whenever it is built."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from django.conf import settings

from restapi import client_wheel

URL: Final = "https://gpu.example.org"
PRINT: Final = """
import django, hashlib
django.setup()
from restapi.client_wheel import wheel
print(wheel("https://gpu.example.org").name, hashlib.sha256(wheel("https://gpu.example.org").content).hexdigest())
"""


def test_a_copy_with_other_times_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = client_wheel.wheel.__wrapped__(URL)
    copy = shutil.copytree(client_wheel.SOURCE, tmp_path / "client", copy_function=shutil.copyfile)
    for path in copy.rglob("*"):
        os.utime(path, (0, 0))
    monkeypatch.setattr(client_wheel, "SOURCE", copy)
    client_wheel.version.cache_clear()
    assert client_wheel.wheel.__wrapped__(URL) == here


def test_another_process_gives_the_same() -> None:
    here = client_wheel.wheel(URL)
    environment = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Seoul"}
    words = [sys.executable, "-c", PRINT]
    done = subprocess.run(words, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [here.name, hashlib.sha256(here.content).hexdigest()]
