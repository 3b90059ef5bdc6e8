"""Clusters over the API: lists show them once, with the status of the whole and their members."""

import asyncio
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from accounts.models import User
from resources.amounts.units import GIB
from sessions.following.all_sessions import FeedPosition, _read
from sessions.following.stream import status_events
from sessions.lifecycle import PROGRESS, Reason, Status, whole_of
from sessions.models import Session, whole_status
from tests.api import client_of
from tests.factories import (
    make_cluster,
    make_group,
    make_host,
    make_image,
    make_session,
    make_user,
    moved_to,
    run_session,
)

URL = "/api/v1/sessions/"
pytestmark = pytest.mark.django_db


@pytest.fixture
def user() -> User:
    return make_user()


@pytest.mark.parametrize("first", [*PROGRESS, Status.TERMINATED, Status.ERROR])
@pytest.mark.parametrize("second", [*PROGRESS, Status.TERMINATED, Status.ERROR])
def test_queries_know_the_status_of_the_whole(user: User, first: Status, second: Status) -> None:
    members = make_cluster(2, owner=user)
    for member, status in zip(members, (first, second), strict=True):
        moved_to(status, member)
    [whole] = Session.objects.mains().annotate(found=whole_status()).values_list("found", flat=True)
    head = Session.objects.with_members().get(pk=members[0].pk)
    assert whole == head.whole_status == whole_of([first, second])
    assert list(Session.objects.mains_in([whole])) == [head]
    assert not Session.objects.mains_in([status for status in Status if status != whole]).exists()


def test_a_cluster_is_running_once_all_members_are(user: User) -> None:
    head, *others = make_cluster(3, owner=user, name="train")
    run_session(head)
    run_session(others[0])
    [row] = client_of(user).get(URL).json()["results"]
    assert (row["id"], row["name"], row["status"]) == (head.pk, "train", "PENDING")
    run_session(others[1])
    [row] = client_of(user).get(URL, {"status": "RUNNING"}).json()["results"]
    hosts = list(Session.objects.order_by("rank").values_list("host__name", flat=True))
    started = {"status": "RUNNING", "reason": "STARTED", "exit_code": None, "cpu": 1, "memory": GIB, "fgpu": "0"}
    started |= {"gpu_memory": 0, "min_fgpu": "0"}
    assert row["cluster"] == {
        **{"size": 3, "max_size": None, "mode": "any", "shares_gpus": False, "runs_on_all": False},
        **{"main_differs": False},
        **{"max_restarts": 0, "restarts": 0},
        "members": [
            {"id": member.pk, "name": name, "host": host, **started}
            for member, name, host in zip((head, *others), ("main1", "sub1", "sub2"), hosts, strict=True)
        ],
    }


def test_a_member_is_shown_by_its_id_alone(user: User) -> None:
    head, member = make_cluster(2, owner=user)
    run_session(head)
    row = client_of(user).get(f"{URL}{member.pk}/").json()
    assert (row["id"], row["status"], row["cluster"]["size"]) == (member.pk, "PENDING", 2)
    assert client_of(make_user()).get(f"{URL}{member.pk}/").status_code == 404
    for query in ({}, {"tab": "running"}, {"search": head.name}, {"search": member.pk[:9]}, {"status": "PENDING"}):
        assert [row["id"] for row in client_of(user).get(URL, query).json()["results"]] == [head.pk]
    assert client_of(user).get(URL, {"status": "RUNNING"}).json()["count"] == 0


