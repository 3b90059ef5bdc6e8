"""Hosts whose clocks are wrong write only times that they may write."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from urllib.parse import urlsplit

import pytest
from django.db import connection
from django.utils import timezone

from notifications import services as notifications
from notifications.kinds import NoticeKind
from notifications.models import Notification
from resources.amounts.units import GIB
from resources.gpus.discovery import Machine
from resources.hosts import services as hosts
from tests.factories import make_user


class Ahead(datetime):
    """The clock of a machine that is hours ahead."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "Ahead":
        """Return the wrong time."""
        return super().now(tz) + timedelta(hours=3)


@contextmanager
def acting_as(role: str) -> Iterator[None]:
    """Do what is in the block with this role, where the clock is ahead."""
    with pytest.MonkeyPatch.context() as patch, connection.cursor() as cursor:
        patch.setattr(timezone, "datetime", Ahead)
        cursor.execute(f'SET SESSION AUTHORIZATION "{role}"')
        try:
            yield
        finally:
            cursor.execute("RESET SESSION AUTHORIZATION")


def test_a_host_whose_clock_is_ahead_joins_and_tells(variables: dict[str, str]) -> None:
    told = make_user(is_superuser=True)
    with acting_as(str(urlsplit(variables["DATABASE_URL"]).username)):
        host = hosts.register_host("gpu7", Machine(cpu=1, memory=GIB, devices=()), "lab")
        assert notifications.tell(told.pk, NoticeKind.HOST_FAULTY, "key", facts={"host": "gpu7"})
    assert abs(Notification.objects.get().created_at - host.heartbeat_at) < timedelta(minutes=1)
