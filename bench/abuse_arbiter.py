"""What honest sessions keep of a GPU while another one abuses the arbiter, on the simulated driver and its clock.

`arbiter_liar_min_share_ratio` is the least part of its time without a liar that a session has beside one, over what
liars do and two lengths of kernels. `arbiter_fd_others_ok` says whether others launch, and new sessions are adopted,
while one session has opened more connections than an arbiter of 1,024 descriptors could hold.
"""

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from bench import fgpu
from bench.sizes import size
from fgpu.tests.host import Host, Session
from fgpu.tests.sharing import Lie, Load, run_beside_liar
from tests.wait import until

SHARES: Final = (45.0, 45.0)
LIES: Final = size(
    (Lie("toggle"), Lie("renew"), Lie("busy"), Lie("hold"), Lie("overrun", 100), Lie("overrun", 1000)), (Lie("toggle"),)
)
LOADS: Final = size((Load("async", 1000), Load("async", 50_000)), (Load("async", 1000),))
CONNECTIONS: Final = size(600, 20)
LAUNCHES: Final = size(20, 2)


def figures() -> dict[str, Any]:
    """Return all figures."""
    fgpu.build()
    return {"arbiter_liar_min_share_ratio": round(_least_ratio(), 3), "arbiter_fd_others_ok": _others_go_on()}


def _least_ratio() -> float:
    return min(
        beside / alone
        for load in LOADS
        for lie in LIES
        for beside, alone in zip(_parts(load, lie), _parts(load, None), strict=True)
    )


def _parts(load: Load, lie: Lie | None) -> list[float]:
    with _host() as host:
        return sorted(part for _, part, _ in run_beside_liar(host, SHARES, load, lie))


def _others_go_on() -> bool:
    with _host() as host, ExitStack() as stack:
        greedy, other = host.session(), host.session()
        host.arbiter("arbiter-x86_64", (1024, 1024))
        for _ in range(CONNECTIONS):
            stack.enter_context(_open(greedy))
        late = host.session()
        try:
            until(lambda: late.meeting_place.name in (host.arbiter_folder / "status").read_text(), seconds=10)
        except (AssertionError, FileNotFoundError):
            return False
        return all(_launches(session) for session in (other, late))


def _launches(session: Session) -> bool:
    with session.probe() as probe:
        return [probe.code("kernel") for _ in range(LAUNCHES)] == [0] * LAUNCHES


def _open(session: Session) -> socket.socket:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line.settimeout(1)
    with suppress(OSError):
        line.connect(os.fspath(session.meeting_place / "socket" / "arbiter"))
        line.send(bytes([1, 0, 3, 0]))
    return line


@contextmanager
def _host() -> Iterator[Host]:
    with tempfile.TemporaryDirectory(prefix="fgpu-bench-") as folder:
        host = Host(Path(folder))
        try:
            yield host
        finally:
            host.stop()
