"""Makes sure, before anything is set up, that a platform that is not root has a helper that is."""

from django.conf import settings

from hostworker.privileged.helper import HelperPrivileges
from hostworker.runtime.factory import get_privileges
from operations.machine.progress import Progress, SetupError


def ensure(progress: Progress, *, is_required: bool = True) -> None:
    """Start the helper for a moment where the host worker will need it. Raises SetupError where it cannot run.

    Nothing is to be done as root, or where COMPUTE_PRIVILEGED_HELPER says that there is to be none. Unless it
    `is_required`, it is only told: the host worker may run as another user, or nowhere on this machine.
    """
    privileges = get_privileges()
    if not isinstance(privileges, HelperPrivileges):
        return
    with progress.step("Helper container, since this is not root"):
        try:
            problem = privileges.problem()
        finally:
            privileges.end()
        if problem and is_required and settings.COMPUTE_DOCKER_URL.startswith("unix://"):
            raise SetupError(
                f"GPUs cannot be divided here, nor sessions kept from this machine's services: {problem}\n"
                "Run `make up` as root, or use a Docker Engine that runs as root on this very machine. To go on "
                "without, lending whole GPUs only, put COMPUTE_PRIVILEGED_HELPER=false into .env."
            )
        if problem:
            progress.note(f"WARNING: a host worker of this user lends whole GPUs only: {problem}")
