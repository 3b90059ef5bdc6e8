"""Fixtures of the tests of scheduling."""

from collections.abc import Iterator
from uuid import UUID

import pytest

from resources.elastic import kinds
from scheduler.tests.machines import Machines
from tests.joined_hosts import hosts_may_join


@pytest.fixture
def machines(transactional_db: None, installation: UUID, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    provider = Machines()
    monkeypatch.setitem(kinds.KINDS, "memory", provider.make)
    with hosts_may_join(installation):
        yield provider
