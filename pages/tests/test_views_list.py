"""The list of sessions: tabs, search, order, bars, and what each row says."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from pages.session_list import queries
from pages.session_list.queries import Part
from resources.models import HostStatus
from resources.units import GIB
from sessions.lifecycle import Reason, Status, Tab
from sessions.models import Session
from tests.factories import make_group, make_host, make_image, make_policy, make_session, make_user, run_session
from tests.web import HTMX, browser_of, text_of

pytestmark = pytest.mark.django_db


def names(user: User, tab: Tab = Tab.RUNNING, search: str = "", sort: str = "name") -> list[str]:
    return [session.name for session in queries.listed(user, tab, search, sort)]


def ended(session: Session, target: Status, reason: Reason) -> Session:
    session.move_to(target, reason)
    return session


def test_each_tab_counts_and_lists_its_sessions() -> None:
    owner = make_user()
    make_session(owner=owner, name="waiting-one")
    run_session(owner=owner, name="running-one")
    ended(make_session(owner=owner, name="cancelled-one"), Status.CANCELLED, Reason.USER_REQUEST)
    ended(run_session(owner=owner, name="failed-one"), Status.ERROR, Reason.OUT_OF_MEMORY)
    make_session(name="of-another")
    assert queries.tab_counts(owner) == {Tab.RUNNING: 2, Tab.FINISHED: 1, Tab.OTHERS: 1}
    assert names(owner) == ["running-one", "waiting-one"]
    page = text_of(browser_of(owner), "/sessions/?tab=others")
    assert "failed-one" in page
    assert "Out of memory" in page
    assert "of-another" not in page


def test_a_superadmin_sees_all_with_their_owners() -> None:
    session = make_session(owner=make_user(email="ada@example.org"))
    page = text_of(browser_of(make_user(is_superuser=True)), "/sessions/")
    assert session.name in page
    assert "ada@example.org" in page


def test_the_search_looks_at_name_image_and_id() -> None:
    owner = make_user()
    image = make_image(environment="TensorFlow", version="2.17", reference="tensorflow/tensorflow:2.17.0")
    one = make_session(owner=owner, name="bert-large")
    make_session(owner=owner, name="other", image=image)
    assert names(owner, search="BERT") == ["bert-large"]
    assert names(owner, search="tensor") == ["other"]
    assert names(owner, search=one.pk[:8]) == ["bert-large"]
    assert names(owner, search="100%") == []


def test_an_unknown_sort_shows_newest_first() -> None:
    owner = make_user()
    for name in ("beta-1", "alpha", "gamma"):
        make_session(owner=owner, name=name)
    assert names(owner, sort="name") == ["alpha", "beta-1", "gamma"]
    assert names(owner, sort="-name") == ["gamma", "beta-1", "alpha"]
    assert names(owner, sort="password") == ["gamma", "alpha", "beta-1"]


def test_the_list_explains_waiting_and_unreachable_hosts() -> None:
    owner = make_user()
    make_session(owner=owner, reason=Reason.NO_CAPACITY.value, detail="Needs 1 fGPU; the most free is 0.65.")
    run_session(owner=owner, host=make_host(status=HostStatus.LOST.value))
    page = text_of(browser_of(owner), "/sessions/")
    assert "Needs 1 fGPU; the most free is 0.65." in page
    assert "host unreachable" in page


def test_a_session_shows_its_configuration() -> None:
    host = make_host(gpus=1)
    session = run_session(host=host, fgpu=350, memory=2 * GIB, cpu=2)
    page = text_of(browser_of(session.owner), "/sessions/")
    assert "2 GiB" in page
    assert '0.35 <span class="unit">fGPU</span>' in page
    assert "hook, simulated</span>" in page
    assert host.name in page
    assert host.group.name in page


def test_a_page_too_far_is_the_last() -> None:
    owner = make_user()
    shared = {"owner": owner, "image": make_image(), "resource_group": make_group()}
    for number in range(30):
        make_session(**shared, name=f"number-{number:02}")
    browser = browser_of(owner)
    assert "number-00" not in text_of(browser, "/sessions/")
    assert "number-00" in text_of(browser, "/sessions/?page=2")
    assert "number-00" in text_of(browser, "/sessions/?page=99")


def test_the_live_update_is_only_the_list() -> None:
    session = make_session()
    part = text_of(browser_of(session.owner), "/sessions/", **HTMX)
    assert session.name in part
    assert "<html" not in part


def test_the_page_takes_a_constant_number_of_queries() -> None:
    owner = make_user(is_superuser=True)
    host = make_host(gpus=4, cpu=64)
    browser = browser_of(owner)

    def count() -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            text_of(browser, "/sessions/")
        return len(captured)

    run_session(host=host, fgpu=100)
    few = count()
    for _ in range(19):
        run_session(host=host, fgpu=100)
    assert count() == few
    assert few <= 16


def test_the_bars_show_usage_and_limits() -> None:
    policy = make_policy(cpu=10, memory=20 * GIB, fgpu=3000, max_sessions=4)
    owner, group = make_user(policy=policy), make_group(fgpu_per_gpu=2)
    here, elsewhere = make_host(group=group, gpus=1, cpu=8, memory=16 * GIB), make_host(gpus=1)
    run_session(owner=owner, host=here, cpu=2, memory=4 * GIB, fgpu=500)
    run_session(owner=owner, host=elsewhere, cpu=3, memory=GIB, fgpu=1000)
    run_session(host=here, cpu=4, memory=2 * GIB, fgpu=1000)
    bars = {bar.name: (bar.here, bar.everywhere) for bar in queries.resource_bars(owner, group)}
    assert bars == {
        "cpu": (Part(used=2, most=4), Part(used=5, most=7)),  # the group has 2 left, the policy 5
        "memory": (Part(used=4 * GIB, most=14 * GIB), Part(used=5 * GIB, most=15 * GIB)),  # the group 10, the policy 15
        "fgpu": (Part(used=500, most=1000), Part(used=1500, most=2000)),  # the group 0.5, the policy 1.5
        "sessions": (Part(used=1, most=3), Part(used=2, most=4)),
    }


def test_unavailable_hosts_do_not_count_in_bars() -> None:
    group = make_group()
    make_host(group=group, gpus=1, status=HostStatus.LOST.value)
    make_host(group=group, gpus=1, is_cordoned=True)
    bars = {bar.name: bar.here for bar in queries.resource_bars(make_user(), group)}
    assert bars["cpu"] == Part(used=0, most=0)
    assert bars["fgpu"] == Part(used=0, most=0)
    assert bars["sessions"] == Part(used=0, most=None)


def test_the_list_explains_a_missing_group() -> None:
    page = text_of(browser_of(make_user()), "/sessions/")
    assert "No resource group is open to you yet" in page
