"""Who may enter which session over SSH, by the rows: their own keys, or the session's."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from django.db.models import Q
from django.utils import timezone

from accounts.models import SshKey, User
from accounts.public_keys import PublicKey
from engine.engine import Engine
from sessions.engine_address import HostUnreachableError, engine_of
from sessions.lifecycle import Status
from sessions.models import Session
from sessions.words import reason_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """Whom a key stands for, and the running session that they want to enter."""

    user_id: int
    key_id: int | None  # None: the session's own key
    own_key: str  # its public half; empty with any other key
    session_id: str
    owner_id: int
    container_id: str
    engine: Engine

    def __str__(self) -> str:
        """For the log, which is the audit of who entered what."""
        how = f"key {self.key_id}" if self.key_id else "the session's own key"
        foreign = "" if self.owner_id == self.user_id else f", as superadmin, into what is user {self.owner_id}'s,"
        return f"user {self.user_id} with {how}{foreign}"


@dataclass(frozen=True, slots=True)
class NoEntry:
    """Somebody whom the platform knows wants to enter what cannot be entered; the words say why."""

    words: str


def find_guest(name: str, key: PublicKey) -> Guest | NoEntry | None:
    """Return who comes with this key for the session of this id or name; None for a key that nobody has."""
    own = SshKey.objects.select_related("owner").filter(fingerprint=key.fingerprint, owner__is_active=True).first()
    if own:
        return _guest(own.owner, own, _session_for(own.owner, name), name)
    named = Session.objects.select_related("host", "owner").filter(Q(pk=name) | Q(name=name))
    session = named.filter(status=Status.RUNNING, ssh_public_key=key.text, owner__is_active=True).first()
    return _guest(session.owner, None, session, name) if session else None


def note_entry(guest: Guest) -> None:
    """Keep when the key was last used, for its owner to see."""
    if guest.key_id is not None:
        SshKey.objects.filter(pk=guest.key_id).update(last_used_at=timezone.now())


def still_welcome(guests: Iterable[Guest]) -> set[Guest]:
    """Return those whose session runs and is theirs to see, whose account is active and whose key still holds.

    Three queries for any number.
    """
    asked = set(guests)
    running = Session.objects.filter(pk__in={each.session_id for each in asked}, status=Status.RUNNING)
    sessions = {pk: (owner, own_key) for pk, owner, own_key in running.values_list("pk", "owner_id", "ssh_public_key")}
    users = User.objects.filter(pk__in={each.user_id for each in asked}, is_active=True)
    rights = dict(users.values_list("pk", "is_superuser"))
    keys = set(
        SshKey.objects.filter(pk__in={each.key_id for each in asked if each.key_id}).values_list("pk", flat=True)
    )
    return {each for each in asked if _is_welcome(each, sessions, rights, keys)}


def _is_welcome(
    guest: Guest, sessions: dict[str, tuple[int, str]], rights: dict[int, bool], keys: Collection[int]
) -> bool:
    """`sessions` are owner and own key by id, `rights` whether a user is superadmin."""
    if guest.session_id not in sessions or guest.user_id not in rights:
        return False
    owner, own_key = sessions[guest.session_id]
    if own_key != guest.own_key if guest.key_id is None else guest.key_id not in keys:
        return False
    return owner == guest.user_id or rights[guest.user_id]


def _session_for(user: User, name: str) -> Session | None:
    """Return the session with this id that the user may see, else the live one of their own with this name."""
    sessions = Session.objects.select_related("host", "owner")
    return sessions.visible_to(user).filter(pk=name).first() or sessions.live().filter(owner=user, name=name).first()


def _guest(user: User, key: SshKey | None, session: Session | None, name: str) -> Guest | NoEntry:
    """`key` is None for the session's own."""
    if session is None:
        return NoEntry(f"No session of yours has the id or name {name!r}{_choice(user)}")
    if session.status != Status.RUNNING:
        why = reason_text(session.reason, session.detail)
        return NoEntry(f"Session {session.name} does not run, it is {session.status}: {why}")
    try:
        engine = engine_of(session.host)
    except HostUnreachableError as problem:
        return NoEntry(str(problem))
    return Guest(
        user_id=user.pk,
        key_id=key.pk if key else None,
        own_key="" if key else session.ssh_public_key,
        session_id=session.pk,
        owner_id=session.owner_id,
        container_id=session.container_id,
        engine=engine,
    )


def _choice(user: User) -> str:
    """Return the end of a sentence with the sessions that the user could have meant."""
    running = Session.objects.filter(owner=user, status=Status.RUNNING).order_by("-started_at")
    names = list(running.values_list("name", flat=True)[:5])
    return f"; running are: {', '.join(names)}." if names else "; none of yours is running."
