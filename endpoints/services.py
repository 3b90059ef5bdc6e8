"""Commands on endpoints: open, publish, share, revoke, close. Each is one transaction and records an event.

Callers authorize the actor, by `visible_to`; the rules of what is possible are here.
"""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from django.db import transaction

from accounts import audit
from accounts.models import User
from deployments.replicas.launching import REPLICA_APP
from endpoints.routing import ports, revocations, routes
from proxy.authorization.signing import digest
from resources import clock
from sessions import notify
from sessions.access import app_states
from sessions.access.entries import record_entry
from sessions.errors import RejectedError
from sessions.lifecycle import Kind, Status
from sessions.models import Endpoint, EndpointEvent, EndpointState, Session, ShareLink

MIN_PORT: Final = 1024
MAX_PORT: Final = 65535
TOKEN_BYTES: Final = 32
MAX_NOTE_LENGTH: Final = 64
MAX_OPEN_IN_SESSION: Final = 64  # apps and ports
MAX_OPEN_OF_OWNER: Final = 256
MAX_SHARE_LIFE: Final = timedelta(days=30)
_PREPARED: Final = ("title", "port", "token", "state", "detail", "obstacle", "output", "opened_by", "opened_at")
_OPEN_PORT: Final = re.compile("p([1-9][0-9]{3,4})")


class Opened(NamedTuple):
    """An opened endpoint, and a note for the user who opened it, such as a replaced port; "" for none."""

    endpoint: Endpoint
    note: str


class Shared(NamedTuple):
    """A share link and its secret, which is not stored: only its digest is."""

    link: ShareLink
    secret: str


@dataclass(frozen=True, slots=True)
class _Offer:
    """The resolved meaning of an app's name in a session."""

    title: str
    port: int
    takes_token: bool = False


def open_app(session: Session, app: str, *, actor: User, preferred_port: int | None = None) -> Opened:
    """Have the session's host start the app or find it running; return its endpoint, STARTING unless it is READY.

    `app` is the name of one of the image's apps, or `p<port>` for whatever listens on that port of the container.
    The host is notified either way, because an app may have died. Raises RejectedError at `app`, also
    where it needs a port of its own and none is left.
    """
    with transaction.atomic():
        row = Session.objects.select_for_update(no_key=True, of=("self",)).select_related("host", "image", "cluster")
        session = row.get(pk=session.pk)
        if session.status != Status.RUNNING or session.host is None:
            raise RejectedError({"app": "Apps can be opened in running sessions only."})
        if session.has_host_network:
            raise RejectedError({"app": routes.HOST_NETWORK})
        offer = _offer(session, app)
        endpoint = Endpoint.objects.filter(session=session, app=app).first() or Endpoint(session=session, app=app)
        if endpoint.pk is None or endpoint.state == EndpointState.CLOSED:
            _check_number(session)
        if endpoint.state != EndpointState.READY or endpoint.pk is None:
            _prepare(endpoint, offer, actor)
        note = ports.assign(endpoint, preferred_port)
        _record(endpoint, f"Opened. {note}".strip(), actor)
        notify.send_to_host(session.host.name, "open_app", endpoint.pk)
        app_states.announce(endpoint)
    return Opened(endpoint, note)


def look_at(label: str) -> None:
    """Have the host look why a READY app refuses connections, and record it; without effect for any other."""
    endpoint = Endpoint.objects.labelled(label).filter(state=EndpointState.READY, session__status=Status.RUNNING)
    for host_name, pk in endpoint.exclude(session__host=None).values_list("session__host__name", "pk"):
        notify.send_to_host(host_name, "look_at_app", pk)


