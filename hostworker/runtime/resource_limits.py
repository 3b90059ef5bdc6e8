"""Whether the engine can lift the limits on a user's resources that containers inherit from it.

The kernel counts pending signals, processes, message queues and locked memory for a user, so that all sessions of a
host share them (getrlimit(2)). Lifting a limit takes CAP_SYS_RESOURCE, which an engine may have been started without.
"""

import logging
import secrets
from collections.abc import Mapping
from typing import Any, Final

from docker.errors import APIError

from hostworker.runtime.container_config import UNLIMITED
from hostworker.runtime.sandboxes.containers import RETIRED, SandboxContainers

logger = logging.getLogger(__name__)

REFUSED: Final = "rlimit"  # in the message of an engine that cannot
_known: dict[str, bool] = {}  # by the engine's id, of this process


def can_lift_limits(info: Mapping[str, Any], containers: SandboxContainers) -> bool:
    """Return whether the engine that reports `info` can; the first call makes a container to try.

    It has the name of a sandbox that is to be removed, as the next worker does if this one dies. Raises what the SDK
    raises.
    """
    engine = str(info["ID"])
    if engine not in _known:
        _known[engine] = _can_lift(containers)
        if not _known[engine]:
            logger.warning(
                "sessions share limits of their user on pending signals and processes: the engine cannot lift them"
            )
    return _known[engine]


def _can_lift(containers: SandboxContainers) -> bool:
    made = containers.create(f"{RETIRED}{secrets.token_hex(8)}", "", UNLIMITED)
    try:
        containers.start(made)
    except APIError as error:
        if REFUSED not in str(error.explanation):
            raise
        return False
    finally:
        containers.remove(made)
    return True