@pytest.mark.parametrize("count", [1, 5])
def test_clusters_take_one_query_more_at_most(
    count: int, user: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(count):
        for member in make_cluster(4, owner=user):
            run_session(member)
    make_session(owner=user)
    with django_assert_num_queries(8):
        assert client_of(user).get(URL).json()["count"] == count + 1


def test_no_session_depends_on_a_member(user: User) -> None:
    head, member = make_cluster(2, owner=user)
    order = {"image": head.image.reference, "cpu": 1, "memory": "1g", "resource_group": head.resource_group.name}
    answer = client_of(user).post(URL, order | {"depends_on": [member.pk]})
    assert list(answer.json()["errors"]) == ["depends_on"]


def test_a_change_of_a_member_is_told_of_the_whole(user: User) -> None:
    head, member = make_cluster(2, owner=user)
    start = FeedPosition(0, frozenset())
    run_session(member)
    found = _read(user.pk, start, {}, lambda ids: dict.fromkeys(ids, "shown"), lambda event: event.new_status)
    assert found.sessions == {head.pk: "shown"}
    assert [event[1:] for event in found.events] == [
        (head.pk, status) for status in ("SCHEDULED", "PREPARING", "RUNNING")
    ]


@pytest.mark.django_db(transaction=True)
def test_following_a_cluster_ends_with_its_last_member(user: User) -> None:
    head, member = map(run_session, make_cluster(2, owner=user))

    def show(session: Session) -> str:
        status: str = session.whole_status
        if status == Status.RUNNING and session.status != Status.RUNNING:  # seen once: then the other ends too
            member.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
        return status

    async def followed() -> list[tuple[str, Any]]:
        events = status_events(head, 10**9, show, lambda event: event.new_status)
        return [(event.name, event.data) async for event in events]

    head.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
    assert [name for name, _ in asyncio.run(followed())] == ["wait", "end"]


CLUSTER: dict[str, Any] = {"size": 4, "mode": "spread", "shares_gpus": True, "runs_on_all": True, "max_restarts": 2}


def order_of(hosts: int = 4, **cluster: Any) -> dict[str, Any]:
    group = make_group()
    for _ in range(hosts):
        make_host(group=group, gpus=1)
    amounts = {"cpu": 1, "memory": "1g", "fgpu": "0.5", "resource_group": group.name}
    return amounts | {"image": make_image().reference, "command": "torchrun train.py", "cluster": CLUSTER | cluster}


def test_a_launch_asks_for_a_cluster(user: User) -> None:
    [row] = client_of(user).post(URL, order_of() | {"name": "train"}).json()
    members = row["cluster"].pop("members")
    assert row["cluster"] == CLUSTER | {"restarts": 0, "max_size": None, "main_differs": False}
    assert [member["name"] for member in members] == ["main1", "sub1", "sub2", "sub3"]
    assert members[0]["id"] == row["id"]
    assert Session.objects.filter(owner=user, name="train", command="torchrun train.py").count() == 4


def test_elastic_members_are_shown_but_do_not_wait(user: User) -> None:
    user.policy.max_pending = 4
    user.policy.save()
    [row] = client_of(user).post(URL, order_of(max_size=6)).json()
    assert (row["cluster"]["size"], row["cluster"]["max_size"], len(row["cluster"]["members"])) == (4, 6, 6)
    user.policy.max_cluster_size = 5
    user.policy.max_pending = None
    user.policy.save()
    answer = client_of(user).post(URL, order_of(max_size=6))
    assert list(answer.json()["errors"]) == ["cluster.max_size"]


def test_a_cluster_grows_to_as_many_as_may_run(user: User) -> None:
    user.policy.max_sessions = 5
    user.policy.save()
    [text] = client_of(user).post(URL, order_of(max_size=6)).json()["errors"]["cluster.max_size"]
    assert text == "Your policy allows at most 5 sessions at once; each member is one."
    assert not Session.objects.exists()
    assert client_of(user).post(URL, order_of(max_size=5)).status_code == 201


@pytest.mark.parametrize(
    ("cluster", "field"),
    [
        ({"size": 1}, "cluster.size"),
        ({"size": 65}, "cluster.size"),
        ({"size": "many"}, "cluster.size"),
        ({"mode": "anywhere"}, "cluster.mode"),
        ({"mode": "single-host", "shares_gpus": False}, "cluster.mode"),
        ({"max_restarts": 11}, "cluster.max_restarts"),
        ({"max_size": 3}, "cluster.max_size"),
        ({"max_size": 65}, "cluster.max_size"),
        ({"size": 1, "max_size": 1}, "cluster.size"),
        ({"max_restarts": -1}, "cluster.max_restarts"),
        ({"members": 4}, "cluster.members"),
    ],
)
def test_a_wrong_cluster_is_refused_at_its_field(user: User, cluster: dict[str, Any], field: str) -> None:
    order = order_of(**cluster)
    for url in (URL, f"{URL}estimate/"):
        answer = client_of(user).post(url, order)
        assert (answer.status_code, list(answer.json()["errors"])) == (400, [field])
    assert not Session.objects.exists()


@pytest.mark.parametrize(("cluster", "field"), [(None, ""), (4, "cluster"), ({}, "cluster.size")])
def test_a_cluster_is_an_object_with_a_size(user: User, cluster: Any, field: str) -> None:
    answer = client_of(user).post(URL, order_of() | {"cluster": cluster})
    assert list(answer.json()["errors"] if field else []) == [field][: bool(field)]
    assert (answer.status_code == 201) == (not field)
