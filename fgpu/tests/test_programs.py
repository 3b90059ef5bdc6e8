"""Other people's own tests pass in a share as they do without the hook, and what is charged is what is used."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fgpu.programs.__main__ import HERE, outcomes

ROWS = tomllib.loads((HERE / "programs.toml").read_text())
REPORT = """<testsuites><testsuite>
<testcase classname="a" name="good"/>
<testcase classname="a" name="bad"><failure/></testcase>
<testcase classname="a" name="left"><skipped/></testcase>
<testcase classname="a" name="parts"/><testcase classname="a" name="parts"><error/></testcase>
<testcase classname="a" name="parts"/>
</testsuite></testsuites>"""


def test_a_report_says_how_each_test_ended(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    expected = {"a.good": "passed", "a.bad": "failed", "a.left": "skipped", "a.parts": "failed"}
    assert outcomes(tmp_path / "report.xml") == expected


@pytest.mark.long(minutes=10)
@pytest.mark.parametrize("name", ROWS)
def test_programs_pass_in_a_share_what_they_pass_without(name: str, built: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fgpu.programs", "--folder", str(tmp_path), name]
    result = subprocess.run(command, cwd=HERE.parent.parent, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    line = json.loads(result.stdout)
    assert line["other_in_a_share"] == []
    assert line["passed"] >= ROWS[name]["passes"]
    assert line["charged"] == line["used"]
