"""Authenticates SSH keys, and authorizes their owners for sessions, by the rows of the database."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from accounts.credentials.public_keys import PublicKey
from accounts.models import SshKey, User
from engine.engine import Engine
from folders.names import SFTP_LOGIN
from sessions.access.engine_address import HostUnreachableError, engine_of
from sessions.lifecycle import Status
from sessions.models import Session
from sessions.words import reason_text

MEMBER: Final = re.compile(r"(?P<name>.+)\.(main1|sub(?P<rank>[1-9]\d?))", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SshPrincipal:
    """The user whom a key authenticates, and the running session that the connection is for."""

    user_id: int
    key_id: int | None  # None: the session key
    session_key: str  # its public half; empty with any other key
    session_id: str
    owner_id: int
    container_id: str
    engine: Engine

    def __str__(self) -> str:
        """Return the principal as the audit log shows it."""
        how = f"key {self.key_id}" if self.key_id else "the session key"
        foreign = "" if self.owner_id == self.user_id else f", as superadmin, into what is user {self.owner_id}'s,"
        return f"user {self.user_id} with {how}{foreign}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPrincipal:
    """The user whom a key authenticates, and who comes for their data folders."""

    user_id: int
    key_id: int

    def __str__(self) -> str:
        """Return the principal as the audit log shows it."""
        return f"user {self.user_id} with key {self.key_id}"


Principal = SshPrincipal | DataPrincipal


@dataclass(frozen=True, slots=True)
class AccessRefusal:
    """The refusal of a session to a user whose key is known; the message is fit for that user."""

    message: str


def authenticate(name: str, key: PublicKey) -> Principal | AccessRefusal | None:
    """Return the principal of a key for the session of this id or name, or for data folders; None: unknown key."""
    own = SshKey.objects.select_related("owner").filter(fingerprint=key.fingerprint, owner__is_active=True).first()
    if own and name == SFTP_LOGIN:
        return DataPrincipal(user_id=own.owner_id, key_id=own.pk)
    if own:
        return _principal(own.owner, own, _session_for(own.owner, name), name)
    named = Session.objects.select_related("host", "owner").filter(Q(pk=name) | Q(name=name) | _is_member(name))
    session = named.filter(status=Status.RUNNING, ssh_public_key=key.text, owner__is_active=True).first()
    return _principal(session.owner, None, session, name) if session else None


def record_key_use(principal: Principal) -> None:
    """Write the time of the key's last use, for its owner to see."""
    if principal.key_id is not None:
        SshKey.objects.filter(pk=principal.key_id).update(last_used_at=timezone.now())


def still_authorized(principals: Iterable[Principal]) -> set[Principal]:
    """Return the principals whose account is active and whose key is valid, and whose visible session runs.

    A session of another host without a gateway, such as one whose credentials were revoked, is out of reach. Three
    queries for any number. Which data folders a user reaches, each operation looks up.
    """
    asked = set(principals)
    session_ids = {each.session_id for each in asked if isinstance(each, SshPrincipal)}
    reachable = Q(host__name=settings.COMPUTE_HOST_NAME) | ~Q(host__gateway_url="")
    running = Session.objects.filter(reachable, pk__in=session_ids, status=Status.RUNNING)
    sessions = {
        pk: (owner, session_key) for pk, owner, session_key in running.values_list("pk", "owner_id", "ssh_public_key")
    }
    users = User.objects.filter(pk__in={each.user_id for each in asked}, is_active=True)
    rights = dict(users.values_list("pk", "is_superuser"))
    keys = set(
        SshKey.objects.filter(pk__in={each.key_id for each in asked if each.key_id}).values_list("pk", flat=True)
    )
    return {each for each in asked if _is_authorized(each, sessions, rights, keys)}


def _is_authorized(
    principal: Principal, sessions: dict[str, tuple[int, str]], rights: dict[int, bool], keys: Collection[int]
) -> bool:
    """Return whether it holds; `sessions` is {id: (owner, session key)}, `rights` is {user: is superadmin}."""
    if principal.user_id not in rights:
        return False
    if isinstance(principal, DataPrincipal):
        return principal.key_id in keys
    if principal.session_id not in sessions:
        return False
    owner, session_key = sessions[principal.session_id]
    if session_key != principal.session_key if principal.key_id is None else principal.key_id not in keys:
        return False
    return owner == principal.user_id or rights[principal.user_id]


def _session_for(user: User, name: str) -> Session | None:
    """Return the visible session with this id, else the user's own live session, or member of one, with this name."""
    sessions = Session.objects.select_related("host", "owner")
    named = sessions.live().filter(Q(name=name, rank=0) | _is_member(name), owner=user).order_by("rank")
    return sessions.operable_by(user).filter(pk=name).first() or named.first()


def _is_member(name: str) -> Q:
    """Return the condition that it is the member of this full name, such as "train.sub1"."""
    found = MEMBER.fullmatch(name)
    return Q(cluster__isnull=False, name=found["name"], rank=int(found["rank"] or 0)) if found else Q(pk__in=())


def _principal(user: User, key: SshKey | None, session: Session | None, name: str) -> SshPrincipal | AccessRefusal:
    """Return the principal or the refusal; `key` is None for the session key."""
    if session is None:
        return AccessRefusal(f"No session of yours has the id or name {name!r}{_choice(user)}")
    if session.status != Status.RUNNING:
        why = reason_text(session.reason, session.detail)
        return AccessRefusal(f"Session {session.name} does not run, it is {session.status}: {why}")
    try:
        engine = engine_of(session.host)
    except HostUnreachableError as problem:
        return AccessRefusal(str(problem))
    return SshPrincipal(
        user_id=user.pk,
        key_id=key.pk if key else None,
        session_key="" if key else session.ssh_public_key,
        session_id=session.pk,
        owner_id=session.owner_id,
        container_id=session.container_id,
        engine=engine,
    )


def _choice(user: User) -> str:
    """Return the end of the refusal, with the names of the user's running sessions."""
    running = Session.objects.mains().filter(owner=user, status=Status.RUNNING).order_by("-started_at")
    names = list(running.values_list("name", flat=True)[:5])
    return f"; running are: {', '.join(names)}." if names else "; none of yours is running."
