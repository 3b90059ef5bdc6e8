"""The lifecycle of a session: states, reasons and legal transitions. Pure; docs/lifecycle.md has the diagram."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

START_CERTAINTY: Final = (8, 10)  # of so many starts so many are to lie in the range that was told


class Status(StrEnum):
    """The state of a session."""

    PENDING = "PENDING"  # waits for resources
    SCHEDULED = "SCHEDULED"  # holds a lease; its host has been notified
    PREPARING = "PREPARING"  # the host pulls the image and starts the container
    RUNNING = "RUNNING"  # usable
    TERMINATING = "TERMINATING"  # its container is being stopped
    PARKED = "PARKED"  # its container is saved on its host, and it holds nothing else
    TERMINATED = "TERMINATED"  # ended as requested
    CANCELLED = "CANCELLED"  # ended before a container was started
    ERROR = "ERROR"  # ended by a fault, which the reason names


class Reason(StrEnum):
    """Why a session is in its state. The text for the user is in the event's detail."""

    SUBMITTED = "SUBMITTED"  # new in the queue
    NO_HOST = "NO_HOST"  # no host of the group is ready
    NO_CAPACITY = "NO_CAPACITY"  # every host or GPU that could hold it is in use
    NO_SUITABLE_HOST = "NO_SUITABLE_HOST"  # no ready host of the group can run its image: architecture, or where it is
    NO_STORAGE = "NO_STORAGE"  # no ready host of the group has the storage root of a folder that it mounts
    USER_LIMIT = "USER_LIMIT"  # the owner's policy allows no more at once
    PROJECT_LIMIT = "PROJECT_LIMIT"  # the owner's project may hold no more at once
    RESERVED = "RESERVED"  # the free resources are reserved for a session ahead of it
    START_TIME = "START_TIME"  # its owner requested a later start
    DEPENDENCY = "DEPENDENCY"  # the sessions and arrays that it depends on have not come so far yet
    PREEMPTION = "PREEMPTION"  # preemptible sessions end for it
    PLACEMENT_REFUSED = "PLACEMENT_REFUSED"  # the database refused its placement; tried again later
    ASSIGNED = "ASSIGNED"  # placed by the scheduler
    CLAIM_TIMEOUT = "CLAIM_TIMEOUT"  # its host did not respond; back in the queue
    HOST_FAULT = "HOST_FAULT"  # its host failed to start it; back in the queue
    CLAIMED = "CLAIMED"  # its host has begun
    STARTED = "STARTED"  # its container runs
    CONVERSION = "CONVERSION"  # saved as an image, or to be; its status stays
    EXTENDED = "EXTENDED"  # its end was put off; its status stays
    ENTERED = "ENTERED"  # somebody other than its owner opened its terminal or an app; its status stays
    IMAGE_PULLED = "IMAGE_PULLED"  # its image was missing on the host and is there now; its status stays
    PROCESS_OUT_OF_MEMORY = "PROCESS_OUT_OF_MEMORY"  # the kernel killed a process at the memory limit; its status stays
    DISK_NEARLY_FULL = "DISK_NEARLY_FULL"  # it has written almost as much as its policy allows; its status stays
    OUTPUT_SLOWED = "OUTPUT_SLOWED"  # it writes more to its output than its host copies; its status stays
    DEVICE_HEALTH = "DEVICE_HEALTH"  # a device that it holds is not in order, or is again; its status stays
    RESIZING = "RESIZING"  # its host is to change what it holds; its status stays
    RESIZED = "RESIZED"  # it holds other amounts now; its status stays
    RESIZE_REFUSED = "RESIZE_REFUSED"  # its host did not change what it holds; its status stays
    RENAMED = "RENAMED"  # given another name; its status stays
    IDLE_WARNED = "IDLE_WARNED"  # idle by a rule: its owner was warned that it ends; its status stays
    SNOOZED = "SNOOZED"  # its end as an idle session was put off; its status stays
    PARKED = "PARKED"  # put aside: its container is saved, and what it held is free for others
    RESUMED = "RESUMED"  # back in the queue for the host that saved it
    RESUME_FAILED = "RESUME_FAILED"  # its host did not start it again; parked as before
    PARK_TIMEOUT = "PARK_TIMEOUT"  # parked for longer than the owner's policy allows, or its host is kept
    FILES_LOST = "FILES_LOST"  # its host no longer has what was saved of it
    USER_REQUEST = "USER_REQUEST"  # ended by its owner
    ADMIN_REQUEST = "ADMIN_REQUEST"  # ended by a superadmin, or by a manager of its project
    IDLE = "IDLE"  # idle by a rule for longer than its owner was given
    LIFETIME = "LIFETIME"  # reached the lifetime limit of its owner's policy
    TIME_LIMIT = "TIME_LIMIT"  # reached the time limit that its owner set
    PENDING_TIMEOUT = "PENDING_TIMEOUT"  # waited for longer than its resource group allows
    DEPENDENCY_FAILED = "DEPENDENCY_FAILED"  # what it waited for of another session or array can never come
    CONTAINER_EXITED = "CONTAINER_EXITED"  # its main process ended by itself
    OUT_OF_MEMORY = "OUT_OF_MEMORY"  # the kernel killed it at its memory limit
    DISK_LIMIT = "DISK_LIMIT"  # it has written more to its host's disk than its policy or the disk allows
    SHARED_LIMIT = "SHARED_LIMIT"  # it holds most of what the kernel limits for all sessions of its host together
    CONTAINER_LOST = "CONTAINER_LOST"  # its container was removed by something else than the platform
    ENFORCEMENT_FAILED = "ENFORCEMENT_FAILED"  # its share of the GPU could not be enforced
    GPU_LIMIT_EXCEEDED = "GPU_LIMIT_EXCEEDED"  # the watchdog found more GPU memory in use than it holds
    GPU_TIME_EXCEEDED = "GPU_TIME_EXCEEDED"  # the watchdog found it taking more of a GPU's time than it holds
    HOOK_BYPASSED = "HOOK_BYPASSED"  # the watchdog found a process of it on the GPU without the hook
    MOUNT_FAILED = "MOUNT_FAILED"  # a folder that it mounts is not there, or not for its owner any more
    START_FAILED = "START_FAILED"  # the engine refused the container
    IMAGE_UNAVAILABLE = "IMAGE_UNAVAILABLE"  # neither on the host nor to be pulled
    START_TIMEOUT = "START_TIMEOUT"  # not running within the deadline
    PREEMPTED = "PREEMPTED"  # ended for another session, as it is preemptible; as an event, the status stays
    REQUEUED = "REQUEUED"  # a superadmin returned it to the queue, where it is, or will be once it has stopped
    HOST_DRAINED = "HOST_DRAINED"  # its host is being taken out of service; as an event, the status stays
    DEPLOYMENT = "DEPLOYMENT"  # its deployment has ended, wants fewer replicas, or replaces this one
    CLUSTER_ENDED = "CLUSTER_ENDED"  # another member of its cluster has ended
    CLUSTER_RETURNED = "CLUSTER_RETURNED"  # another member of its cluster did not start or failed; back in the queue
    HOST_LOST = "HOST_LOST"  # its host was silent for longer than the group's grace period


