"""The list of sessions: tabs, search, order, bars, and what each row says."""

import csv
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import User
from deployments.replicas.reconciliation import reconcile
from deployments.tests.making import make_deployment
from pages.session_list.list_query import ListQuery, section_counts
from pages.session_list.live import rendering
from pages.session_list.live.live_use import live_use
from pages.session_list.occupancy import occupancy_of
from pages.session_list.resource_bars import Bar, bars_of, gpu_map, gpu_shares_of, held_by
from pages.session_list.sections import SECTIONS
from resources.amounts.units import GIB
from resources.models import HostStatus, ResourceGroup
from sessions.launching import services
from sessions.lifecycle import Reason, Status, Tab
from sessions.models import Endpoint, Session, SessionUsage
from tests.factories import (
    make_endpoint,
    make_group,
    make_host,
    make_image,
    make_policy,
    make_session,
    make_user,
    parked_session,
    run_reachable_session,
    run_session,
    session_in,
)
from tests.web import HTMX, browser_of, text_of

pytestmark = pytest.mark.django_db


def names(user: User, tab: Tab = Tab.RUNNING, search: str = "", sort: str = "name") -> list[str]:
    query = ListQuery.from_parameters({"tab": tab, "q": search, "sort": sort})
    return [session.name for session in query.sessions(user)]


def bars(user: User, group: ResourceGroup) -> dict[str, Bar]:
    held = held_by([user.pk]).get(user.pk, {})
    return {bar.mine.name: bar for bar in bars_of(user.policy.limits(), held, group.pk, occupancy_of(group).free)}


def ended(session: Session, target: Status, reason: Reason) -> Session:
    session.move_to(target, reason)
    return session


def test_each_tab_counts_and_lists_its_sessions() -> None:
    owner = make_user()
    make_session(owner=owner, name="waiting-one")
    session_in(Status.PREPARING, owner=owner, name="starting-one")
    run_session(owner=owner, name="running-one")
    parked_session(owner=owner, name="parked-one")
    ended(make_session(owner=owner, name="cancelled-one"), Status.CANCELLED, Reason.USER_REQUEST)
    ended(run_session(owner=owner, name="failed-one"), Status.ERROR, Reason.OUT_OF_MEMORY)
    make_session(name="of-another")
    expected = {"active": 4, "running": 1, "waiting": 1, "parked": 1, "finished": 1, "others": 1}
    assert section_counts(owner) == expected
    assert names(owner) == ["parked-one", "running-one", "starting-one", "waiting-one"]
    browser = browser_of(owner)
    page = text_of(browser, "/sessions/?tab=others")
    assert "failed-one" in page
    assert "Out of memory" in page
    assert "of-another" not in page
    for section in SECTIONS:
        page = text_of(browser, f"/sessions/?tab={section.tab}&status={section.status or ''}")
        assert f'id="tab-{section.key}" class="tab active"' in page
        assert page.count('<tr id="session-') == expected[section.key]
        assert '<span class="tab-count">' not in page  # no filter is set


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
    assert "0.35 fGPU" in page
    assert "limited by the platform, watched by the host, simulated" in page
    assert f"GPU 0 of host {host.name}" in page


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
    assert few <= 21


def test_the_bars_show_usage_and_limits() -> None:
    policy = make_policy(cpu=10, memory=20 * GIB, fgpu=3000, max_sessions=4)
    owner, group = make_user(policy=policy), make_group(fgpu_per_gpu=2)
    here, elsewhere = make_host(group=group, gpus=1, cpu=8, memory=16 * GIB), make_host(gpus=1)
    run_session(owner=owner, host=here, cpu=2, memory=4 * GIB, fgpu=500)
    run_session(owner=owner, host=elsewhere, cpu=3, memory=GIB, fgpu=1000)
    run_session(host=here, cpu=4, memory=2 * GIB, fgpu=1000)
    found = {
        name: [(each.used, each.most) for each in (bar.mine, bar.here, bar.everywhere)]
        for name, bar in bars(owner, group).items()
    }
    assert found == {
        "cpu": [(5, 10), (2, 4), (5, 7)],  # the group has 2 left, the policy 5
        "memory": [(5 * GIB, 20 * GIB), (4 * GIB, 14 * GIB), (5 * GIB, 15 * GIB)],  # the group 10, the policy 15
        "fgpu": [(1500, 3000), (500, 1000), (1500, 2000)],  # the group 0.5, the policy 1.5
        "sessions": [(2, 4), (1, 3), (2, 4)],
    }


