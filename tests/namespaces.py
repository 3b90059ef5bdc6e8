"""Network namespaces for tests and benchmarks, each held by a process that waits."""

import ctypes
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

CLONE_NEWNET: Final = 0x40000000

Result = TypeVar("Result")


@dataclass(frozen=True)
class Namespace:
    """A network namespace, which a process that waits holds."""

    pid: int

    def run(self, *words: str) -> str:
        """Return the output of a program in it."""
        command = ["nsenter", f"--net=/proc/{self.pid}/ns/net", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def do(self, act: Callable[..., Result], *arguments: object) -> Result:
        """Return the result of a function, called in a thread that is in the namespace."""
        results: list[Result] = []
        failures: list[BaseException] = []

        def enter_and_act() -> None:
            try:
                with Path(f"/proc/{self.pid}/ns/net").open() as namespace:
                    assert not ctypes.CDLL(None).setns(namespace.fileno(), CLONE_NEWNET)
                results.append(act(*arguments))
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=enter_and_act)
        thread.start()
        thread.join()
        if failures:
            raise failures[0]
        return results[0]


@contextmanager
def namespaces(count: int) -> Iterator[list[Namespace]]:
    """Give network namespaces, gone with the block."""
    with ExitStack() as stack:
        given = []
        for _ in range(count):
            command = ["unshare", "--net", "sh", "-c", "ip link set lo up; echo; cat"]
            holder = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            assert holder.stdout
            stack.callback(holder.kill)
            assert holder.stdout.readline() == b"\n"
            given.append(Namespace(holder.pid))
        yield given
