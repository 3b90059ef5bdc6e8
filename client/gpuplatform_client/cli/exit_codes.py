"""Exit codes of commands, which scripts may rely on."""

from typing import Final

from gpuplatform_client.errors import (
    ApiError,
    ClientError,
    MissingObjectError,
    OverloadedError,
    SignInRequiredError,
    UnknownPlatformError,
    UnreachableServerError,
)
from gpuplatform_client.operations.lookups import LookupFailedError

FAILED: Final = 1
USAGE: Final = 2
NOT_SIGNED_IN: Final = 3
NOT_FOUND: Final = 4
REFUSED: Final = 5
UNREACHABLE: Final = 6
TIMED_OUT: Final = 124
NOT_STARTED: Final = 125
INTERRUPTED: Final = 130
NO_MORE_KNOWN: Final = 255

MEANINGS: Final = {
    0: "Done; of `wait` and `rollout`: what was waited for is there.",
    FAILED: "It failed otherwise; what was waited for did not come.",
    USAGE: "The command was written wrongly: an unknown option, a missing argument, a value of the wrong kind.",
    NOT_SIGNED_IN: "Not signed in: there is no token, or it is not valid any more.",
    NOT_FOUND: "Something of that name does not exist, or is not yours.",
    REFUSED: "The platform refused it: not allowed, against a policy, or a wrong value.",
    UNREACHABLE: "The platform cannot be reached, or cannot serve the request now.",
    TIMED_OUT: "What was waited for did not come within `--timeout`.",
    NOT_STARTED: "`run`: no session was started.",
    INTERRUPTED: "Interrupted with Ctrl-C.",
    NO_MORE_KNOWN: "`run`: no more is known of the session, which may go on; `exec`: no command was run.",
}
SERVER_ERRORS: Final = range(500, 600)


def code_of(error: ClientError) -> int:
    """Return the exit code that an error stands for."""
    if isinstance(error, SignInRequiredError | UnknownPlatformError):
        return NOT_SIGNED_IN
    if isinstance(error, MissingObjectError | LookupFailedError):
        return NOT_FOUND
    if isinstance(error, UnreachableServerError | OverloadedError):
        return UNREACHABLE
    if isinstance(error, ApiError):
        return UNREACHABLE if error.status in SERVER_ERRORS else REFUSED
    return FAILED
