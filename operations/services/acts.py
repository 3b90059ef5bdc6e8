"""Acts on services, which are in the audit log."""

import logging
from threading import Thread
from typing import Final

from django.db import Error as DatabaseProblem
from django.db import connection
from django.utils.translation import gettext as _

from accounts import audit
from accounts.models import User
from operations.services.base import ServiceAction, ServiceControlError, ServiceManager
from resources.models import Installation

WAIT_SECONDS: Final = 3.0  # for an act; a restart of the web server cannot be waited for by the web server
# Without one of these there is neither page nor API by which to start it again.
NEEDED_BY_PAGES: Final = frozenset({"web", "postgresql", "redis"})

logger = logging.getLogger(__name__)


def act(manager: ServiceManager, action: ServiceAction, name: str, *, actor: User | None) -> None:
    """Start, stop or restart a service, and record that. Raises ServiceControlError."""
    record(manager, action, name, actor=actor)
    if not connection.in_atomic_block:
        connection.close()  # it may be PostgreSQL that is restarted, and what comes next is recorded too
    manager.act(action, name)


def refusal(action: ServiceAction, name: str) -> str:
    """Return why a page or the API may not carry this out, or ""."""
    if action == ServiceAction.STOP and name in NEEDED_BY_PAGES:
        return _("Pages and API need that service: stop it with `manage.py services`.")
    return ""


def carry_out(manager: ServiceManager, action: ServiceAction, name: str, *, actor: User) -> bool:
    """Act on a service of this machine; return False where that goes on. Raises ServiceControlError."""
    problems: list[ServiceControlError] = []

    def act() -> None:
        try:
            manager.act(action, name)
        except ServiceControlError as error:
            problems.append(error)

    record(manager, action, name, actor=actor)
    thread = Thread(target=act, name=f"{action.value}-{name}", daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS)
    if problems:
        raise problems[0]
    return not thread.is_alive()


def record(manager: ServiceManager, action: ServiceAction, name: str, *, actor: User | None) -> None:
    """Record an act before it is carried out, since it may end the database, or this process.

    Where the database does not respond it is in the log alone: the act may be the way to have it respond again.
    Raises ServiceControlError where there is no such service.
    """
    if name not in {state.name for state in manager.states()}:
        raise ServiceControlError(_("There is no service %(name)s here.") % {"name": name})
    logger.warning("service %s: %s by %s", name, action.value, actor or "command")
    try:
        target = Installation.objects.get(singleton=True)
        audit.record(actor, f"{action.value}_service", target, {"service": (None, name)})
    except (DatabaseProblem, Installation.DoesNotExist) as error:
        logger.warning("service %s: its %s is not in the audit log: %s", name, action.value, error)