@audit.recorded_for_others("publish app", "session.owner_id")
def publish(endpoint: Endpoint, *, until: datetime | None = None, actor: User) -> Endpoint:
    """Let anybody who knows the address use the app, until the given time or the end of its session.

    Cookies issued before are void. Raises RejectedError at `public` or `public_until`.
    """
    if until is not None and until <= clock.now():
        raise RejectedError({"public_until": "Choose a time that is still to come."})
    with _locked(endpoint) as row:
        _check_open(row, "public")
        _check_policy(row, "public")
        if not row.is_public:
            row.epoch += 1
        elif row.public_until == until:
            return row
        row.is_public, row.public_until = True, until
        row.save(update_fields=["is_public", "public_until", "epoch"])
        _record(row, f"Made public until {until:%Y-%m-%d %H:%M} UTC" if until else "Made public", actor)
        app_states.announce(row)
    return row


@audit.recorded_for_others("unpublish app", "session.owner_id")
def unpublish(endpoint: Endpoint, *, actor: User | None) -> Endpoint:
    """End public access to the app; without effect if it is not public. No actor: its time is over.

    The session key is renewed, because users of the app may have read it from the home folder.
    """
    with _locked(endpoint) as row:
        if not row.is_public:
            return row
        row.is_public, row.public_until, row.epoch = False, None, row.epoch + 1
        row.save(update_fields=["is_public", "public_until", "epoch"])
        _record(row, "No longer public" if actor else "No longer public: its time is over", actor)
        _renew_session_key(row)
        app_states.announce(row)
    return row


def share(endpoint: Endpoint, *, expires: datetime, note: str = "", actor: User) -> Shared:
    """Create a link whose holders may use the app until it expires. Raises RejectedError."""
    if expires <= clock.now():
        raise RejectedError({"expires": "Choose a time that is still to come."})
    if expires > clock.now() + MAX_SHARE_LIFE:
        raise RejectedError({"expires": f"A link lasts at most {MAX_SHARE_LIFE.days} days."})
    if len(note) > MAX_NOTE_LENGTH:
        raise RejectedError({"note": f"Write at most {MAX_NOTE_LENGTH} characters."})
    secret = secrets.token_urlsafe(TOKEN_BYTES)
    with _locked(endpoint) as row:
        _check_open(row, "expires")
        _check_policy(row, "expires")
        link = row.share_links.create(digest=digest(secret), note=note, created_by=actor, expires_at=expires)
        _record(row, f"Shared until {expires:%Y-%m-%d %H:%M} UTC: {link}", actor)
        if actor != row.session.owner:
            audit.record(actor, "share app", row, {"expires": (None, f"{expires:%Y-%m-%d %H:%M} UTC")})
    return Shared(link, secret)


@audit.recorded_for_others("revoke share link", "endpoint.session.owner_id")
def revoke(link: ShareLink, *, actor: User | None) -> None:
    """Revoke the link, and the cookies issued by it; without effect if revoked already. No actor: it has expired.

    The session key is renewed, as in `unpublish`.
    """
    with transaction.atomic():
        if not ShareLink.objects.filter(pk=link.pk, revoked_at=None).update(revoked_at=clock.now()):
            return
        revocations.revoke_login(link.digest)
        endpoint = Endpoint.objects.select_related("session").get(pk=link.endpoint_id)
        _record(endpoint, f"Share link {'revoked' if actor else 'over'}: {link}", actor)
        _renew_session_key(endpoint)


@audit.recorded_for_others("close app", "session.owner_id")
def close(endpoint: Endpoint, *, actor: User) -> None:
    """Close the app to everybody and revoke its links; its process keeps running in the container.

    Raises RejectedError at `app` for that by which a deployment reaches its replica.
    """
    with _locked(endpoint) as row:
        if row.state == EndpointState.CLOSED:
            return
        if row.session.kind == Kind.REPLICA and row.app == REPLICA_APP:
            raise RejectedError({"app": "Its deployment reaches it there. Change or end the deployment instead."})
        row.state, row.detail, row.epoch = EndpointState.CLOSED.value, "", row.epoch + 1
        if row.is_public:
            _renew_session_key(row)
        row.is_public, row.public_until, row.listen_port = False, None, None
        row.save()
        for link in row.share_links.filter(revoked_at=None):
            revoke(link, actor=actor)
        _record(row, "Closed", actor)
        app_states.announce(row)


