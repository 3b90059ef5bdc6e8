"""Makers of arrays for tests: valid by default; keyword arguments replace any field."""

from types import SimpleNamespace
from typing import Any

from accounts.models import User
from arrays import reconciliation, services
from arrays.models import Array, ArrayTask
from arrays.serializers import ArrayRequestSerializer
from resources.models import Host, Image
from sessions.lifecycle import Reason, Status
from tests.factories import make_image, moved_to


def array_body(**overrides: Any) -> dict[str, Any]:
    """Return the API's body for an array of three tasks of 1 core and 1 GiB."""
    found = Image.objects.filter(reference="team/array:1").first() or make_image(reference="team/array:1")
    return {
        "name": "sweep",
        "image": found.reference,
        "command": "train",
        "cpu": 1,
        "memory": "1g",
        "tasks": "0-2",
    } | overrides


def make_array(owner: User, **overrides: Any) -> Array:
    """Return an array that has no sessions yet; some host must be there."""
    body = ArrayRequestSerializer(data=array_body(**overrides), context={"request": SimpleNamespace(user=owner)})
    body.is_valid(raise_exception=True)
    return services.submit(owner, body.array_request())


def advance(array: Array) -> Array:
    """Reconcile the array and return it as it is stored then."""
    reconciliation.reconcile(array.pk)
    array.refresh_from_db()
    return array


def task_of(array: Array, index: int) -> ArrayTask:
    """Return a task with its session."""
    return array.tasks.select_related("session").get(index=index)


def finish(task: ArrayTask, host: Host, exit_code: int = 0, log: str = "") -> None:
    """Have the session of the task run on the host and end with this exit code."""
    session = task.session
    assert session is not None
    session.refresh_from_db()
    moved_to(Status.RUNNING, session, host)
    target = Status.ERROR if exit_code else Status.TERMINATED
    fields = {"exit_code": exit_code, "log_tail": log}
    session.move_to(target, Reason.CONTAINER_EXITED, f"Exit code {exit_code}.", fields=fields)
