"""Programs of Debian's that a machine need not have: fetched and unpacked, not installed."""

import subprocess
from pathlib import Path


def unpack(package: str, folder: Path, source: str = "") -> None:
    """Put a package's files into `folder`. `source`: a line of apt's list of sources, where the machine's do not do."""
    # As root, apt would rather download as its own user, who may not write here.
    apt = ["apt-get", "-q", "-o", "APT::Sandbox::User=root"]
    if source:
        lists = folder / "apt" / "lists"
        (lists / "partial").mkdir(parents=True)
        (sources := folder / "apt" / "sources.list").write_text(source + "\n")
        files = {"Etc::sourcelist": sources, "Etc::sourceparts": "/dev/null", "State::lists": lists, "Cache": folder}
        apt += [word for name, path in files.items() for word in ("-o", f"Dir::{name}={path}")]
    if source or _run([*apt, "download", package], folder).returncode:
        _run([*apt, "update"], folder).check_returncode()
        _run([*apt, "download", package], folder).check_returncode()
    (archive,) = folder.glob("*.deb")
    _run(["dpkg-deb", "-x", str(archive), "."], folder).check_returncode()
    archive.unlink()


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, cwd=folder, capture_output=True, check=False)
