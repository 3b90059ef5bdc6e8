"""Orders for the tests of submitting, valid unless a field is replaced."""

from typing import Any

from accounts.models import User
from resources.models import Host
from resources.units import GIB, MIB
from sessions.errors import RejectedError
from sessions.services import LaunchRequest, submit
from tests.factories import make_image


def make_order(host: Host, **overrides: Any) -> LaunchRequest:
    """Return an order of one session of 1 core, 1 GiB and no GPU in the host's group."""
    fields: dict[str, Any] = {"resource_group": host.group, "cpu": 1, "memory": GIB, "shared_memory": 64 * MIB}
    fields |= overrides
    if "image" not in fields:
        fields["image"] = make_image()
    return LaunchRequest(**fields)


def refusal(owner: User, order: LaunchRequest) -> dict[str, str]:
    """Submit, and return {field: message} of the refusal; {} when it was accepted."""
    try:
        submit(owner, order)
    except RejectedError as refused:
        return refused.errors
    return {}
