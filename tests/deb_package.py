"""The Debian package of this checkout, which tests build once for all of them."""

import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.exclusive import VAR, exclusive
from tests.systemd_machine import ROOT

LEFT_OUT: Final = (":!:**/tests/**", ":!:tests", ":!:bench", ":!:conftest.py", ":!:.ci", ":!:requirements-dev.txt")


def package_folder() -> Path:
    """Return a folder with the package alone, as `make deb` builds it, anew for another commit or other sources.

    The commit gives the package its version and its times.
    """
    digest = hashlib.sha256()
    for command in (["rev-parse", "HEAD"], ["ls-files", "-s", "--", *LEFT_OUT], ["diff", "--", *LEFT_OUT]):
        digest.update(subprocess.run(["git", *command], cwd=ROOT, capture_output=True, check=True).stdout)
    folder = VAR / "test-deb" / digest.hexdigest()[:16]
    with exclusive("deb"):
        if not folder.exists():
            shutil.rmtree(folder.parent, ignore_errors=True)
            draft = folder.with_name("draft")
            subprocess.run(["sh", "gpuplatform/bootstrap/deb.sh", str(draft)], cwd=ROOT, check=True)
            draft.rename(folder)
    return folder
