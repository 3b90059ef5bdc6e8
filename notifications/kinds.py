"""What a user may be told of, and by which ways unless they choose others. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class NoticeKind(StrEnum):
    """What a notification tells of."""

    STARTED = "STARTED"  # a session runs
    ENDED = "ENDED"  # a session has ended as it should, but not by its owner's hand
    FAILED = "FAILED"  # a session has ended by a fault
    ENDING = "ENDING"  # a session will soon reach its limits
    IDLE = "IDLE"  # a session is idle and will be ended
    PARK_ENDING = "PARK_ENDING"  # a parked session will end, and its files be deleted
    OUT_OF_MEMORY = "OUT_OF_MEMORY"  # a process of a session was killed, and the session goes on
    RESIZE_REFUSED = "RESIZE_REFUSED"  # the host of a session could not change what it holds
    IMAGE_READY = "IMAGE_READY"  # a session was saved as an image
    IMAGE_FAILED = "IMAGE_FAILED"  # a session could not be saved as an image
    HOST_FAULTY = "HOST_FAULTY"  # the platform has cordoned a host that failed to start sessions; for superadmins
    HOST_BACK = "HOST_BACK"  # it takes sessions again
    WEBHOOK_DISABLED = "WEBHOOK_DISABLED"  # a webhook takes no messages and gets no more
    DEPLOYMENT_DOWN = "DEPLOYMENT_DOWN"  # no replica of a deployment takes requests
    DEPLOYMENT_UP = "DEPLOYMENT_UP"  # it serves again, and has for a while
    REVISION_FAILED = "REVISION_FAILED"  # a revision was given up, and the one before is current again
    ROLLOUT_DONE = "ROLLOUT_DONE"  # all replicas of a deployment run its new revision
    ARRAY_ENDED = "ARRAY_ENDED"  # all tasks of an array have ended, and none has failed
    ARRAY_FAILED = "ARRAY_FAILED"  # all have ended, and some have failed
    ARRAY_HELD = "ARRAY_HELD"  # the platform starts no more tasks of an array, and says why
    TOKEN_EXPIRING = "TOKEN_EXPIRING"  # noqa: S105  # a token of a deployment ends within a week
    BUDGET_LOW = "BUDGET_LOW"  # most of a token's monthly budget is spent
    BUDGET_SPENT = "BUDGET_SPENT"  # all of it is, and its requests are refused
    GPU_OVERUSE = "GPU_OVERUSE"  # a session takes more of a GPU's time than its share, and goes on; for superadmins
    OUTPUT_FLOOD = "OUTPUT_FLOOD"  # a session was slowed down as it floods its output; for superadmins
    SHARED_LIMIT = "SHARED_LIMIT"  # a session holds most of what all of its host share; for superadmins
    POOL_FAILING = "POOL_FAILING"  # an elastic pool makes no hosts; for superadmins


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How a user is told."""

    on_page: bool = True
    in_browser: bool = True
    by_email: bool = False


WAYS: Final = ("on_page", "in_browser", "by_email")
DEFAULT_WAYS: Final[dict[NoticeKind, Ways]] = {
    **dict.fromkeys(NoticeKind, Ways()),
    NoticeKind.IMAGE_READY: Ways(by_email=True),
    NoticeKind.PARK_ENDING: Ways(by_email=True),
    NoticeKind.HOST_FAULTY: Ways(by_email=True),
    NoticeKind.POOL_FAILING: Ways(by_email=True),
    NoticeKind.WEBHOOK_DISABLED: Ways(by_email=True),
    NoticeKind.DEPLOYMENT_DOWN: Ways(by_email=True),
    NoticeKind.TOKEN_EXPIRING: Ways(by_email=True),
    NoticeKind.BUDGET_SPENT: Ways(by_email=True),
}
GOOD: Final = frozenset(
    {
        *(NoticeKind.STARTED, NoticeKind.ENDED, NoticeKind.IMAGE_READY, NoticeKind.HOST_BACK),
        *(NoticeKind.DEPLOYMENT_UP, NoticeKind.ROLLOUT_DONE, NoticeKind.ARRAY_ENDED),
    }
)
OF_ARRAYS: Final = (NoticeKind.ARRAY_ENDED, NoticeKind.ARRAY_FAILED, NoticeKind.ARRAY_HELD)
OF_DEPLOYMENTS: Final = (
    *(NoticeKind.DEPLOYMENT_DOWN, NoticeKind.DEPLOYMENT_UP, NoticeKind.REVISION_FAILED, NoticeKind.ROLLOUT_DONE),
    *(NoticeKind.TOKEN_EXPIRING, NoticeKind.BUDGET_LOW, NoticeKind.BUDGET_SPENT),
)
FOR_SUPERADMINS: Final = frozenset(
    {
        NoticeKind.HOST_FAULTY,
        NoticeKind.HOST_BACK,
        NoticeKind.GPU_OVERUSE,
        NoticeKind.OUTPUT_FLOOD,
        NoticeKind.SHARED_LIMIT,
        NoticeKind.POOL_FAILING,
    }
)
