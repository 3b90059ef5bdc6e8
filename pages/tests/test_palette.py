"""What the palette finds, and for whom."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from deployments import services as deployments
from deployments.tests.making import make_deployment
from pages.palette.found import MAX_OF_A_KIND, search
from sessions.lifecycle import Status
from sessions.models import Session
from tests.factories import (
    make_folder,
    make_group,
    make_host,
    make_session,
    make_user,
    moved_to,
    parked_session,
    run_session,
)
from tests.web import HTMX, browser_of, text_of

pytestmark = pytest.mark.django_db


def urls(user: User, text: str) -> list[str]:
    return [page.url for _kind, pages in search(user, text) for page in pages]


def test_things_are_found_by_a_part_of_their_name() -> None:
    owner = make_user()
    session = make_session(owner=owner, name="train-large")
    folder = make_folder(owner, name="Training")
    found = urls(owner, "TRAIN")
    assert found[:2] == [f"/sessions/{session.pk}/", f"/sessions/{session.pk}/logs/"]
    assert f"/folders/{folder.pk}/" in found
    assert urls(owner, session.pk[:8])[0] == f"/sessions/{session.pk}/"
    assert urls(owner, " \0 ") == []


def test_strangers_find_nothing_of_others() -> None:
    run_session(name="secret-run")
    make_folder(name="secret-data")
    make_host(name="secret-host", group=make_group(open_to_all=False))
    make_user(email="secret@example.org")
    assert urls(make_user(), "secret") == []
    found = urls(make_user(is_superuser=True), "secret")
    assert [url.split("/")[1] for url in found if "help" not in url] == [*["sessions"] * 4, "hosts", "users"]


def test_the_only_session_brings_its_actions() -> None:
    owner = make_user()
    session = run_session(owner=owner, name="alone")
    ended = [f"/sessions/{session.pk}/{part}" for part in ("", "terminal/", "logs/", "terminate/")]
    assert urls(owner, "alone") == ended
    moved_to(Status.CANCELLED, make_session(owner=owner, name="alone-2"))
    assert urls(owner, "alone") == ended
    make_session(owner=owner, name="alone-3")
    assert len(urls(owner, "alone")) == 2


def test_deployments_that_were_ended_are_left_out() -> None:
    owner = make_user()
    deployment = make_deployment(owner, host=make_host(), name="chat")
    assert f"/deployments/{deployment.pk}/" in urls(owner, "chat")
    deployments.end(deployment, actor=owner)
    assert f"/deployments/{deployment.pk}/" not in urls(owner, "chat")


def test_a_search_is_bounded() -> None:
    owner = make_user()
    for number in range(MAX_OF_A_KIND + 1):
        make_folder(owner, name=f"many-{number}")
    with CaptureQueriesContext(connection) as queries:
        assert len(urls(owner, "many-")) == MAX_OF_A_KIND
    assert len(queries) <= 8
    assert urls(owner, "many-" + "x" * 1000) == []


def test_sessions_are_found_by_the_index_of_live_ones() -> None:
    """Most of the table has ended, and it is asked at every key."""
    live = [run_session(name="one"), parked_session(name="one"), make_session(name="one")]
    admin = make_user(is_superuser=True)
    with CaptureQueriesContext(connection) as queries:
        assert {f"/sessions/{session.pk}/" for session in live} <= set(urls(admin, "one"))
    sql = next(each["sql"] for each in queries if Session._meta.db_table in each["sql"])
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")  # as with a large table
        cursor.execute(f"EXPLAIN {sql}")
        plan = str(cursor.fetchall())
    assert "session_live_name_unique" in plan


def test_the_help_is_searched() -> None:
    assert any(url.startswith("/help/parking/") for url in urls(make_user(), "park a session"))
    assert not any(url.startswith("/help/backup/") for url in urls(make_user(), "backup"))


def test_htmx_gets_the_dialog_or_what_was_found() -> None:
    owner = make_user()
    make_session(owner=owner, name="<b>odd")
    browser = browser_of(owner)
    dialog = text_of(browser, "/palette/", **HTMX)
    assert 'href="/folders/create/"' in dialog
    assert "<html" not in dialog
    assert "/admin/" not in dialog
    found = text_of(browser, "/palette/?q=odd", **HTMX)
    assert "&lt;b&gt;odd" in found
    assert "data-palette" not in found
    page = text_of(browser, "/palette/?q=odd")
    assert 'hx-target="#dialog-body"' not in page.partition("palette-link")[2].partition(">")[0]  # two palettes
    assert "tabindex" not in page.partition("palette-options")[2].partition("palette-none")[0]  # scripts may not run
    assert 'value="odd"' in page
    assert "&lt;b&gt;odd" in page
    assert "/admin/" in text_of(browser_of(make_user(is_superuser=True, is_staff=True)), "/palette/", **HTMX)
