"""Fixtures that every app's tests may use."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID, uuid4

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client, TransactionTestCase
from django.utils import translation
from hypothesis import HealthCheck, settings
from playwright.sync_api import Browser
from pytest_django import DjangoDbBlocker

from scheduler.advice import estimate
from scheduler.cycle import passes
from tests.browser import chromium
from tests.containers import remove_lent_containers
from tests.database import empty_tables, keeping_rows
from tests.held import HeldFixtures
from tests.joined_hosts import drop_group
from tests.live import LiveServer, serving
from tests.migrated import make_test_database
from tests.platform import ROOT, Platform, running_platform
from tests.plugin import ON_ONE_PLATFORM
from tests.ports import process_number
from tests.quick_login import quick_login

# The same examples in every run, however slow; `--hypothesis-profile=default` searches for new ones.
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment: None, django_db_modify_db_settings: None, django_db_blocker: DjangoDbBlocker
) -> None:
    """Make the test database. It replaces the fixture of pytest-django, which migrates in every process."""
    with django_db_blocker.unblock():
        make_test_database()


@pytest.fixture(autouse=True, scope="session")
def _quick_flush() -> Iterator[None]:
    """Empty the database after each test that commits in milliseconds: hundreds of tests do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", empty_tables)
        yield


@pytest.fixture(autouse=True, scope="session")
def _quick_logins() -> Iterator[None]:
    """Sign clients in with a fifth of the statements: they were a quarter of those of all tests of pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "force_login", quick_login)
        yield


@pytest.fixture(autouse=True, scope="session")
def _lent_containers() -> Iterator[None]:
    """Remove, at the end, the containers that tests have handed on."""
    yield
    remove_lent_containers()


@pytest.fixture(scope="module")
def module_db(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The database of a module whose tests share committed rows, such as those of a worker that runs throughout."""
    with django_db_blocker.unblock():
        with keeping_rows():
            yield
        connection.close()  # while the browser's event loop runs, Django has a connection that nothing else would close


@pytest.fixture(autouse=True)
def _no_left_over_kick() -> None:
    """Forget the scheduler's kick flag, other cached facts and the language of the test before."""
    cache.clear()
    translation.deactivate()
    for state_cache in (passes.caches, estimate.state_cache):
        state_cache.clear()  # the database is rolled back, which no commit tells


@pytest.fixture(scope="module")
def installation(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[UUID]:
    """The key of the installation that a module's hosts join, so that what they may do is applied once."""
    key = uuid4()
    yield key
    with django_db_blocker.unblock():
        drop_group(key)


LOGGED: Final = 8000  # characters of a server's log in the report of a failure
HELD: Final = pytest.StashKey[HeldFixtures]()


@pytest.fixture(scope="session")
def held(request: pytest.FixtureRequest, django_db_setup: None) -> Iterator[HeldFixtures]:
    """What modules that follow each other share; closed before the database goes."""
    made = request.config.stash[HELD] = HeldFixtures()
    yield made
    made.close_all_but(())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Close, after the last test of a module, what the next module does not ask for.

    What is held open would otherwise be in the way: a running event loop, or a web process that answers too.
    """
    try:
        yield
    finally:
        if HELD in item.config.stash and nextitem and nextitem.path != item.path:
            item.config.stash[HELD].close_all_but(getattr(nextitem, "fixturenames", ()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure what the server or platform of its test has logged since its last error, or at its end."""
    report = yield
    for name in ("server", "platform"):
        running = getattr(item, "funcargs", {}).get(name)
        if report.failed and isinstance(running, LiveServer | Platform):  # others have fixtures of that name, too
            text = running.log.read_text(errors="replace")
            begin = max(text.rfind(" ERROR "), len(text) - LOGGED)
            report.sections.append((f"log of the {name}", text[begin : begin + LOGGED]))
    return report


@pytest.fixture(scope="module")
def server(held: HeldFixtures, tmp_path_factory: pytest.TempPathFactory) -> LiveServer:
    """The platform's web process on the test's database; modules that follow each other share it."""
    return held.get("server", lambda: serving(tmp_path_factory.mktemp("live") / "server.log"))


@contextmanager
def _browser() -> Iterator[Browser]:
    with pytest.MonkeyPatch.context() as patch, chromium() as running:
        # Playwright keeps an event loop in this thread, where Django then expects no queries.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        yield running


@pytest.fixture(scope="module")
def browser(held: HeldFixtures) -> Browser:
    """One real browser, shared by modules that follow each other; each test gets a profile of its own."""
    return held.get("browser", _browser)


@pytest.fixture(scope="module")
def platform(request: pytest.FixtureRequest, held: HeldFixtures) -> Iterator[Platform]:
    """A whole platform on data of its own; modules that follow each other share it, but no sessions."""
    assert str(request.path.relative_to(ROOT)) in ON_ONE_PLATFORM  # or another process would start one of its own
    platform = held.get("platform", lambda: running_platform(ROOT / "var" / f"test-platform-{process_number()}"))
    yield platform
    platform.end_sessions()
