"""What one session can take of its host from all others: the inodes of its disk.

`inode_stopped`: whether a session that makes files without end was ended, how long that took, and how many inodes of
the disk were gone by then, where its policy allows LIMIT files.
"""

import os
import subprocess
import threading
import time
from contextlib import closing
from typing import Any, Final

import docker

from bench.common import SHAPE, ApiUser
from bench.sizes import size
from engine.containers import container_name
from tests.platform import ADMIN, Platform

LIMIT: Final = size(200_000, 20_000)
DEADLINE_SECONDS: Final = 180
MAKER: Final = """
import os
for folder in range(10 ** 6):
    os.mkdir(f"/tmp/made-{folder}")
    for file in range(1000):
        os.close(os.open(f"/tmp/made-{folder}/{file}", os.O_CREAT | os.O_WRONLY))
"""


def figures(platform: Platform) -> dict[str, Any]:
    """Return the figures of this module."""
    return {"inode_stopped": inode_stopped(platform)}


def inode_stopped(platform: Platform) -> dict[str, Any]:
    """Return how a session ended that makes files without end."""
    with closing(ApiUser(platform, ADMIN)) as admin:
        for policy in admin.get("/admin/policies/")["results"]:
            admin.patch(f"/admin/policies/{policy['id']}/", {"disk_files": LIMIT})
    with closing(ApiUser(platform)) as client:
        session = str(client.post("/sessions/", SHAPE | {"image": client.image, "fgpu": "0"})[0]["id"])
        client.wait(session, "RUNNING")
    return _measure(platform, session)


def _measure(platform: Platform, session: str) -> dict[str, Any]:
    """Have the session make files until it is stopped, or for DEADLINE_SECONDS."""
    with closing(docker.from_env()) as engine:
        root = engine.info()["DockerRootDir"]
    free, began = os.statvfs(root).f_ffree, time.monotonic()
    command = ["docker", "exec", container_name(session, 1), "python3", "-c", MAKER]
    maker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    killer = threading.Timer(DEADLINE_SECONDS, maker.kill)
    killer.start()
    maker.wait()  # the container's end is the program's
    killer.cancel()
    seconds, made = time.monotonic() - began, free - os.statvfs(root).f_ffree
    (row,) = platform.rows("SELECT reason FROM compute_session WHERE id = %s", session)
    return {
        "is_ended": row["reason"] == "DISK_LIMIT",
        "seconds": round(seconds, 1),
        "inodes_taken": made,
        "limit": LIMIT,
    }
