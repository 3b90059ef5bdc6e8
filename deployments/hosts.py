"""Host names of deployments: which ones may be given, and the command that gives them."""

import re
from collections.abc import Sequence
from typing import Final

from django.conf import settings
from django.db import IntegrityError, transaction

from accounts import audit
from accounts.models import User
from deployments import events
from deployments.models import MAX_HOST_NAME_LENGTH, Deployment, DeploymentHost
from proxy.site import Site
from resources import clock
from sessions.access.app_addresses import site
from sessions.errors import GENERAL, RejectedError

MAX_HOSTS: Final = 10  # of one deployment
_LABEL: Final = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME: Final = re.compile(rf"(?:{_LABEL}\.)+(?!\d+\Z){_LABEL}")  # the last label of an IPv4 address is a number


def set_hosts(deployment: Deployment, names: Sequence[str], *, actor: User) -> Deployment:
    """Have exactly these host names lead to the deployment, beside its own address; those removed end at once.

    Only superadmins may: whoever holds a name shows pages under it. Raises RejectedError at `hosts`.
    """
    wanted = [name.strip().lower() for name in names]
    try:
        with transaction.atomic():
            rows = Deployment.objects.select_for_update(no_key=True, of=("self",)).select_related("owner")
            row = rows.get(pk=deployment.pk)
            check(row, wanted)
            _replace(row, wanted, actor)
    except IntegrityError:  # another deployment has got it meanwhile
        raise RejectedError({"hosts": _taken(wanted, deployment) or "Try again."}) from None
    return deployment


def names_of(deployment: Deployment) -> list[str]:
    """Return the host names that lead to the deployment."""
    return list(deployment.hosts.values_list("name", flat=True))


def check(deployment: Deployment, names: Sequence[str]) -> None:
    """Raise RejectedError where `set_hosts` would, now."""
    if deployment.ended_at is not None:
        raise RejectedError({GENERAL: "This deployment has ended."})
    if error := names_error(names, site()) or _taken(names, deployment):
        raise RejectedError({"hosts": error})


def names_error(names: Sequence[str], place: Site) -> str:
    """Return what is wrong with these names in lower case, "" if they may be host names of a deployment."""
    if len(names) > MAX_HOSTS:
        return f"A deployment has at most {MAX_HOSTS} host names."
    if len(set(names)) < len(names):
        return "Write each host name once."
    return next(filter(None, (_name_error(name, place) for name in names)), "")


def _name_error(name: str, place: Site) -> str:
    if len(name) > MAX_HOST_NAME_LENGTH or not _NAME.fullmatch(name):
        return f"{name[:80]} is no host name: write one such as models.example.org, without scheme, port and path."
    exact = [host.lower() for host in settings.ALLOWED_HOSTS if not host.startswith((".", "*"))]
    own = [place.host_name.lower(), place.apps_domain.lower(), *exact]
    if any(own_name and (name == own_name or own_name.endswith(f".{name}")) for own_name in own):
        return f"{name} is the platform's own, or above it."
    if place.is_of_apps(name.encode()):
        return f"{name} is among the names of apps, which the platform gives."
    return ""


def _replace(row: Deployment, wanted: Sequence[str], actor: User) -> None:
    before = names_of(row)
    if set(before) == set(wanted):
        return
    row.hosts.exclude(name__in=wanted).delete()
    added = [name for name in wanted if name not in before]
    DeploymentHost.objects.bulk_create(
        DeploymentHost(name=name, deployment=row, created_by=actor, created_at=clock.now()) for name in added
    )
    names = ", ".join(sorted(wanted))
    events.record(row, f"Its host names are {names}." if wanted else "Removed all host names.", actor)
    if actor != row.owner:
        changed = {"hosts": (", ".join(before) or None, names or None)}
        audit.record(actor, "set host names", row, changed)
    events.changed(row.pk)


def _taken(names: Sequence[str], deployment: Deployment) -> str:
    other = DeploymentHost.objects.filter(name__in=names).exclude(deployment=deployment).first()
    return f"{other.name} leads to the deployment {other.deployment_id} already." if other else ""
