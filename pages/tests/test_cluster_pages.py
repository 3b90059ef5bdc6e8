"""Clusters on pages: one row in lists, which opens to the members; each member has a page."""

import csv
import json
import re
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoCaptureOnCommitCallbacks

from accounts.models import User
from pages.session_list.list_query import section_counts
from pages.session_list.live.feed import Audience, change_messages
from sessions.lifecycle import Reason, Status
from sessions.models import Cluster, Session
from tests.factories import make_cluster, make_host, make_project, make_session, make_user, moved_to, run_session
from tests.web import browser_of, text_of

TIMES = "\N{MULTIPLICATION SIGN}"
pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    return make_user()


def part(page: str, start: str, end: str) -> str:
    """Return the text of a part of a page, without its elements."""
    return " ".join(re.sub(r"<[^>]+>", " ", page.partition(start)[2].partition(end)[0]).split())


def test_the_list_has_one_row_that_opens_to_members(owner: User) -> None:
    head, *others = make_cluster(3, owner=owner, name="train")
    run_session(head)
    run_session(others[0])
    moved_to(Status.PREPARING, others[1])
    page = text_of(browser_of(owner), "/sessions/")
    assert page.count('<tr id="session-') == 1
    members = part(page, f'id="members-{head.pk}"', "</details>")
    assert re.search(
        TIMES + r" 3 members of train main1 Running host-\d+ sub1 Running host-\d+ sub2 Preparing host-\d+", members
    )
    assert f'href="/sessions/{others[1].pk}/"' in page
    assert "sub2: " in part(page, 'class="td-status"', "</td>")
    assert "each of 3 members" in page
    assert section_counts(owner) == dict.fromkeys(("running", "waiting", "parked", "finished", "others"), 0) | {
        "active": 1
    }


def test_elastic_members_that_wait_do_not_count(owner: User) -> None:
    head, elastic, *_ = make_cluster(1, max_size=3, owner=owner, name="train")
    run_session(head)
    page = text_of(browser_of(owner), "/sessions/")
    assert TIMES + " 1 member of train" in part(page, f'id="members-{head.pk}"', "</details>")
    assert section_counts(owner)["waiting"] == 0
    run_session(elastic)
    page = text_of(browser_of(owner), "/sessions/")
    assert TIMES + " 2 members of train" in part(page, f'id="members-{head.pk}"', "</details>")
    page = text_of(browser_of(owner), f"/sessions/{head.pk}/")
    assert TIMES + " 1\N{EN DASH}3" in page
    assert "sub2" in part(page, 'id="members-title"', "</table>"), "which waits for room"
    dialog = text_of(browser_of(owner), f"/sessions/terminate/?ids={elastic.pk}")
    assert "Its cluster goes on without it." in dialog


def test_a_member_that_moves_changes_the_row_of_the_whole(owner: User) -> None:
    head, member = map(run_session, make_cluster(2, owner=owner))
    audience = Audience(user_id=owner.pk, sees_all=False, columns=(), language="en")

    def row() -> dict[str, str]:
        message = json.loads(change_messages({audience: {head.pk, member.pk}})[audience])
        (found,) = message["rows"]
        assert (found["id"], message["counts"]["active"]) == (head.pk, int(found["tab"] == "running"))
        return {name: found[name] for name in ("status", "tab")}

    assert row() == {"status": "RUNNING", "tab": "running"}
    head.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
    assert row() == {"status": "RUNNING", "tab": "running"}  # the other member goes on
    member.move_to(Status.ERROR, Reason.OUT_OF_MEMORY)
    assert row() == {"status": "TERMINATED", "tab": "finished"}


def test_lists_are_told_of_the_whole_as_a_member_moves(
    owner: User, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    head, member = make_cluster(2, owner=owner)
    with django_capture_on_commit_callbacks() as callbacks:
        member.move_to(Status.CANCELLED, Reason.USER_REQUEST)
    told = [each.args[-1] for each in callbacks if isinstance(each, partial) and isinstance(each.args[-1], tuple)]
    assert {change[0] for changes in told for change in changes} == {head.pk, member.pk}


def test_each_member_has_a_page_with_all_members(owner: User) -> None:
    head, member = map(run_session, make_cluster(2, owner=owner, name="train"))
    browser = browser_of(owner)
    page = text_of(browser, f"/sessions/{head.pk}/")
    assert f"{TIMES} 2" in part(page, "<h1>train</h1>", "</div>")
    assert part(page, 'id="members-title">', "</section>").count("Running") == 2
    assert f'href="/sessions/{member.pk}/terminal/"' in page
    page = text_of(browser, f"/sessions/{member.pk}/")
    assert "<h1>train.sub1</h1>" in page
    assert f'data-live="{member.pk} {head.pk}"' in page
    assert f'data-url="/api/v1/sessions/{member.pk}/stats/"' in page
    assert f'href="/sessions/{head.pk}/"' in page
    assert "in the network of their hosts" not in page
    Cluster.objects.update(first_port=20_000)
    assert "on as few hosts as possible, in the network of their hosts" in text_of(browser, f"/sessions/{member.pk}/")
    for act in ("rename", "resize", "park", "terminate"):  # which are of the whole
        assert f"/sessions/{member.pk}/{act}/" not in page
    assert browser_of(make_user()).get(f"/sessions/{member.pk}/").status_code == 404


def test_summaries_show_and_count_a_cluster_once(owner: User) -> None:
    project = make_project(managers=[owner])
    host = make_host()
    common: dict[str, Any] = {"owner": owner, "resource_group": host.group, "name": "train", "project": project}
    head, *_ = (run_session(member, host=host) for member in make_cluster(3, **common))
    browser = browser_of(owner)
    for path, row in (("/", "mine"), (f"/projects/{project.pk}/", "of-project")):
        page = text_of(browser, path)
        assert page.count(f'<li id="{row}-') == 1
        assert f"{TIMES} 3" in part(page, f'<li id="{row}-{head.pk}">', "</li>")
    on_host = text_of(browser, f"/hosts/{host.name}/")
    assert [name for name in ("train", "train.sub1", "train.sub2") if f">{name}</a>" in on_host] == [
        *("train", "train.sub1", "train.sub2")
    ]
    (line,) = csv.DictReader(browser.get("/sessions/csv/").content.decode().splitlines())
    assert (line["name"], line["status"], line["members"]) == ("train", "RUNNING", "3")


def test_terminating_a_cluster_ends_the_members_that_go_on(owner: User) -> None:
    head, member = map(run_session, make_cluster(2, owner=owner, name="train"))
    head.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
    browser, address = browser_of(owner), f"/sessions/{head.pk}/terminate/"
    assert address in text_of(browser, f"/sessions/{head.pk}/")
    assert "train is a cluster: all 2 members end." in text_of(browser, address)
    assert "Ending train." in browser.post(address, follow=True).content.decode()
    member.refresh_from_db()
    assert (member.status, member.reason) == (Status.TERMINATING, Reason.USER_REQUEST)
    assert address not in text_of(browser, f"/sessions/{head.pk}/")


@pytest.mark.parametrize("path", ["/", "/sessions/", "/sessions/{}/"])
def test_more_members_take_no_more_queries(path: str, owner: User) -> None:
    def queries(size: int) -> int:
        Session.objects.all().delete()
        head, *_ = (run_session(member) for member in make_cluster(size, owner=owner))
        browser = browser_of(owner)
        text_of(browser, path.format(head.pk))
        with CaptureQueriesContext(connection) as captured:
            text_of(browser, path.format(head.pk))
        return len(captured)

    make_session(owner=owner)
    assert queries(2) == queries(5)
