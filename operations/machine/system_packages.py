"""Has programs of the operating system at hand: finds them, or installs their Debian packages when run as root."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from typing import Final

from operations.machine.progress import SetupError

FOR_IMAGES: Final = {"debootstrap": "debootstrap"}
# Without what draws windows it takes half the processor time.
CHROMIUM: Final = {"chromium-headless-shell": "chromium-headless-shell"}
FOR_TESTS: Final = {
    **CHROMIUM,
    "clang": "clang libclang-rt-dev",  # with libFuzzer
    "docker-registry": "docker-registry",
    "git": "git",
    "ip": "iproute2",
    "mkfs.btrfs": "btrfs-progs",
    "mkfs.xfs": "xfsprogs",
    "nginx": "nginx-light",
    "pgbouncer": "pgbouncer",
    "promtool": "prometheus",
    "sftp-server": "openssh-sftp-server",
    "ssh": "openssh-client",
    "tmux": "tmux",
}
APT: Final = ("apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300")
SYSTEM_FOLDERS: Final = (
    "/usr/local/sbin:/usr/sbin:/sbin:/usr/lib/openssh"  # not on everybody's PATH, but where such programs are
)


def program(name: str) -> str | None:
    """Return the path of a program, also when it is meant for administrators."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_FOLDERS}")


def can_install() -> bool:
    """Return whether this process may install Debian packages."""
    return os.geteuid() == 0 and program("apt-get") is not None


def ensure(packages: Mapping[str, str], report: Callable[[str], None]) -> None:
    """Have each program of {program: Debian package}; raise SetupError where one cannot be had."""
    missing = {name: package for name, package in packages.items() if program(name) is None}
    if not missing:
        return
    names = " ".join(sorted(set(missing.values())))
    if not can_install():
        raise SetupError(
            f"{', '.join(missing)} missing. On Debian or Ubuntu run: sudo apt-get install {names}. "
            "On other systems install the same programs with its package manager."
        )
    install(names.split(), report)
    lost = [name for name in missing if program(name) is None]
    if lost:
        raise SetupError(f"the packages {names} were installed, but {', '.join(lost)} is still not there")


def install(names: list[str], report: Callable[[str], None]) -> None:
    """Install Debian packages; raise SetupError with the end of apt's output if that fails."""
    report(f"installing the Debian packages {' '.join(names)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (("update",), ("install", "--no-install-recommends", *names)):
        done = subprocess.run(
            [*APT, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            ending = "\n".join(done.stdout.splitlines()[-15:])
            raise SetupError(f"`apt-get {' '.join(arguments)}` failed:\n{ending}")
