"""Fixtures that every app's tests may use."""

from collections.abc import Iterator

import pytest
from django.core.cache import cache
from django.test import TransactionTestCase
from hypothesis import HealthCheck, settings
from playwright.sync_api import Browser

from scheduler import estimate, passes
from tests.browser import chromium
from tests.database import empty_tables
from tests.live import LiveServer, serving

# The same examples in every run, however slow; `--hypothesis-profile=default` searches for new ones.
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


@pytest.fixture(autouse=True, scope="session")
def _quick_flush() -> Iterator[None]:
    """Empty the database after each test that commits in milliseconds: hundreds of tests do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", empty_tables)
        yield


@pytest.fixture(autouse=True)
def _no_left_over_kick() -> None:
    """Forget the scheduler's kick flag and other cached facts of the test before."""
    cache.clear()
    for state_cache in (passes.state_cache, estimate.state_cache):
        state_cache.clear()  # the database is rolled back, which no commit tells


@pytest.fixture(scope="module")
def server(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The platform's web process on the test's database."""
    with serving(tmp_path_factory.mktemp("live") / "server.log") as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One real browser; each test gets a profile of its own."""
    with pytest.MonkeyPatch.context() as patch, chromium() as running:
        # Playwright keeps an event loop in this thread, where Django then expects no queries.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        yield running
