"""Texts of reasons, for events without a detail of their own. Pure."""

from typing import Final

from sessions.lifecycle import Reason

REASON_WORDS: Final[dict[Reason, str]] = {
    Reason.SUBMITTED: "Submitted; waiting for the scheduler",
    Reason.NO_HOST: "Waiting: no host of the group is ready",
    Reason.NO_CAPACITY: "Waiting: every host that fits is in use",
    Reason.NO_SUITABLE_HOST: "Waiting: no ready host of the group can run its image",
    Reason.NO_STORAGE: "Waiting: no ready host of the group has the storage of its folders",
    Reason.USER_LIMIT: "Waiting: your policy allows no more at once",
    Reason.PROJECT_LIMIT: "Waiting: your project may hold no more at once",
    Reason.RESERVED: "Waiting: the free resources are reserved for a session ahead of it",
    Reason.START_TIME: "Waiting for its start time",
    Reason.DEPENDENCY: "Waiting for what it depends on",
    Reason.PREEMPTION: "Waiting: preemptible sessions end for it",
    Reason.PLACEMENT_REFUSED: "Waiting: the database refused its placement, which is tried again in some minutes",
    Reason.ASSIGNED: "Placed on a host",
    Reason.CLAIM_TIMEOUT: "The host did not respond; back in the queue",
    Reason.HOST_FAULT: "The host could not start it; back in the queue",
    Reason.CLAIMED: "The host prepares the container",
    Reason.STARTED: "The container runs",
    Reason.CONVERSION: "Saving it as an image",
    Reason.EXTENDED: "Its end was put off",
    Reason.ENTERED: "Entered by somebody other than its owner",
    Reason.IMAGE_PULLED: "The image is on the host",
    Reason.PROCESS_OUT_OF_MEMORY: "Out of memory: a process was killed, and the session goes on",
    Reason.DISK_NEARLY_FULL: "It has written almost as much as its policy allows",
    Reason.OUTPUT_SLOWED: "It writes to its standard output faster than its host copies",
    Reason.DEVICE_HEALTH: "The health of a device that it holds has changed",
    Reason.RESIZING: "It is being resized",
    Reason.RESIZED: "It was resized",
    Reason.RESIZE_REFUSED: "It was not resized",
    Reason.RENAMED: "Renamed",
    Reason.IDLE_WARNED: "It is idle and is about to end",
    Reason.SNOOZED: "Its end as an idle session was put off",
    Reason.PARKED: "Parked: its files are kept, and what it held is free",
    Reason.RESUMED: "Resumed; waiting for its host",
    Reason.RESUME_FAILED: "Its host did not start it again; parked as before",
    Reason.PARK_TIMEOUT: "Parked for as long as it may be",
    Reason.FILES_LOST: "Its host no longer has the files that were saved of it",
    Reason.USER_REQUEST: "Ended by its owner",
    Reason.ADMIN_REQUEST: "Ended by a superadmin",
    Reason.IDLE: "It was idle for too long",
    Reason.LIFETIME: "Reached the lifetime limit of the policy",
    Reason.TIME_LIMIT: "Reached its time limit",
    Reason.PENDING_TIMEOUT: "Waited for longer than its resource group allows",
    Reason.DEPENDENCY_FAILED: "What it waited for of another session or array cannot come any more",
    Reason.CONTAINER_EXITED: "The main process ended",
    Reason.OUT_OF_MEMORY: "Out of memory: the session used more than it requested",
    Reason.DISK_LIMIT: "It wrote more to its host's disk than it may",
    Reason.SHARED_LIMIT: "It holds most of what all sessions of its host share",
    Reason.CONTAINER_LOST: "Something else than the platform removed the container",
    Reason.ENFORCEMENT_FAILED: "Its share of the GPU could not be enforced",
    Reason.GPU_LIMIT_EXCEEDED: "It used more GPU memory than its share",
    Reason.GPU_TIME_EXCEEDED: "It took more of the GPU's time than its share",
    Reason.HOOK_BYPASSED: "One of its processes used the GPU without the limits",
    Reason.MOUNT_FAILED: "A folder could not be mounted",
    Reason.START_FAILED: "The container could not be started",
    Reason.IMAGE_UNAVAILABLE: "The image is not on the host and cannot be pulled",
    Reason.START_TIMEOUT: "The container was not running in time",
    Reason.PREEMPTED: "Ended for another session, as it is preemptible",
    Reason.REQUEUED: "Returned to the queue by an administrator",
    Reason.HOST_DRAINED: "Its host is being taken out of service",
    Reason.DEPLOYMENT: "Ended by its deployment",
    Reason.CLUSTER_ENDED: "Another member of the cluster ended",
    Reason.CLUSTER_RETURNED: "Waiting again with its cluster",
    Reason.HOST_LOST: "The host was unreachable for too long",
}

_WORDS: Final[dict[str, str]] = {reason.value: words for reason, words in REASON_WORDS.items()}


def reason_text(reason: str, detail: str) -> str:
    """Return the text to show, in English: the detail, else the text of the reason, else its name."""
    return detail or _WORDS.get(reason, reason)
