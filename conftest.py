"""Fixtures that every app's tests may use."""

import pytest
from django.core.cache import cache

from scheduler import estimate, passes


@pytest.fixture(autouse=True)
def _no_left_over_kick() -> None:
    """Forget the scheduler's kick flag and other cached facts of the test before."""
    cache.clear()
    for memory in (passes.memory, estimate.memory):
        memory.forget()  # the database is rolled back, which no commit tells
