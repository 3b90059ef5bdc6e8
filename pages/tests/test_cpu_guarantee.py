"""What pages say of the cores that are guaranteed to a session, where its group overcommits CPU."""

from decimal import Decimal

import pytest

from pages.session_list.occupancy import occupancy_of
from pages.session_list.row_queries import load_rows
from resources.models import Host, ResourceGroup
from sessions.models import Session
from tests.api import client_of
from tests.factories import make_group, make_host, make_session, make_user, run_session
from tests.web import browser_of, text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def host() -> Host:
    return make_host(name="shared", group=make_group(name="lab", cpu_overcommit=Decimal(4)), cpu=8)


@pytest.fixture
def session(host: Host) -> Session:
    return run_session(host=host, cpu=3)


def test_the_session_page_says_what_is_guaranteed(session: Session) -> None:
    text = "of which 0.75 guaranteed, the rest while others leave it idle"
    assert text in text_of(browser_of(session.owner), f"/sessions/{session.pk}/")
    assert "Of each core, 0.25 is guaranteed" in text_of(browser_of(session.owner), f"/sessions/{session.pk}/resize/")
    whole = run_session(cpu=3)
    assert "guaranteed" not in text_of(browser_of(whole.owner), f"/sessions/{whole.pk}/")


def test_rows_show_what_was_guaranteed_at_placement(session: Session) -> None:
    ResourceGroup.objects.update(cpu_overcommit=2)
    waits = make_session(resource_group=session.resource_group)
    assert [row.core_milli for row in load_rows([session.pk, waits.pk])] == [250, 500]
    assert "0.75 guaranteed" in text_of(browser_of(session.owner), "/sessions/")


def test_the_api_shows_what_is_guaranteed(session: Session) -> None:
    ResourceGroup.objects.update(cpu_overcommit=2)
    waits = make_session(resource_group=session.resource_group, owner=session.owner)
    client = client_of(session.owner)
    shown = [client.get(f"/api/v1/sessions/{each.pk}/").json() for each in (session, waits)]
    assert [(each["cpu"], each["cpu_guaranteed_milli"]) for each in shown] == [(3, 750), (1, 500)]


def test_hosts_and_groups_show_the_guaranteed_cores(session: Session) -> None:
    browser = browser_of(make_user())
    assert "0.75 of 8 cores" in text_of(browser, "/hosts/")
    assert "7.25 free" in text_of(browser, "/")
    assert "CPU cores, guaranteed" in text_of(browser, "/")


def test_free_cores_of_a_group_are_those_to_ask_for(session: Session) -> None:
    assert occupancy_of(session.resource_group).free.cpu == 4 * 8 - 3
