"""Fixtures that every app's tests may use."""

import pytest
from django.core.cache import cache


@pytest.fixture(autouse=True)
def _no_left_over_kick() -> None:
    """Forget the scheduler's kick flag and other cached facts of the test before."""
    cache.clear()
