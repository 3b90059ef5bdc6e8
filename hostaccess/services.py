"""Add a host, let it join, and revoke it."""

import logging
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from django.conf import settings
from django.db import connection, transaction
from django.dispatch import Signal
from django.utils import timezone

from hostaccess import keys, redis_users, roles
from hostaccess.host_file import is_this_machine
from hostaccess.models import HostAccess
from messaging import redis_url
from proxy.authorization.signing import digest
from resources.accelerators.kinds import NVIDIA
from resources.models import Host, ResourceGroup
from resources.registries.credentials import registry_keys

logger = logging.getLogger(__name__)

TOKEN_LIFETIME: Final = timedelta(hours=1)
MAX_PEERS: Final = 3  # that it is told
REVOKED: Final = "Its credentials were revoked"
host_revoked: Final = Signal()  # with `name`; the platform has no way to the host from now on
# Options of DATABASE_URL that hosts need too.
DATABASE_OPTIONS: Final = ("host", "sslmode", "sslrootcert", "channel_binding", "target_session_attrs")
SHARED: Final = ("COMPUTE_PUBLIC_URL", "COMPUTE_APPS_DOMAIN", "COMPUTE_SSH_ADDRESS")  # settings, equal on every host


class JoinRefusedError(Exception):
    """The token is none, was used, or has expired."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """A token to join with, which is stored nowhere."""

    token: str
    expires_at: Any


def add(
    name: str, group_name: str, lifetime: timedelta = TOKEN_LIFETIME, token: str = "", accelerator: str = NVIDIA
) -> Invitation:
    """Let a host of this name join once, into this group, and return the token that it takes, good for `lifetime`.

    A group that there is not is made, for this kind of accelerators.

    The token is new unless it is given: who asks again for the same host must not change what it was sent.
    A host that has joined keeps its credentials until it joins again. Raises ValidationError,
    roles.RolesUnavailableError.
    """
    roles.ensure_grants()
    token = token or secrets.token_urlsafe(32)
    with transaction.atomic():
        group, _ = ResourceGroup.objects.get_or_create(name=group_name, defaults={"accelerator": accelerator})
        access = HostAccess.objects.filter(name=name).first() or HostAccess(name=name, role=secrets.token_hex(8))
        access.group, access.token_digest = group, digest(token)
        access.token_expires_at = timezone.now() + lifetime
        Host._meta.get_field("name").clean(name, None)
        access.full_clean()
        access.save()
        HostAccess.objects.filter(pk=access.pk).update(role=roles.role_name(access.pk))
    return Invitation(token, access.token_expires_at)


def join(token: str) -> dict[str, str]:
    """Exchange a token for the settings with which its host works, credentials included; each token once.

    Raises JoinRefusedError, roles.RolesUnavailableError, redis_users.RedisUsersUnavailableError.
    """
    password, key = secrets.token_urlsafe(32), secrets.token_hex(32)
    with transaction.atomic():
        waiting = HostAccess.objects.select_for_update().select_related("group")
        access = waiting.filter(token_digest=digest(token), token_expires_at__gt=timezone.now()).first()
        if access is None:
            raise JoinRefusedError("There is no such token, or it was used, or it has expired. Ask for another one.")
        roles.make_role(access.role, password)
        access.token_digest, access.token_expires_at, access.joined_at = "", None, timezone.now()
        access.redis_digest, access.encrypted_key = digest(password), keys.encrypted(key)
        access.save()
        redis_users.set_users(access)
    logger.info("host %s: has joined", access.name)
    return {
        "COMPUTE_HOST_NAME": access.name,
        "COMPUTE_HOST_GROUP": access.group.name,
        "COMPUTE_HOST_KEY": key,
        "COMPUTE_REGISTRY_KEYS": ",".join(registry_keys()),
        "DATABASE_URL": _database_url(access.role, password),
        "REDIS_URL": _redis_url(access.role, password),
        "COMPUTE_REDIS_SEND_URL": _redis_url(f"{access.role}{redis_users.SENDER}", password),
        "COMPUTE_SESSION_SUBNETS": ",".join(settings.COMPUTE_SESSION_SUBNETS),
        "COMPUTE_CLUSTER_PEERS": ",".join(_peers(access)),
        **{name: str(getattr(settings, name)) for name in SHARED},
    }


def revoke(name: str) -> bool:
    """Take its credentials from a host, end its connections, and place nothing on it; False if it has none.

    What users have open in its sessions is cut, and nothing of them can be opened; they end as those of a lost host do.
    Safe to repeat after a failure. Raises roles.RolesUnavailableError, redis_users.RedisUsersUnavailableError.
    """
    access = HostAccess.objects.filter(name=name).first()
    if access is None:
        return False
    HostAccess.objects.filter(pk=access.pk).update(token_digest="", redis_digest="")  # what is repeated makes no user
    Host.objects.filter(name=name).update(is_cordoned=True, cordon_reason=REVOKED, gateway_url="")
    host_revoked.send(Host, name=name)
    roles.drop_role(access.role)
    redis_users.drop_users(access.role)
    access.delete()
    logger.warning("host %s: its credentials were revoked", name)
    return True


def reach_problem() -> str:
    """Return why hosts on other machines cannot reach PostgreSQL or Redis by the settings; "" where they can."""
    servers = (
        ("PostgreSQL", "DATABASE_URL", "COMPUTE_HOSTS_DATABASE_ADDRESS", _database_url("name", "password")),
        ("Redis", "REDIS_URL", "COMPUTE_HOSTS_REDIS_ADDRESS", _redis_url("name", "password")),
    )
    texts = []
    for name, setting, address, url in servers:
        if _is_socket(url):
            texts.append(f"{name} listens on no network: set {setting}")
        elif _is_loopback(url):
            texts.append(f"{name} is at an address of this machine alone: set {address}")
    return "; ".join(texts)


def _peers(access: HostAccess) -> list[str]:
    """Return the addresses of some other hosts of its group, for networks of clusters."""
    others = Host.objects.filter(group=access.group).exclude(name=access.name).exclude(cluster_address="")
    return list(others.order_by("-heartbeat_at").values_list("cluster_address", flat=True)[:MAX_PEERS])


def _database_url(user: str, password: str) -> str:
    """Return the URL of the platform's database for another user, as hosts reach it."""
    own = connection.settings_dict
    options = {name: str(value) for name, value in own["OPTIONS"].items() if name in DATABASE_OPTIONS}
    address = settings.COMPUTE_HOSTS_DATABASE_ADDRESS
    if not address and str(own["HOST"]).startswith("/"):
        options["host"] = str(own["HOST"])
    elif not address:
        address = _addresses(str(own["HOST"]), str(own["PORT"]))
    if address:
        options.pop("host", None)
    query = f"?{urlencode(options)}" if options else ""
    return f"postgresql://{quote(user)}:{quote(password)}@{address}/{quote(str(own['NAME']))}{query}"


def _addresses(hosts: str, ports: str) -> str:
    """Return hosts and their ports, both separated by commas, as one list; a single port is that of all."""
    names, numbers = hosts.split(","), ports.split(",")
    numbers = numbers if len(numbers) == len(names) else numbers[:1] * len(names)
    return ",".join(f"{name}:{number}" if number else name for name, number in zip(names, numbers, strict=True))


def _redis_url(user: str, password: str) -> str:
    """Return the URL of the platform's Redis for another user, as hosts reach it."""
    return redis_url.url_for(settings.CHANNEL_REDIS_URL, user, password, settings.COMPUTE_HOSTS_REDIS_ADDRESS)


def _is_socket(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "unix" or not parts.hostname


def _is_loopback(url: str) -> bool:
    """Return whether any of the addresses of the URL means the machine that asks."""
    addresses = urlsplit(url).netloc.rpartition("@")[2].split(",")
    names = (urlsplit(f"//{address}").hostname or "" for address in addresses)
    return any(is_this_machine(name) for name in names)
