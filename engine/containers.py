"""Names and labels by which the platform's containers are known to the engine. Pure."""

from typing import Final

INSTALLATION_LABEL: Final = "gpuplatform.installation"
HOST_LABEL: Final = "gpuplatform.host"
SESSION_LABEL: Final = "gpuplatform.session"
ATTEMPT_LABEL: Final = "gpuplatform.attempt"
HOSTNAME_LABEL: Final = "gpuplatform.hostname"

SAVED_LABEL: Final = "gpuplatform.saved"  # of an image that is a session's saved container: bytes written in all
ENVIRONMENT_LABEL: Final = "gpuplatform.environment"  # and the variables of the image below, as JSON
SAVED_REPOSITORY: Final = "gpuplatform-parked"

VARIABLES_PATH: Final = "/run/gpuplatform/environment"  # in the container: lines of the shell that set variables
READ_VARIABLES: Final = f"if [ -r {VARIABLES_PATH} ]; then . {VARIABLES_PATH}; fi"  # begins what is run for the user


def container_name(session: str, attempt: int) -> str:
    """Return the engine-wide unique name of the container of a session's attempt."""
    return f"gp-{session}-{attempt}"


def saved_reference(session: str, attempt: int) -> str:
    """Return the name of the image that is the saved container of a session's attempt."""
    return f"{SAVED_REPOSITORY}:{session}-{attempt}"
