"""The operations of the API on arrays as values, without I/O; see `operations`."""

from typing import Any

from gpuplatform_client.http.api_requests import (
    FIRST_PAGE,
    ApiOperation,
    ResultPage,
    body_of,
    idempotency_key,
    one,
    page,
    path_part,
    text,
)
from gpuplatform_client.models.arrays import ArrayInfo, ArraySpec, ArrayTaskInfo


def arrays(**query: str) -> ApiOperation[ResultPage[ArrayInfo]]:
    """Yield arrays, newest first; `name`, `owner`, `project` and `ended` ("true", "false") select."""
    return ApiOperation("GET", "arrays/", page(ArrayInfo), FIRST_PAGE | query)


def array(array_id: str) -> ApiOperation[ArrayInfo]:
    """Return an array."""
    return ApiOperation("GET", _path(array_id), one(ArrayInfo))


def submit_array(spec: ArraySpec) -> ApiOperation[ArrayInfo]:
    """Submit an array and return it; repeated, the request makes nothing twice."""
    return ApiOperation("POST", "arrays/", one(ArrayInfo), body=body_of(spec), headers=idempotency_key())


def change_array(array_id: str, **changes: Any) -> ApiOperation[ArrayInfo]:
    """Change `name` and `max_parallel` (None: no limit)."""
    return ApiOperation("PATCH", _path(array_id), one(ArrayInfo), body=changes)


def array_tasks(array_id: str, **query: str) -> ApiOperation[ResultPage[ArrayTaskInfo]]:
    """Yield the tasks of an array; `state` and `parameter` ("lr=0.1") select, `order` sorts."""
    return ApiOperation("GET", _path(array_id, "tasks/"), page(ArrayTaskInfo), FIRST_PAGE | query)


def array_task(array_id: str, index: int) -> ApiOperation[ArrayTaskInfo]:
    """Return a task of an array."""
    return ApiOperation("GET", _path(array_id, f"tasks/{index}/"), one(ArrayTaskInfo))


def array_task_logs(array_id: str, index: int, tail: int = 500, *, previous: bool = False) -> ApiOperation[str]:
    """Return the last lines of the output of a task, or of its attempt before."""
    query = {"tail": tail} | ({"previous": "true"} if previous else {})
    return ApiOperation("GET", _path(array_id, f"tasks/{index}/logs/"), text, query)


def cancel_array(array_id: str, tasks: str | None = None) -> ApiOperation[ArrayInfo]:
    """Cancel tasks, such as "1-500"; None: all."""
    return _changed(array_id, "cancel/", tasks)


def retry_array(array_id: str, tasks: str | None = None) -> ApiOperation[ArrayInfo]:
    """Have tasks wait again that failed or were cancelled; None: all that failed."""
    return _changed(array_id, "retry/", tasks)


def hold_array(array_id: str) -> ApiOperation[ArrayInfo]:
    """Start no more tasks of an array; those that have a session go on."""
    return _changed(array_id, "hold/")


def release_array(array_id: str) -> ApiOperation[ArrayInfo]:
    """Start the tasks of a held array again."""
    return _changed(array_id, "release/")


def _path(array_id: str, rest: str = "") -> str:
    return f"arrays/{path_part(array_id)}/{rest}"


def _changed(array_id: str, change: str, tasks: str | None = None) -> ApiOperation[ArrayInfo]:
    body = None if tasks is None else {"tasks": tasks}
    return ApiOperation("POST", _path(array_id, change), one(ArrayInfo), body=body, headers=idempotency_key())
