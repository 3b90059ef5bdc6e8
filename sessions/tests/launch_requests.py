"""Launch requests for tests, valid unless a field is replaced."""

from typing import Any

from accounts.models import User
from resources.amounts.units import GIB, MIB
from resources.models import Host
from sessions.errors import RejectedError
from sessions.launching.services import LaunchRequest, submit
from tests.factories import make_image


def make_launch_request(host: Host, **overrides: Any) -> LaunchRequest:
    """Return a request for one session of 1 core, 1 GiB and no GPU in the host's group."""
    fields: dict[str, Any] = {"resource_group": host.group, "cpu": 1, "memory": GIB, "shared_memory": 64 * MIB}
    fields |= overrides
    if "image" not in fields:
        fields["image"] = make_image()
    return LaunchRequest(**fields)


def rejection(owner: User, request: LaunchRequest) -> dict[str, str]:
    """Submit, and return {field: message} of the rejection; {} when it was accepted."""
    try:
        submit(owner, request)
    except RejectedError as error:
        return error.errors
    return {}
