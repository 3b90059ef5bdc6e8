"""What users may be told of a session: the text that pages show and the API gives, held against its state."""

import re
from typing import Final

from sessions.lifecycle import FINAL, Reason, Status
from sessions.models import Session
from sessions.serializers import SessionSerializer

NOT_STARTED: Final = r"Not started in \d attempts, the last on host (?P<host>\S+)\. .+|(Image|The|A|Its) .+"
_MEMBER: Final = r"(?P<member>main1|sub\d+) of its cluster"
ENDS: Final = {  # what is said of an end, by its reason
    Reason.USER_REQUEST: r"(Ended|Cancelled) by (?P<actor>.+)\.",
    Reason.ADMIN_REQUEST: r"Ended by (?P<actor>.+)\.|Forced by (?P<forced_by>.+); its host did not respond\.",
    Reason.LIFETIME: r"It reached the maximum lifetime of its (owner's policy|resource group)\.",
    Reason.TIME_LIMIT: r"It reached its time limit\.|Its start took longer than its time limit\.",
    Reason.PENDING_TIMEOUT: r"It waited for longer than its resource groups? allows?\.",
    Reason.DEPENDENCY_FAILED: r".*\b(session|array)-.+",
    Reason.CONTAINER_EXITED: r"Its main process ended( with exit code (?P<code>\d+))?\.",
    Reason.OUT_OF_MEMORY: r"The session needed more memory than it had and was ended by the kernel\.",
    Reason.CONTAINER_LOST: r"Its container was removed outside the platform\.",
    Reason.START_FAILED: NOT_STARTED,
    Reason.IMAGE_UNAVAILABLE: NOT_STARTED,
    Reason.START_TIMEOUT: NOT_STARTED,
    Reason.PARK_TIMEOUT: r"It was parked for as long as its owner's policy allows\.|Its host .+ is not kept .+",
    Reason.FILES_LOST: r".*files.*",
    Reason.PREEMPTED: r".*(another session|others).*",
    Reason.HOST_DRAINED: r"Its host was taken out of service\.",
    Reason.CLUSTER_ENDED: rf"{_MEMBER} ended: (?P<cause>.+)|Another member of its cluster has succeeded\.",
    Reason.DEPLOYMENT: r"Its deployment (has ended|no longer needs it)\.|.+(fail|healthy|ended|memory|exit code).*",
    Reason.HOST_LOST: r"Host (?P<lost>\S+) did not come back\.",
}
WAITS: Final = frozenset(  # why a session waits, also after it has run
    {
        *(Reason.NO_HOST, Reason.NO_CAPACITY, Reason.NO_SUITABLE_HOST, Reason.USER_LIMIT, Reason.RESERVED),
        *(Reason.DEPENDENCY, Reason.PREEMPTION, Reason.PLACEMENT_REFUSED, Reason.CLAIM_TIMEOUT, Reason.HOST_FAULT),
        *(Reason.PREEMPTED, Reason.REQUEUED, Reason.CLUSTER_RETURNED, Reason.RESUMED, Reason.SUBMITTED),
    }
)
OVER: Final = re.compile(r"^(Ended by|Cancelled|It reached|It waited|Its main process ended|Host \S+ did not come)")
LIVELY: Final = re.compile(r"^(Running|Preparing|Waiting|Waits|Resumed|Submitted|Being)|waiting for another|is being")


def problem_of(row: Session, text: str) -> str:
    """Return what is wrong with what is said of a session whatever has happened to it; "" for nothing."""
    if not text or not SessionSerializer().get_detail(row):
        return "nothing is said"
    if re.search(r"\bNone\b|[{}<>]|Error\(|%s", text):
        return "it is no sentence"
    if row.status in FINAL:
        if LIVELY.search(text):
            return "it has ended"
        return "" if end_said(row, text) else "that is not said of such an end"
    if row.status in (Status.RUNNING, Status.PARKED, Status.PENDING) and OVER.search(text):
        return "it has not ended"
    if row.status == Status.PENDING and Reason(row.reason) not in WAITS:
        return "that is no reason to wait"
    return ""


def end_said(row: Session, text: str) -> re.Match[str] | None:
    """Return what a text names that is said of ends for this reason; None for another text."""
    return re.fullmatch(ENDS.get(Reason(row.reason), ".+"), text)
