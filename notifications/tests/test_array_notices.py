"""What owners are told of arrays: of each once, and nothing of the sessions of its tasks."""

import pytest

from accounts.models import User
from arrays import services
from arrays.models import Array
from arrays.tests.making import advance, finish, make_array, task_of
from notifications.delivery.texts import text_of
from notifications.models import Notification
from resources import clock
from resources.models import Host, Image
from tests.factories import make_host, make_user
from webhooks.models import WebhookDelivery
from webhooks.services import create

pytestmark = pytest.mark.django_db


@pytest.fixture
def host() -> Host:
    return make_host()


@pytest.fixture
def owner(host: Host) -> User:
    owner = make_user()
    create(
        owner, url="https://example.org/", types=["session.error", "session.terminated", "notification.array_failed"]
    )
    return owner


def told() -> list[str]:
    return list(Notification.objects.order_by("pk").values_list("kind", flat=True))


def test_an_array_is_told_of_in_place_of_its_sessions(owner: User, host: Host) -> None:
    array = advance(make_array(owner, tasks="0-1"))
    finish(task_of(array, 0), host)
    finish(task_of(array, 1), host, 1)
    assert told() == []
    array = advance(advance(array))
    assert told() == ["ARRAY_FAILED"]
    text = text_of(Notification.objects.get())
    assert (text.title, text.level) == ("The array sweep has failed", "danger")
    assert text.body == "Tasks: 1 succeeded, 1 failed, 0 cancelled."
    assert [row.type for row in WebhookDelivery.objects.all()] == ["notification.array_failed"]


def test_an_array_that_succeeds_is_told_of(owner: User, host: Host) -> None:
    array = advance(make_array(owner, tasks="0"))
    finish(task_of(array, 0), host)
    advance(array)
    assert told() == ["ARRAY_ENDED"]


def test_owners_are_not_told_of_their_own_cancelling(owner: User) -> None:
    services.cancel(make_array(owner), actor=owner)
    assert told() == []


def test_a_held_array_is_told_of_with_its_reason(owner: User) -> None:
    array = make_array(owner)
    Image.objects.update(is_enabled=False)
    advance(array)
    assert told() == ["ARRAY_HELD"]
    assert "is not offered" in text_of(Notification.objects.get()).body
    assert not Array.objects.filter(ended_at__lt=clock.now()).exists()
