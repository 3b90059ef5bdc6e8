"""The types of events that a webhook may receive. Pure."""

from typing import Final

from notifications.kinds import FOR_SUPERADMINS, OF_ARRAYS, OF_DEPLOYMENTS, NoticeKind
from sessions.lifecycle import Status

TEST: Final = "webhook.test"  # sent on request; no webhook needs to choose it
SESSION_TYPES: Final = {f"session.{status.lower()}": status for status in Status}  # a session came to the status
# Notifications of what no change of status says.
_NOTIFIED: Final = (
    NoticeKind.ENDING,
    NoticeKind.IDLE,
    NoticeKind.PARK_ENDING,
    NoticeKind.OUT_OF_MEMORY,
    NoticeKind.RESIZE_REFUSED,
    NoticeKind.IMAGE_READY,
    NoticeKind.IMAGE_FAILED,
    *OF_ARRAYS,
    *OF_DEPLOYMENTS,
    *sorted(FOR_SUPERADMINS),
)
NOTIFICATION_TYPES: Final = {f"notification.{kind.lower()}": kind for kind in _NOTIFIED}
EVENT_TYPES: Final = (*SESSION_TYPES, *NOTIFICATION_TYPES)
DEFAULT_TYPES: Final = ("session.running", "session.terminated", "session.cancelled", "session.error")


def types_for(is_superuser: bool) -> tuple[str, ...]:
    """Return the types from which a user may choose."""
    hidden = set() if is_superuser else {name for name, kind in NOTIFICATION_TYPES.items() if kind in FOR_SUPERADMINS}
    return tuple(name for name in EVENT_TYPES if name not in hidden)