def test_the_limit_stays_when_others_start() -> None:
    owner, host = make_user(policy=make_policy(cpu=10)), make_host(cpu=4)
    before = bars(owner, host.group)["cpu"]
    run_session(host=host, cpu=2)
    after = bars(owner, host.group)["cpu"]
    assert (before.mine.text, after.mine.text) == ("0 of 10 cores", "0 of 10 cores")
    assert (before.here.text, after.here.text) == ("0 of 4 cores", "0 of 2 cores")


def test_unavailable_hosts_do_not_count_in_bars() -> None:
    group = make_group()
    make_host(group=group, gpus=1, status=HostStatus.LOST.value)
    make_host(group=group, gpus=1, is_cordoned=True)
    found = bars(make_user(), group)
    assert found["cpu"].here.most == found["fgpu"].here.most == 0
    assert found["cpu"].here.text == "none available now"
    assert found["sessions"].here.text == "0 sessions, no limit"


def test_the_list_explains_a_missing_group() -> None:
    page = text_of(browser_of(make_user()), "/sessions/")
    assert "No resource group is open to you yet" in page


def test_gpu_blocks_say_who_holds_what() -> None:
    owner = make_user()
    host = make_host(gpus=2, cpu=64)
    run_session(owner=owner, host=host, fgpu=500)
    run_session(host=host, fgpu=1000)
    mine = gpu_shares_of([owner.pk], host.group_id)[owner.pk]
    found = gpu_map(occupancy_of(host.group), mine)
    assert [(block.mine_milli, block.others_milli, block.free_milli) for block in found.blocks] == [
        (500, 1000, 500),
        (0, 0, 2000),
    ]
    assert (found.mine_milli, found.others_milli, found.free_milli) == (500, 1000, 2500)
    page = text_of(browser_of(owner), "/sessions/")
    assert "you hold 0.5 fGPU, others hold 1, 0.5 free" in page


def test_large_groups_show_only_gpus_that_the_user_holds() -> None:
    owner = make_user()
    host = make_host(gpus=60, cpu=64)
    run_session(owner=owner, host=host, fgpu=1000)
    found = gpu_map(occupancy_of(host.group), gpu_shares_of([owner.pk], host.group_id)[owner.pk])
    assert len(found.blocks) == 1
    assert (found.count, found.free_count, found.partly_free_count) == (60, 59, 1)


def test_occupancy_is_read_again_after_each_change() -> None:
    host = make_host(gpus=1)
    assert occupancy_of(host.group).free_milli == 2000
    run_session(host=host, fgpu=500)
    assert occupancy_of(host.group).free_milli == 1500
    host.is_cordoned = True
    host.save()
    assert occupancy_of(host.group).free_milli == 0


def test_filters_narrow_the_list_and_are_counted() -> None:
    admin, image = make_user(is_superuser=True), make_image(environment="PyTorch")
    make_session(owner=admin, name="own-torch", image=image)
    make_session(name="other-torch", image=image)
    run_session(owner=admin, name="own-python")
    browser = browser_of(admin)

    def listed(parameters: str) -> set[str]:
        page = text_of(browser, f"/sessions/?{parameters}")
        return {name for name in ("own-torch", "other-torch", "own-python") if f">{name}</a>" in page}

    assert listed("environment=PyTorch") == {"own-torch", "other-torch"}
    assert listed("environment=PyTorch&owner=mine") == {"own-torch"}
    assert listed("status=RUNNING") == {"own-python"}
    assert listed("status=nonsense&in=x&size=7&environment=%00") == {"own-torch", "other-torch", "own-python"}
    assert listed(f"in={Session.objects.get(name='own-torch').resource_group_id}") == {"own-torch"}


