"""Whether others still get what the kernel limits for all sessions of a host together, while one session hoards it."""

from contextlib import closing
from typing import Final

from docker import APIClient

from bench.common import SHAPE, ApiUser
from bench.sizes import size
from engine.containers import container_name
from tests.execs import output_of
from tests.fgpu_sessions import PYTHON_IMAGE
from tests.hoards import FILE, HOARD, ONE
from tests.platform import Platform
from tests.wait import until

KINDS: Final = {"inotify_others_ok": "inotify", "terminals_others_ok": "terminals", "pipes_others_ok": "pipes"}
MOST: Final = size(5000, 50)


def measure(platform: Platform) -> dict[str, bool]:
    """Return for each kind whether another session still gets one."""
    user = ApiUser(platform)
    shape = SHAPE | {"image": PYTHON_IMAGE, "fgpu": "0"}
    hoarder, other = (str(user.post("/sessions/", shape)[0]["id"]) for _ in range(2))
    for session in (hoarder, other):
        user.wait(session, "RUNNING")
    with closing(APIClient(version="auto")) as client:
        found = {figure: _gets_one(client, hoarder, other, kind) for figure, kind in KINDS.items()}
    for session in (hoarder, other):
        user.terminate(session)
    user.close()
    return found


def _gets_one(client: APIClient, hoarder: str, other: str, kind: str) -> bool:
    """Let the one session take MOST of the kind, and return whether the other one gets any; then let go of it."""
    greedy, honest = container_name(hoarder, 1), container_name(other, 1)
    made = client.exec_create(greedy, ["python3", "-c", HOARD, kind, str(MOST)])
    client.exec_start(made["Id"], detach=True)
    until(lambda: output_of(client, greedy, f"rm {FILE}")[0] == 0)
    program = client.exec_create(honest, ["python3", "-c", ONE, kind])
    problem = client.exec_start(program["Id"])
    output_of(client, greedy, "pkill -x python3")
    until(lambda: not client.exec_inspect(made["Id"])["Running"])
    return problem == b""
