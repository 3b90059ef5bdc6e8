"""For how long services have shown no sign of life."""

from typing import Final

from resources import heartbeats
from resources.heartbeats import HeartbeatName
from resources.models import ResourceGroup

NEVER: Final = float("inf")


def service_ages() -> dict[str, float]:
    """Return the seconds since the heartbeat of each service: infinite for one that was never heard of but must run."""
    found = heartbeats.ages(HeartbeatName)
    return dict.fromkeys((HeartbeatName.SCHEDULER, HeartbeatName.BEAT), NEVER) | found


def pass_ages() -> dict[str, float]:
    """Return the seconds since the last scheduling pass over each resource group, infinite without any; by name."""
    groups = {heartbeats.pass_of(pk): name for pk, name in ResourceGroup.objects.values_list("pk", "name")}
    found = heartbeats.ages(groups)
    return {name: found.get(key, NEVER) for key, name in groups.items()}
