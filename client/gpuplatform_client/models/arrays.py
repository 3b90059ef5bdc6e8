"""Arrays and their tasks as the API returns and takes them."""

from datetime import datetime
from typing import Any

from gpuplatform_client.models.api_model import ApiModel
from gpuplatform_client.models.platform import LaunchSpec


class ArraySpec(LaunchSpec):
    """A request for an array: that of a session with a command, and its tasks.

    `tasks` is a text such as "1-1000%50", or one of {"grid": {"lr": [0.1, 0.01]}}, {"random": {"count": 20,
    "parameters": {"lr": {"loguniform": [0.001, 0.1]}}}} and {"list": [{"lr": 0.1}]}.
    """

    tasks: str | dict[str, Any]
    max_parallel: int | None = None
    retries: int | None = None


class TaskCounts(ApiModel):
    """How many tasks are in each state."""

    waiting: int = 0
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0


class ArrayInfo(ApiModel):
    """An array."""

    id: str
    name: str
    owner: str
    project: str | None = None
    state: str
    reason: str = ""
    size: int
    first_index: int
    last_index: int
    counts: TaskCounts
    max_parallel: int | None = None
    retries: int = 0
    space: Any = None
    request: Any = None
    created_at: datetime
    ended_at: datetime | None = None

    @property
    def is_over(self) -> bool:
        """True once all tasks have ended."""
        return self.ended_at is not None


class ArrayTaskInfo(ApiModel):
    """A task of an array."""

    index: int
    parameters: dict[str, Any] = {}
    state: str
    exit_code: int | None = None
    reason: str = ""
    attempts: int = 0
    metrics: dict[str, float] = {}
    session: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
