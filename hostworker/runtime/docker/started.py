"""What root of the host does for a container that has just started."""

import logging
from typing import Any

from engine.containers import HOSTNAME_LABEL
from hostworker.privileged.base import ContainerFiles
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.privileged.hostnames import SANDBOX_HOSTNAME

logger = logging.getLogger(__name__)


def bound_terminals(privileges: HostPrivileges, container: dict[str, Any]) -> None:
    """Keep the container from taking all pseudo-terminals of its host."""
    try:
        privileges.bound_terminals(int(container["State"]["Pid"]))
    except OSError as error:
        logger.warning("container %s: its pseudo-terminals have no bound: %s", container["Name"], error)


def give_name(privileges: HostPrivileges, container: dict[str, Any]) -> None:
    """Give the container its own host name unless its sandbox had it; one that has ended at once keeps what it had."""
    if container["Config"]["Hostname"] != SANDBOX_HOSTNAME:
        return
    try:
        hostname = container["Config"]["Labels"].get(HOSTNAME_LABEL) or container["Id"][:12]
        privileges.give_name(ContainerFiles.of(container), hostname)
    except OSError as error:
        logger.info("container %s: keeps the host name of its sandbox: %s", container["Name"], error)
