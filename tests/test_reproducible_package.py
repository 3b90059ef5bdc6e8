"""Whoever builds the Debian package of a commit again gets the same bytes, and what it is made of is inside."""

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.deb_package import package_folder
from tests.systemd_machine import ROOT

pytestmark = pytest.mark.long(12)


def test_a_second_build_is_equal_to_the_byte(tmp_path: Path) -> None:
    (first,) = package_folder().glob("*.deb")
    elsewhere = tmp_path / "another-folder-for-temporary-files"
    elsewhere.mkdir()
    environment = {**os.environ, "TMPDIR": str(elsewhere), "TZ": "Asia/Seoul"}
    subprocess.run(
        ["sh", "-c", "umask 077; exec sh gpuplatform/bootstrap/deb.sh " + str(tmp_path)],
        cwd=ROOT,
        env=environment,
        check=True,
    )
    (second,) = tmp_path.glob("*.deb")
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (first, second)]
    assert (first.name, digests[0]) == (second.name, digests[1])


def test_the_package_says_what_it_is_made_of() -> None:
    (package,) = package_folder().glob("*.deb")
    unpack = f"dpkg-deb --fsys-tarfile {package} | tar -xO ./usr/share/doc/gpuplatform/sbom.cdx.json"
    bill = json.loads(subprocess.run(unpack, shell=True, capture_output=True, check=True).stdout)
    names = {component["name"] for component in bill["components"]}
    assert {"django", "htmx.org", "fgpu", "typer"} <= names
    assert not names & {"ziglang", "pip", "pytest", "eslint"}
    assert bill["metadata"]["component"]["version"] in package.name
