"""Writes notifications, each once, and what their readers do with them."""

from collections.abc import Mapping
from typing import Any, Final

from django.db import transaction

from accounts.models import User
from notifications.kinds import DEFAULT_WAYS, FOR_SUPERADMINS, WAYS, NoticeKind, Ways
from notifications.models import Notification, NotificationPreference
from resources import clock
from sessions import notify
from sessions.models import Session

MAX_COUNTED: Final = 99


def group_of(user_id: int) -> str:
    """Return the channel-layer group of the browsers that show this user's notifications."""
    return f"notices.{user_id}"


def tell(
    user_id: int,
    kind: NoticeKind,
    key: str,
    *,
    session: Session | None = None,
    facts: Mapping[str, Any] | None = None,
    is_seen: bool = False,
) -> bool:
    """Write what the user is told, in the caller's transaction; return False if it was written before.

    `is_seen`: the user sees it happen, so it is only listed.
    """
    ways = _all_ways(user_id)[kind]
    now = clock.now()
    _, is_new = Notification.objects.get_or_create(
        user_id=user_id,
        key=key,
        defaults={
            "kind": kind.value,
            "session": session,
            "facts": dict(facts or {}),
            "created_at": now,
            **{way: getattr(ways, way) for way in WAYS},
            "shown_at": now if is_seen or not (ways.on_page or ways.in_browser) else None,
            "email_due_at": now if ways.by_email and not is_seen else None,
        },
    )
    if is_new:
        notices_changed(user_id)
        if ways.by_email and not is_seen:
            notify.send_to_scheduler("notifications.tasks.deliver_mail")
    return is_new


def notices_changed(user_id: int) -> None:
    """After the commit, have the browsers of the user ask for their notifications."""
    notify.tell_group(group_of(user_id), "notices.changed")


def ways_of(user: User) -> dict[NoticeKind, Ways]:
    """Return how the user wants to be told of each kind that they may be told of; one query."""
    ways = _all_ways(user.pk)
    return {kind: each for kind, each in ways.items() if user.is_superuser or kind not in FOR_SUPERADMINS}


def choose_ways(user: User, ways: Mapping[NoticeKind, Ways]) -> None:
    """Store how the user wants to be told."""
    rows = [
        NotificationPreference(user=user, kind=kind.value, **{way: getattr(each, way) for way in WAYS})
        for kind, each in ways.items()
    ]
    NotificationPreference.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["user", "kind"], update_fields=WAYS
    )


def counts_of(user_id: int) -> dict[str, int]:
    """Return how many of the user's notifications are unread, and how many no page has shown; up to MAX_COUNTED."""
    mine = Notification.objects.filter(user=user_id)
    unread = mine.filter(on_page=True, read_at=None)[:MAX_COUNTED].count()
    return {"unread": unread, "pending": mine.filter(shown_at=None)[:MAX_COUNTED].count()}


def mark_read(user: User, *, up_to: int) -> None:
    """Note that the user has read their notifications up to this id, which no page need show any more."""
    now = clock.now()
    with transaction.atomic():
        mine = Notification.objects.filter(user=user, pk__lte=up_to)
        mine.filter(shown_at=None).update(shown_at=now)
        if mine.filter(read_at=None).update(read_at=now):
            notices_changed(user.pk)


def mark_shown(user: User, ids: list[int]) -> None:
    """Note that a page or a browser has shown these; those of others are ignored."""
    Notification.objects.filter(user=user, pk__in=ids, shown_at=None).update(shown_at=clock.now())


def _all_ways(user_id: int) -> dict[NoticeKind, Ways]:
    chosen = {
        NoticeKind(row["kind"]): Ways(**{way: row[way] for way in WAYS})
        for row in NotificationPreference.objects.filter(user=user_id).values("kind", *WAYS)
    }
    return DEFAULT_WAYS | chosen