def test_columns_are_chosen_and_kept() -> None:
    session = run_session()
    browser = browser_of(session.owner)
    assert 'class="td-time"' in text_of(browser, "/sessions/")
    answer = browser.post("/sessions/columns/", {"columns": ["place", "owner", "nonsense"], "next": "/sessions/?q=a"})
    assert answer["Location"] == "/sessions/?q=a"
    page = text_of(browser, "/sessions/")
    assert 'class="td-place"' in page
    assert 'class="td-time"' not in page
    assert 'class="row-owner"' not in page  # for superadmins alone
    far = browser.post("/sessions/columns/", {"next": "https://elsewhere.example/"})
    assert far["Location"] == "/sessions/"


def test_csv_has_every_match_and_runs_no_formula() -> None:
    owner = make_user(email="ada@example.org")
    shared = {"owner": owner, "image": make_image(), "resource_group": make_group()}
    for number in range(30):
        make_session(**shared, name=f"run-{number}", detail="=cmd|' /C calc'!A0")
    make_session(**shared, name="other")
    make_session(name="run-of-another")
    lines = list(csv.DictReader(text_of(browser_of(owner), "/sessions/csv/?q=run").splitlines()))
    assert len(lines) == 30
    assert lines[0]["owner"] == "ada@example.org"
    assert lines[0]["reason"] == "'=cmd|' /C calc'!A0"
    assert lines[0]["memory_bytes"] == str(GIB)


def test_live_use_is_that_of_the_last_record() -> None:
    session = run_session(host=make_host(gpus=1), fgpu=500)
    now = timezone.now()
    for seconds, busy in ((20, 10), (5, 25)):
        at = now - timedelta(seconds=seconds)
        SessionUsage.objects.create(session=session, at=at, cpu_milli=500, memory=GIB, gpu_utilisation=busy)
    stale = run_session()
    SessionUsage.objects.create(session=stale, at=now - timedelta(minutes=5), gpu_memory=GIB, gpu_utilisation=1)
    assert live_use([session.pk, stale.pk]) == {session.pk: [500, GIB, 25, None]}


def test_a_public_app_is_marked() -> None:
    session = run_reachable_session()
    browser = browser_of(session.owner)
    endpoint = make_endpoint(session, title="Demo", is_public=True)
    assert "may use: Demo" in text_of(browser, "/sessions/")
    Endpoint.objects.filter(pk=endpoint.pk).update(is_public=False)
    assert "may use: Demo" not in text_of(browser, "/sessions/")


def test_equal_rows_are_rendered_once() -> None:
    session = run_session()
    browser = browser_of(session.owner)
    text_of(browser, "/sessions/")
    before = rendering.rendered_count()
    text_of(browser, "/sessions/")
    assert rendering.rendered_count() == before
    services.terminate(session, actor=session.owner)
    text_of(browser, "/sessions/")
    assert rendering.rendered_count() == before + 1


def test_bars_add_up_all_sessions_of_the_user() -> None:
    host = make_host(gpus=1)
    user = make_user()
    for _ in range(3):
        run_session(host=host, owner=user, cpu=2)
    held = held_by([user.pk])[user.pk][host.group_id]
    assert (held.cpu, held.sessions) == (6, 3)


def test_replicas_are_marked_and_filtered() -> None:
    deployment = make_deployment(name="chat")
    reconcile(deployment.pk)
    [name] = deployment.replica_rows.values_list("session__name", flat=True)
    make_session(owner=deployment.owner, name="own-work")
    browser = browser_of(deployment.owner)
    page = text_of(browser, "/sessions/")
    assert "replica of chat</a>" in page
    assert f"/deployments/{deployment.pk}/" in page
    shown = {kind: text_of(browser, f"/sessions/?kind={kind}") for kind in ("", "replica", "-replica", "x")}
    assert {kind: (name in page, "own-work" in page) for kind, page in shown.items()} == {
        **{"": (True, True), "x": (True, True)},
        **{"replica": (True, False), "-replica": (False, True)},
    }


def test_ending_a_replica_is_said_to_be_in_vain() -> None:
    deployment = make_deployment(name="chat")
    reconcile(deployment.pk)
    session = Session.objects.get(replica__deployment=deployment)
    other = make_session(owner=deployment.owner)
    browser = browser_of(deployment.owner)
    words = "is a replica of the deployment chat: another takes its place."
    assert words in text_of(browser, f"/sessions/{session.pk}/terminate/")
    assert words not in text_of(browser, f"/sessions/{other.pk}/terminate/")
