"""The limit on open files."""

import resource
import subprocess
import sys

SCRIPT = """
import resource
from proxy.limits import raise_open_file_limit
raise_open_file_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def test_open_file_limit_is_raised_to_hard_limit() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    command = ["prlimit", f"--nofile=256:{most}", sys.executable, "-c", SCRIPT]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() == str(most)
