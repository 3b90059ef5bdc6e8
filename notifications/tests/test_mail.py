"""E-mail is sent once for each notification, whoever dies and whatever fails meanwhile."""

import smtplib
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail as outgoing
from django.core.mail import EmailMessage
from django.db import connections
from django.utils import timezone

from accounts.models import User
from notifications import services
from notifications.delivery import mail
from notifications.kinds import NoticeKind, Ways
from notifications.models import Notification
from resources import clock
from tests.factories import make_user

FACTS = {"name": "mine", "reason": "HOST_LOST", "detail": ""}


@pytest.fixture
def user() -> User:
    user = make_user()
    services.choose_ways(user, {kind: Ways(by_email=True) for kind in NoticeKind})
    return user


def tell(user: User, key: str = "event:1", kind: NoticeKind = NoticeKind.FAILED, **facts: Any) -> None:
    services.tell(user.pk, kind, key, facts=FACTS | facts)


def make_due() -> None:
    Notification.objects.exclude(email_due_at=None).update(email_due_at=timezone.now())


@pytest.mark.django_db
def test_a_message_is_sent_once(user: User) -> None:
    tell(user)
    assert mail.deliver_due() == 1
    assert mail.deliver_due() == 0
    (message,) = outgoing.outbox
    assert (message.subject, message.to) == ("mine has failed", [user.email])
    assert "The host was unreachable" in message.body
    told = Notification.objects.get()
    assert told.emailed_at is not None
    assert told.email_due_at is None


@pytest.mark.django_db
def test_a_message_is_due_by_the_shared_clock(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    read_at, right = time.monotonic(), timezone.now()
    monkeypatch.setattr(clock.shared_clock, "_read", (right, read_at))
    tell(user)
    monkeypatch.setattr(timezone, "now", lambda: right - timedelta(hours=1))  # as on a machine that is behind
    assert mail.deliver_due() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("is_sent", [False, True])
def test_a_death_while_sending_is_made_good(user: User, is_sent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(self: EmailMessage, *args: Any) -> int:
        if is_sent:
            outgoing.outbox.append(self)
        raise SystemExit

    tell(user)
    with monkeypatch.context() as patch:
        patch.setattr(EmailMessage, "send", die)
        with pytest.raises(SystemExit):
            mail.deliver_due()
    assert mail.deliver_due() == 0  # somebody may still be sending it
    make_due()
    assert mail.deliver_due() == 1
    assert mail.deliver_due() == 0
    identities = [message.message()["Message-ID"] for message in outgoing.outbox]
    assert len(identities) == 1 + is_sent
    assert len(set(identities)) == 1  # which makes them one message


@pytest.mark.django_db
def test_failures_are_tried_again_and_given_up(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: EmailMessage) -> int:
        raise smtplib.SMTPServerDisconnected("no")

    monkeypatch.setattr(EmailMessage, "send", fail)
    tell(user)
    pauses: list[Any] = []
    for _ in range(mail.MAX_ATTEMPTS):
        make_due()
        now = timezone.now()
        assert mail.deliver_due() == 0
        told = Notification.objects.get()
        pauses.append(told.email_due_at and told.email_due_at - now)
    assert told.email_problem == "no"
    assert pauses[-1] is None
    assert timedelta(minutes=1) < pauses[0] < pauses[1]


@pytest.mark.django_db
def test_what_is_no_use_any_more_is_not_sent(user: User) -> None:
    past = (timezone.now() - timedelta(minutes=1)).isoformat()
    tell(user, "ending", NoticeKind.ENDING, minutes=1, ends_at=past)
    gone = make_user()
    services.choose_ways(gone, {NoticeKind.FAILED: Ways(by_email=True)})
    tell(gone)
    User.objects.filter(pk=gone.pk).update(is_active=False)
    assert mail.deliver_due() == 0
    assert outgoing.outbox == []
    assert not Notification.objects.exclude(email_due_at=None).exists()


@pytest.mark.django_db(transaction=True)
def test_many_senders_send_each_message_once(user: User) -> None:
    for number in range(20):
        tell(user, f"event:{number}")

    def deliver(_: int) -> int:
        try:
            return mail.deliver_due()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(deliver, range(4))) == 20
    assert len(outgoing.outbox) == 20
