"""Namespaces in which a cluster is alone: processes, mounts and network; the kernel ends all of it with its first."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final, NoReturn

from operations.machine.system_packages import program

ISOLATED: Final = "TEST_CLUSTER_ISOLATED"  # environment variable, in the namespaces
MEMORY: Final = Path("/run/gptest")  # of the cluster alone: a file system in memory, with a short path for sockets
NAMES: Final = Path("/run/netns")  # where `ip netns` keeps network namespaces
NAMES_FILE: Final = MEMORY / "hosts"  # stands for the DNS: /etc/hosts of the cluster alone
# The shell is the first process, which inherits those that lost their parent and has to wait for them.
FIRST: Final = '"$0" "$@"; exit $?'


def is_isolated() -> bool:
    """Return whether this process is in the namespaces."""
    return ISOLATED in os.environ


def enter(module: str, arguments: list[str]) -> NoReturn:
    """Run the module of this process again in namespaces of its own, in place of this process."""
    for folder in (MEMORY, NAMES):
        folder.mkdir(exist_ok=True)
    unshare = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = [*unshare, "sh", "-c", FIRST, sys.executable, "-m", module, *arguments]
    os.execvpe(str(program("unshare")), command, os.environ | {ISOLATED: "1"})


def prepare() -> None:
    """Give the namespaces folders and a loopback device of their own."""
    for folder in (MEMORY, NAMES):
        run("mount", "-t", "tmpfs", "-o", "mode=755", "none", str(folder))
    run("ip", "link", "set", "lo", "up")
    NAMES_FILE.write_text("127.0.0.1 localhost\n")
    run("mount", "--bind", str(NAMES_FILE), "/etc/hosts")


def run(*command: str) -> None:
    """Run a program for administrators; its failure is an error."""
    subprocess.run([str(program(command[0])), *command[1:]], check=True, stdout=subprocess.DEVNULL)
