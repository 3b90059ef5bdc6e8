"""What Slurm says, in words for those who wait and for administrators. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

from resources.amounts.units import MIB
from resources.elastic.providers import HostShape, ProvidedState

_P, _R = ProvidedState.PENDING, ProvidedState.RUNNING
STATES: Final = {  # all others are of jobs that ended otherwise than planned, or never ran
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"), _P),
    **dict.fromkeys(("RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT", "COMPLETING"), _R),
    "COMPLETED": ProvidedState.ENDED,
}
OF_STATES: Final = {
    "BOOT_FAIL": "Its node did not boot.",
    "CANCELLED": "Its Slurm job was cancelled.",
    "CONFIGURING": "Its node is booting.",
    "DEADLINE": "Its Slurm job had no time left before its deadline.",
    "FAILED": "Its pilot failed; the log of the Slurm job says why.",
    "NODE_FAIL": "Its node failed.",
    "OUT_OF_MEMORY": "Its Slurm job used more memory than it was given.",
    "PREEMPTED": "Its Slurm job was preempted by another one.",
    "SUSPENDED": "Its Slurm job is suspended.",
    "TIMEOUT": "Its Slurm job reached its time limit.",
}
OF_REASONS: Final = (  # beginnings of the reasons of pending jobs, the first that fits
    ("Resources", "Waits in Slurm for a node with enough free resources."),
    ("Priority", "Waits in Slurm behind jobs of higher priority."),
    ("BeginTime", "Waits in Slurm until its begin time."),
    ("Dependency", "Waits in Slurm for another job of its name to end."),
    ("JobHeld", "Its Slurm job is held."),
    ("JobArray", "Waits in Slurm at the limit on running jobs."),
    ("BadConstraints", "No node of the Slurm cluster has what its job asks for."),
    ("PartitionTimeLimit", "Its time limit is longer than its Slurm partition allows."),
    ("PartitionNodeLimit", "It asks for more than its Slurm partition has."),
    ("PartitionConfig", "It asks for more than its Slurm partition has."),
    ("PartitionDown", "Its Slurm partition is down."),
    ("PartitionInactive", "Its Slurm partition is inactive."),
    ("AccountNotAllowed", "Its account may not use its Slurm partition."),
    ("InvalidAccount", "Its Slurm account is not valid."),
    ("InvalidQOS", "Its Slurm QOS is not valid."),
    ("Licenses", "Waits in Slurm for a license."),
    ("Reservation", "Waits in Slurm for its reservation."),
    ("ReqNodeNotAvail", "Waits in Slurm for a node that is not available."),
    ("Nodes_required_for_job_are_DOWN", "The nodes of Slurm that could run it are down, drained or reserved."),
    ("QOS", "Waits in Slurm at a limit of its QOS."),
    ("Assoc", "Waits in Slurm at a limit of its account or user."),
    ("MaxSubmit", "Waits in Slurm at a limit of its account or user."),
)


def of_job(state: str, reason: str) -> str:
    """Return why the job of this state does not run; "" where it does, or ended as planned."""
    if state != "PENDING":
        return OF_STATES.get(state, "" if state in STATES else f"Slurm says that its job is {state}.")
    if reason == "None":
        return "Waits in Slurm to be considered."
    return next((words for begin, words in OF_REASONS if reason.startswith(begin)), f"Waits in Slurm: {reason}.")


def of_error(text: str, asked: Mapping[str, Any], shape: HostShape) -> str:
    """Return what a command of Slurm's, or what it is run by, said of its failure; the last line where we know none."""
    partition, account, qos = asked["partition"], asked["account"] or "(default)", asked["qos"] or "(default)"
    memory, gpus = shape.memory_bytes // MIB, f"{shape.gpu_count} {shape.gpu_kind or asked['gres']}"
    errors = (  # patterns in what the commands write, the first that fits
        ("invalid partition", f"Slurm has no partition {partition} for the platform's user."),
        (
            "invalid account",
            f"Slurm lets the platform's user book nothing on account {account} in partition {partition}.",
        ),
        ("invalid qos", f"Slurm does not give the platform's user the QOS {qos}."),
        (
            "submitjob|job submit limit",
            "Slurm takes no more jobs of the platform's user for now: too many are submitted.",
        ),
        ("invalid feature", f"No node of Slurm has the feature {asked['constraint']}."),
        ("invalid generic resource|invalid gres", f"Slurm has no generic resource {asked['gres']}."),
        (
            "node configuration is not available|more processors requested",
            f"No node of partition {partition} has {shape.cpus} CPUs, {memory} MiB of memory and {gpus}.",
        ),
        (
            "unable to contact slurm controller|connection refused|zero bytes|timed out on send|transport endpoint"
            "|slurm_load_jobs|backup controller",
            "Slurm's controller does not answer.",
        ),
        ("slurm temporarily unable to accept job", "Slurm takes no jobs at present."),
    )
    for pattern, words in errors:
        if re.search(pattern, text, re.IGNORECASE):
            return words
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it does not say why")
    return f"Slurm could not be asked, or refused: {last}"
