"""Whether the installation works: its database and Redis respond, its scheduler decides, and there is a host."""

from typing import Final

from django.conf import settings
from django.db import Error, connection
from django.utils import timezone
from redis.exceptions import RedisError

from operations.health.ages import NEVER, pass_ages, service_ages
from operations.health.checks import Probe, database_responds, redis_responds
from resources.heartbeats import HeartbeatName
from resources.models import Host, HostStatus

OK: Final = "ok"
UNREACHABLE: Final = "unreachable"
MAX_SECONDS: Final = 60.0  # since a sign of life


def parts() -> dict[str, str]:
    """Return {part: "ok", or what is wrong with it}."""
    found = {
        "database": OK if database_responds() else UNREACHABLE,
        "redis": OK if redis_responds() else UNREACHABLE,
    }
    if set(found.values()) != {OK}:
        return found  # which know of the others
    try:
        return found | _services() | {"hosts": _hosts()}
    except Error:
        return found | {"database": UNREACHABLE}
    except RedisError:
        return found | {"redis": UNREACHABLE}
    finally:
        connection.close()  # this thread's own, which nothing else would end


def _services() -> dict[str, str]:
    ages = service_ages()
    names = (
        HeartbeatName.SCHEDULER,
        HeartbeatName.BEAT,
        *((HeartbeatName.SSH,) if settings.COMPUTE_SSH_ADDRESS else ()),
    )
    found: dict[str, str] = {name: _heard(ages.get(name, NEVER)) for name in names}
    return found | {"passes": _heard(max(pass_ages().values(), default=0.0))}


def _heard(age_seconds: float) -> str:
    if age_seconds <= MAX_SECONDS:
        return OK
    return "never heard of" if age_seconds == NEVER else f"last heard of {age_seconds:.0f} s ago"


def _hosts() -> str:
    beats = list(Host.objects.filter(status=HostStatus.READY).values_list("heartbeat_at", flat=True))
    if not beats:
        return "none is ready"
    return _heard((timezone.now() - max(beats)).total_seconds())


readiness: Final = Probe(parts, {"checks": "not done in time"})