class Kind(StrEnum):
    """How a session ends."""

    INTERACTIVE = "interactive"  # runs until it is ended
    BATCH = "batch"  # runs a command and ends with it
    REPLICA = "replica"  # runs the server of a deployment, which replaces it when it ends


class DependencyKind(StrEnum):
    """What a session waits for of another one; the names are those of Slurm."""

    AFTER = "after"  # it has started
    AFTER_OK = "after_ok"  # it has ended as it should
    AFTER_NOT_OK = "after_not_ok"  # it has ended otherwise
    AFTER_ANY = "after_any"  # it has ended


class DependencyState(StrEnum):
    """What became of what a session waits for."""

    WAITING = "waiting"
    MET = "met"
    IMPOSSIBLE = "impossible"  # the session is cancelled


class Result(StrEnum):
    """The result of a batch session's command; "" until it has ended."""

    SUCCESS = "SUCCESS"  # it ended with exit code 0
    FAILURE = "FAILURE"  # anything else


NEXT: Final[dict[Status, frozenset[Status]]] = {
    Status.PENDING: frozenset({Status.SCHEDULED, Status.CANCELLED, Status.PARKED}),
    Status.SCHEDULED: frozenset({Status.PENDING, Status.PREPARING, Status.CANCELLED}),
    Status.PREPARING: frozenset({Status.PENDING, Status.RUNNING, Status.TERMINATING, Status.PARKED, Status.ERROR}),
    Status.RUNNING: frozenset({Status.TERMINATING, Status.TERMINATED, Status.ERROR}),
    Status.TERMINATING: frozenset({Status.TERMINATED, Status.ERROR, Status.PENDING, Status.PARKED}),
    Status.PARKED: frozenset({Status.PENDING, Status.TERMINATED}),
    Status.TERMINATED: frozenset(),
    Status.CANCELLED: frozenset(),
    Status.ERROR: frozenset(),
}

FINAL: Final = frozenset(status for status, following in NEXT.items() if not following)
LIVE: Final = frozenset(NEXT) - FINAL
UNPLACED: Final = frozenset({Status.PENDING, Status.PARKED})
HOSTED: Final = LIVE - UNPLACED  # these, and only these, hold a lease
STARTING: Final = frozenset({Status.SCHEDULED, Status.PREPARING})
AT_WORK: Final = HOSTED - {Status.TERMINATING}
IN_CONTAINER: Final = frozenset({Status.PREPARING, Status.RUNNING, Status.TERMINATING})  # the host has begun

# How far the members of a cluster have come: as a whole it is where the last of them is, and ended when all have.
PROGRESS: Final = tuple(status for status in Status if status in LIVE)


class Tab(StrEnum):
    """The three lists of the session page."""

    RUNNING = "running"  # live sessions, pending ones included
    FINISHED = "finished"  # ended as requested
    OTHERS = "others"  # ended by a fault


TABS: Final[dict[Tab, frozenset[Status]]] = {
    Tab.RUNNING: LIVE,
    Tab.FINISHED: frozenset({Status.TERMINATED, Status.CANCELLED}),
    Tab.OTHERS: frozenset({Status.ERROR}),
}


def sources(target: Status) -> frozenset[Status]:
    """Return the states with a transition to `target`."""
    return frozenset(status for status, following in NEXT.items() if target in following)


def whole_of(statuses: Iterable[str]) -> str:
    """Return the status of a cluster by those of its members; where all have ended, that of the first."""
    return min(statuses, key=lambda status: PROGRESS.index(Status(status)) if status in PROGRESS else len(PROGRESS))


def result_of(kind: str, target: Status, reason: Reason) -> str:
    """Return the result of a session of `kind` that ends in `target` for `reason`; "" for interactive ones."""
    if kind != Kind.BATCH:
        return ""
    is_done = target == Status.TERMINATED and reason == Reason.CONTAINER_EXITED
    return (Result.SUCCESS if is_done else Result.FAILURE).value
