"""The manual page: made of the commands, and read by man without a warning."""

import subprocess

from gpuplatform_client.cli import manual
from tests.live import ROOT


def test_the_manual_is_that_of_the_commands() -> None:
    assert (ROOT / "client/gpuplatform.1").read_text() == manual.page(), "call `make manual`"


def test_man_renders_the_manual_without_warnings() -> None:
    command = ["man", "--warnings", "-E", "UTF-8", "-Tutf8", "-Pcat", "-l", "client/gpuplatform.1"]
    shown = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    assert shown.stderr == ""
    assert "Forward TCP ports of this machine" in shown.stdout


def test_what_means_something_to_roff_is_text() -> None:
    assert manual._plain(".SH 'x' a\\nb\nc") == r"\&.SH \(aqx\(aq a\enb c"
