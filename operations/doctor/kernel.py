"""Checks of what the kernel limits: for all sessions of this host together, and for the platform's processes."""

import resource
import shlex
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from docker import APIClient
from docker.errors import NotFound

from engine.containers import ATTEMPT_LABEL
from hostworker.privileged.base import KernelUse, PrivilegesError
from hostworker.privileged.kernel_limits import low_limits
from hostworker.runtime.container_config import UNLIMITED
from hostworker.runtime.factory import get_privileges, is_engine_here
from operations.doctor.findings import Finding, Verdict
from operations.doctor.services import docker_client
from proxy.limits import MIN_OPEN_FILES, open_file_problem
from resources import procfs

CGROUPS: Final = Path("/sys/fs/cgroup")
HINT = "let the host worker be root or have its helper, or set them by deploy/sysctl.d/60-gpuplatform.conf"
ENGINE_HINT = (
    "start the container engine with CAP_SYS_RESOURCE, or with LimitSIGPENDING=infinity and LimitNPROC=infinity"
)


def shared_limits() -> Finding:
    """Return whether one session can take what others need, and who holds most of it."""
    if not is_engine_here():
        return Finding(Verdict.WARN, "unknown: the container engine is on another machine")
    with closing(docker_client()) as client:
        containers = client.containers(filters={"label": [ATTEMPT_LABEL]})
        found = [limits for each in containers if (limits := _limits(client, each["Id"])) is not None]
    names = {each["Id"]: each["Names"][0].lstrip("/") for each in containers}
    most = _most(names)
    if low := low_limits():
        text = ", ".join(f"{name} is {number}" for name, number in low.items())
        return Finding(Verdict.WARN, f"one session can take what all share: {text}{most}", HINT)
    if any(limit not in limits for limits in found for limit in UNLIMITED):
        text = "one session can take all pending signals, message queues and processes of the user of sessions"
        return Finding(Verdict.WARN, f"{text}: the engine cannot lift these limits{most}", ENGINE_HINT)
    if not found:
        return Finding(Verdict.OK, "the kernel's are high; those of the engine show once a session runs")
    return Finding(Verdict.OK, f"no session comes to a limit that others share{most}")


def cgroups() -> Finding:
    """Return whether each directory of version 1 of cgroups is a mount: by others, the engine misses what happens."""
    if not is_engine_here():
        return Finding(Verdict.WARN, "unknown: the container engine is on another machine")
    kinds = {mount.point: mount.kind for mount in procfs.mounts()}
    if kinds.get(str(CGROUPS)) != "tmpfs":
        return Finding(Verdict.OK, "version 2")
    directories = [str(each) for each in CGROUPS.iterdir() if each.is_dir() and not each.is_symlink()]
    stray = sorted(each for each in directories if each not in kinds)
    if stray:
        text = f"not mounted: {', '.join(stray)}; so the engine misses that sessions run out of memory"
        return Finding(Verdict.WARN, text, f"rm -r --one-file-system {shlex.join(stray)}, then restart the engine")
    return Finding(Verdict.OK, "version 1, each controller is mounted")


def open_files() -> Finding:
    """Return whether processes that are started as this one was may open enough files."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if problem := open_file_problem():
        return Finding(Verdict.FAIL, problem)
    number = "no limit" if hard_limit == resource.RLIM_INFINITY else f"{hard_limit}"
    return Finding(Verdict.OK, f"{number} in a process that is started from here; at least {MIN_OPEN_FILES} are needed")


def _limits(client: APIClient, container: str) -> list[dict[str, Any]] | None:
    """Return the limits that the engine sets a container; None if it has ended meanwhile."""
    try:
        return client.inspect_container(container)["HostConfig"]["Ulimits"] or []
    except NotFound:
        return None


def _most(names: dict[str, str]) -> str:
    """Return who of these containers, {id: name}, holds most of each kind; "" where nobody can look."""
    try:
        use = get_privileges().kernel_use(sorted(names)) if names else KernelUse()
    except PrivilegesError:
        return ""
    kinds = sorted({kind for counts in use.held.values() for kind, number in counts.items() if number})
    found = []
    for kind in kinds:
        container = max(use.held, key=lambda each, kind=kind: use.held[each].get(kind, 0))  # type: ignore[misc]
        found.append(f"{use.held[container][kind]} {kind} by {names[container]}")
    return f"; most of each: {', '.join(found)}" if found else ""
