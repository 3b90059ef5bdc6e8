"""The programs and the cell of the page *From Python* of the help, on the whole platform."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Final

import pytest
from markdown_it import MarkdownIt

from gpuplatform_client import Client
from gpuplatform_client.remote.sessions import OWN
from tests.guide import USER
from tests.live import ROOT
from tests.platform import Platform
from tests.wait import SECONDS

pytestmark = pytest.mark.docker

PAGE: Final = (ROOT / "docs/help/python.md").read_text()
BLOCKS: Final = [token.content for token in MarkdownIt("commonmark").parse(PAGE) if token.type == "code_block"]
NOTEBOOK: Final = """
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell()
    shell.user_ns["numbers"] = [1, 2]
    for cell in ("%load_ext gpuplatform_client.magic", {cell!r}, "print(total + 1)"):
        shell.run_cell(cell).raise_error()
"""


def test_programs_of_the_page_run(platform: Platform, tmp_path: Path) -> None:
    with Client(platform.url) as client:
        token = client.login(USER, platform.passwords[USER]).token
    environment = {
        **{"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "client")},
        **{"GPUPLATFORM_URL": platform.url, "GPUPLATFORM_TOKEN": token},
    }

    def printed(program: str) -> list[str]:
        """Return the lines that a program prints that is a file, as users have it."""
        (tmp_path / "program.py").write_text(program.replace('"python"', f'"python:{OWN}"'))
        command = [sys.executable, str(tmp_path / "program.py")]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=4 * SECONDS)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.splitlines()

    functions, spread, loop, cell = BLOCKS
    pi, counts = printed(functions)
    assert 3 < float(pi) < 3.3
    assert counts.count(",") == 2
    assert printed(spread) == ["[0, 1, 4, 9]"]
    assert printed(loop) == ["[1, 2]"]
    assert printed(dedent(NOTEBOOK).format(cell=cell)) == ["3", "4"]
    with Client(platform.url, token) as client:
        assert [session for session in client.sessions() if session.status in ("PENDING", "RUNNING")] == []
