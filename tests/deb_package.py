"""The Debian package of this checkout, which tests build once for all of them."""

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.exclusive import VAR, exclusive
from tests.systemd_machine import ROOT, UBUNTU, ensure_image

LEFT_OUT: Final = (":!:**/tests/**", ":!:tests", ":!:bench", ":!:conftest.py", ":!:.ci", ":!:requirements-dev.txt")
DEB: Final = "gpuplatform/bootstrap/deb.sh"
AUTHORITIES: Final = "/etc/ssl/certs/ca-certificates.crt"  # those of this machine, which may be behind a proxy
NETWORK: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL")


def package_folder(distribution: str = "debian") -> Path:
    """Return a folder with the package alone, as `make deb` builds it, anew for another commit or other sources.

    The commit gives the package its version and its times. `distribution`: "debian" for this machine's, or "ubuntu".
    """
    digest = hashlib.sha256()
    for command in (["rev-parse", "HEAD"], ["ls-files", "-s", "--", *LEFT_OUT], ["diff", "--", *LEFT_OUT]):
        digest.update(subprocess.run(["git", *command], cwd=ROOT, capture_output=True, check=True).stdout)
    folder = VAR / f"test-deb-{distribution}" / digest.hexdigest()[:16]
    with exclusive("deb"):
        if not folder.exists():
            shutil.rmtree(folder.parent, ignore_errors=True)
            draft = folder.with_name("draft")
            if distribution == "ubuntu":
                _build_on_ubuntu(draft)
            else:
                subprocess.run(["sh", DEB, str(draft)], cwd=ROOT, check=True)
            draft.rename(folder)
    return folder


def _build_on_ubuntu(folder: Path) -> None:
    """Run `make deb` in a clone of the repository, on a machine with Ubuntu."""
    ensure_image(UBUNTU)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as clone:
        subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{ROOT}", clone], check=True)
        changes = subprocess.run(["git", "diff", "--binary", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["git", "apply", "--index", "--allow-empty"], cwd=clone, input=changes, check=True)
        binds = [f"{clone}:/src", f"{folder}:/src/build", f"{AUTHORITIES}:{AUTHORITIES}:ro"]
        trust = [f"{name}={AUTHORITIES}" for name in ("PIP_CERT", "NODE_EXTRA_CA_CERTS")]
        options = [f"--volume={bind}" for bind in binds] + [f"--env={each}" for each in (*trust, *NETWORK)]
        command = ["docker", "run", "--rm", "--network=host", *options, "--workdir=/src", UBUNTU, "make", "deb"]
        subprocess.run(command, check=True)