def note_access(endpoint: Endpoint, actor: User) -> None:
    """Record that a superadmin uses the app of another user, who sees it on the session's timeline."""
    _record(endpoint, "Used by a superadmin", actor)
    record_entry(endpoint.session, actor, f"the app {endpoint.title}")


def _check_number(session: Session) -> None:
    """Refuse one more open app where there are too many, which each take probes of the host and a listener."""
    unclosed = Endpoint.objects.unclosed()
    if unclosed.filter(session=session).count() >= MAX_OPEN_IN_SESSION:
        raise RejectedError(
            {"app": f"At most {MAX_OPEN_IN_SESSION} apps and ports of a session can be open; close some."}
        )
    running = unclosed.filter(session__owner=session.owner_id, session__status=Status.RUNNING)
    running = running.exclude(session__kind=Kind.REPLICA)  # which deployments open, and their own limits bound
    if running.count() >= MAX_OPEN_OF_OWNER:
        raise RejectedError(
            {"app": f"At most {MAX_OPEN_OF_OWNER} apps and ports of your sessions can be open; close some."}
        )


def _offer(session: Session, app: str) -> _Offer:
    if found := session.image.apps.filter(name=app).first():
        return _Offer(found.title, found.port, bool(found.token_variable))
    match = _OPEN_PORT.fullmatch(app)
    if match and MIN_PORT <= int(match[1]) <= MAX_PORT:
        return _Offer(f"Port {match[1]}", int(match[1]))
    names = ", ".join(session.image.apps.values_list("name", flat=True))
    offered = f"This image offers {names}" if names else "This image offers no apps"
    raise RejectedError({"app": f"{offered}; a port between {MIN_PORT} and {MAX_PORT} is opened as p8080."})


def _prepare(endpoint: Endpoint, offer: _Offer, actor: User) -> None:
    """Save the endpoint as STARTING: a new one, or one that failed, was closed or is starting already."""
    endpoint.title, endpoint.port = offer.title, offer.port
    host = endpoint.session.host
    takes_token = offer.takes_token and host is not None
    endpoint.token = app_states.token_of(str(host), endpoint.session_id, offer.port) if takes_token else ""
    if endpoint.pk is None or endpoint.state != EndpointState.STARTING:
        endpoint.state, endpoint.detail, endpoint.output = EndpointState.STARTING.value, "", ""
        endpoint.obstacle = ""
        endpoint.opened_by, endpoint.opened_at = actor, clock.now()
    endpoint.save(update_fields=_PREPARED if endpoint.pk else None)  # who may use it is not this function's to write


def _check_open(endpoint: Endpoint, field: str) -> None:
    if endpoint.session.status != Status.RUNNING or endpoint.state == EndpointState.CLOSED:
        raise RejectedError({field: "Open the app in a running session first."})


def _check_policy(endpoint: Endpoint, field: str) -> None:
    if not endpoint.session.bounds.allow_public_apps:
        raise RejectedError({field: "Your policy does not allow to open apps to people without an account."})


@contextmanager
def _locked(endpoint: Endpoint) -> Iterator[Endpoint]:
    """Open a transaction, and yield the endpoint's row, locked after its session's as in `open_app`."""
    rows = Endpoint.objects.select_for_update(no_key=True, of=("self",)).select_related(
        "session__owner__policy", "session__project__policy"
    )
    with transaction.atomic():
        Session.objects.select_for_update(no_key=True).only("pk").get(pk=endpoint.session_id)
        yield rows.get(pk=endpoint.pk)


def _record(endpoint: Endpoint, what: str, actor: User | None) -> None:
    EndpointEvent.objects.create(endpoint=endpoint, what=what[:200], actor=actor)


def _renew_session_key(endpoint: Endpoint) -> None:
    """Revoke the session key; the host worker creates the next one (hostworker/terminals/session_keys.py)."""
    Session.objects.filter(pk=endpoint.session_id).exclude(ssh_public_key="").update(ssh_public_key="")
