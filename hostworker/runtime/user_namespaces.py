"""Engines with `userns-remap`: who the users of their containers are on the host.

Root in a container is then nobody in particular on the host. Data folders belong to one user, CONTAINER_UID, inside and
outside, so they can be mounted where the engine maps this one user to itself; see docs/isolation.md.
"""

import secrets
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from folders.files.descriptors import CONTAINER_GID, CONTAINER_UID
from hostworker.runtime.engine_requests import translated
from hostworker.runtime.sandboxes.containers import RETIRED, SandboxContainers
from hostworker.runtime_protocol import EngineUnreachableError
from resources import procfs

USER_NAMESPACES: Final = "name=userns"  # how an engine reports that it maps users


class IdRange(NamedTuple):
    """Consecutive ids of a user namespace, as a line of /proc/<pid>/uid_map; see user_namespaces(7)."""

    inside: int
    outside: int
    length: int


def is_remapped(info: Mapping[str, Any]) -> bool:
    """Return whether the engine that reports `info` maps the users of containers."""
    return USER_NAMESPACES in (info.get("SecurityOptions") or ())


def parse_map(text: str) -> list[IdRange]:
    """Return the ranges in a text of /proc/<pid>/uid_map or gid_map."""
    return [IdRange(*map(int, line.split())) for line in text.splitlines()]


def outside(ranges: list[IdRange], number: int) -> int | None:
    """Return what an id of the namespace is on the host; None where it has none."""
    return next(
        (each.outside + number - each.inside for each in ranges if 0 <= number - each.inside < each.length), None
    )


def folders_problem(info: Mapping[str, Any], containers: SandboxContainers) -> str:
    """Return why data folders cannot be mounted, as a sentence; "" where they can.

    Where users are mapped, this makes a container to see how, which takes some 0.5 s. Raises EngineUnreachableError.
    """
    if not is_remapped(info):
        return ""
    users, groups = _maps(containers)
    if not users:
        return "The container engine maps users (userns-remap), and how cannot be read on this machine."
    found = outside(users, CONTAINER_UID), outside(groups, CONTAINER_GID)
    if found == (CONTAINER_UID, CONTAINER_GID):
        return ""
    return (
        f"The container engine maps user {CONTAINER_UID} of sessions to {found[0]} (userns-remap), "
        "so that data folders would be another user's."
    )


def _maps(containers: SandboxContainers) -> tuple[list[IdRange], list[IdRange]]:
    """Return the maps of users and groups in a container that is made for it; none where its process is out of sight.

    It has the name of a sandbox that is to be removed, as the next worker does if this one dies.
    """
    with translated(EngineUnreachableError):
        made = containers.create(f"{RETIRED}{secrets.token_hex(8)}", "")
        try:
            pid = containers.start(made)["State"]["Pid"]
            users, groups = (procfs.read(f"{pid}/{name}").decode() for name in ("uid_map", "gid_map"))
        except FileNotFoundError:  # the engine is on another machine
            return [], []
        finally:
            containers.remove(made)
    return parse_map(users), parse_map(groups)
