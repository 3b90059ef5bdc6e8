"""Estimates before launching: what then happens, and without writes."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from accounts.models import User
from resources.amounts.units import GIB
from resources.models import Host
from scheduler.advice.estimate import estimate
from scheduler.cycle.passes import run_pass
from scheduler.state.wait_status import round_up_to_minute
from sessions.launching import services
from sessions.lifecycle import Kind, Reason, Status
from sessions.models import STOP_DURATION, Session
from sessions.tests.launch_requests import make_launch_request
from tests.api import client_of
from tests.factories import make_group, make_host, make_image, make_policy, make_session, make_user, run_session
from tests.web import browser_of

URL = "/api/v1/sessions/estimate/"
PAGE = "/sessions/launch/advice/"
HOUR = timedelta(hours=1)
pytestmark = pytest.mark.django_db


@pytest.fixture
def host() -> Host:
    """A host with one GPU of 2 fGPU."""
    return make_host(gpus=1)


@pytest.fixture
def body(host: Host) -> dict[str, Any]:
    return {"image": make_image().reference, "cpu": 1, "memory": "1g", "fgpu": "1", "resource_group": host.group.name}


def form(host: Host, **changes: Any) -> dict[str, Any]:
    typed = {"image": make_image().pk, "resource_group": host.group.pk, "preset": "", "name": "", "count": "1"}
    return typed | {"cpu": "1", "memory": "1g", "shared_memory": "64m", "fgpu": "1"} | changes


def advice_text(user: User, typed: dict[str, Any]) -> str:
    response = browser_of(user).post(PAGE, typed)
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


def test_strangers_get_no_estimate(body: dict[str, Any]) -> None:
    assert client_of().post(URL, body).status_code == 401
    assert browser_of(make_user()).get(PAGE).status_code == 405
    assert client_of().post(PAGE, body).status_code == 302


def test_a_fitting_request_starts_now_without_writes(body: dict[str, Any]) -> None:
    answer = client_of(make_user()).post(URL, body)
    now = {
        "starts": "now",
        "reason": "",
        "eta_reason": "",
        "starts_from": None,
        "starts_until": None,
        "certainty": None,
    }
    assert answer.json() == {**now, "sessions": [now], "alternatives": [], "gpus": []}
    assert not Session.objects.exists()


def test_a_waiting_request_gets_estimate_reason_and_alternatives(host: Host, body: dict[str, Any]) -> None:
    user = make_user()
    running = run_session(host=host, fgpu=1500, time_limit=2 * HOUR)
    answer = client_of(user).post(URL, body).json()
    assert running.started_at
    assert datetime.fromisoformat(answer["starts"]) == running.started_at + 2 * HOUR + STOP_DURATION
    told = [datetime.fromisoformat(answer[name]) for name in ("starts_from", "starts_until")]
    assert answer["certainty"] == 0.8
    assert told[0] < told[1] - timedelta(minutes=5) < datetime.fromisoformat(answer["starts"])
    assert answer["reason"] == "Waiting for 1 fGPU on one GPU: the most that is free on a single GPU is 0.5."
    assert answer["eta_reason"] == "1 fGPU falls free when 1 session reaches its time limit"
    smaller = {"resource_group": host.group.name, "cpu": 1, "memory": GIB, "fgpu": "0.5", "starts": "now"}
    assert answer["alternatives"] == [smaller]
    page = advice_text(user, form(host))
    assert "Starts <time" in page
    assert "</time>, 8 of 10" in page
    assert "because 1 fGPU falls free when 1 session reaches its time limit." in page
    assert "now with 0.5 fGPU" in page


def test_without_time_limits_there_is_no_estimate(host: Host, body: dict[str, Any]) -> None:
    run_session(host=host, fgpu=2000)
    answer = client_of(make_user()).post(URL, body).json()
    assert (answer["starts"], answer["alternatives"]) == (None, [])
    assert "Starts when there is room" in advice_text(make_user(), form(host))


def test_sessions_that_end_for_it_are_in_the_estimate(host: Host, body: dict[str, Any]) -> None:
    for _ in range(2):
        run_session(host=host, fgpu=1000, is_preemptible=True, time_limit=2 * HOUR)
    user, before = make_user(), timezone.now()
    answer = client_of(user).post(URL, body | {"count": 2}).json()
    grace = host.group.preemption_grace + STOP_DURATION
    starts = [datetime.fromisoformat(session["starts"]) for session in answer["sessions"]]
    assert all(before + grace <= at < before + HOUR for at in starts)
    assert answer["eta_reason"] == "by then the preemptible sessions in its way have ended"
    own = client_of(user).post(URL, body | {"preemptible": True}).json()
    assert datetime.fromisoformat(own["starts"]) > before + HOUR


def test_only_usable_groups_are_proposed(host: Host, body: dict[str, Any]) -> None:
    run_session(host=host, fgpu=2000)
    other = make_host(gpus=1, group=make_group(open_to_all=False, name="private"))
    user, member = make_user(), make_user()
    other.group.users.add(member)
    assert client_of(user).post(URL, body).json()["alternatives"] == []
    proposed = client_of(member).post(URL, body).json()["alternatives"]
    assert [(each["resource_group"], each["fgpu"], each["starts"]) for each in proposed] == [("private", "1", "now")]
    assert "now in private" in advice_text(member, form(host))


def test_several_sessions_are_estimated_by_the_last(host: Host, body: dict[str, Any]) -> None:
    user = make_user()
    assert client_of(user).post(URL, body | {"count": 2}).json()["starts"] == "now"
    assert client_of(user).post(URL, body | {"count": 3}).json()["starts"] is None
    assert "All 2 start now" in advice_text(user, form(host, count="2"))
    three = advice_text(user, form(host, count="3"))
    assert "2 start now" in three
    assert "1 starts when there is room" in three
    assert "all now with 0.66 fGPU each" in three


@pytest.mark.parametrize("mode", [{}, {"mode": "spread"}])
def test_a_cluster_is_estimated_as_one_request(host: Host, body: dict[str, Any], mode: dict[str, Any]) -> None:
    make_host(group=host.group, gpus=1)
    run_session(host=host, fgpu=1500, time_limit=2 * HOUR)
    answer = client_of(make_user()).post(URL, body | {"cluster": {"size": 2, **mode}}).json()
    assert answer["starts"] not in ("now", None)
    assert len(answer["sessions"]) == 1


def test_start_times_and_dependencies_are_respected(host: Host, body: dict[str, Any]) -> None:
    user = make_user()
    later = timezone.now().astimezone(UTC).replace(microsecond=0) + 300 * HOUR
    first = make_session(owner=user, resource_group=host.group)
    answer = client_of(user).post(URL, body | {"not_before": later.isoformat()})
    assert answer.json()["starts"] == later.isoformat().replace("+00:00", "Z"), answer.json()
    answer = client_of(user).post(URL, body | {"depends_on": [first.pk]})
    assert (answer.json()["starts"], "depends" in answer.json()["reason"]) == (None, True)
    ran = run_session(host=host, owner=user, kind=Kind.BATCH, command="false")
    for kind, starts in {"after": "now", "after_any": None, "after_not_ok": None, "after_ok": None}.items():
        assert client_of(user).post(URL, body | {"depends_on": [f"{kind}:{ran.pk}"]}).json()["starts"] == starts, kind
    ran.move_to(Status.ERROR, Reason.CONTAINER_EXITED)
    for kind in ("after", "after_any", "after_not_ok"):
        assert client_of(user).post(URL, body | {"depends_on": [f"{kind}:{ran.pk}"]}).json()["starts"] == "now", kind


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"cpu": 0}, "cpu"),
        ({"cpu": 17}, "cpu"),
        ({"fgpu": "0.005"}, "fgpu"),
        ({"fgpu": "3"}, "fgpu"),
        ({"nonsense": 1}, "nonsense"),
        ({"time_limit": "3d"}, "time_limit"),
    ],
)
def test_invalid_requests_are_refused_at_the_same_field(
    body: dict[str, Any], wrong: dict[str, Any], field: str
) -> None:
    user = make_user(policy=make_policy(max_lifetime=2 * HOUR))
    answers = [client_of(user).post(url, body | wrong) for url in (URL, "/api/v1/sessions/")]
    assert [answer.status_code for answer in answers] == [400, 400]
    assert answers[0].json() == answers[1].json()
    assert list(answers[0].json()["errors"]) == [field]


def test_the_page_shows_errors_instead_of_an_estimate(host: Host) -> None:
    assert "Write a whole number of cores." in advice_text(make_user(), form(host, cpu="x"))
    assert "2 fGPU" in advice_text(make_user(), form(host, fgpu="3"))


@pytest.mark.parametrize("count", [1, 20])
def test_an_estimate_takes_a_constant_number_of_queries(
    host: Host, count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    user = make_user()
    for _ in range(count):
        make_session(resource_group=host.group)
        run_session(resource_group=host.group)
    order = make_launch_request(host)
    with django_assert_num_queries(27):
        estimate(user, order)


@pytest.mark.parametrize("seed", range(12))
def test_the_estimate_is_what_happens(seed: int) -> None:
    random = Random(seed)
    group, users = make_group(), [make_user() for _ in range(3)]
    hosts = [make_host(group=group, gpus=random.randint(1, 2), cpu=8) for _ in range(2)]
    for _ in range(random.randint(0, 8)):
        limit = random.choice([None, HOUR * random.randint(1, 9)])
        shape = {"cpu": random.randint(1, 4), "fgpu": random.choice([0, 500, 1000, 2000])}
        make_session(owner=random.choice(users), resource_group=group, time_limit=limit, **shape)
    run_pass()
    order = make_launch_request(hosts[0], cpu=random.randint(1, 4), memory=GIB, fgpu=random.choice([0, 500, 2000]))
    promised = estimate(users[0], order).advice.last.starts
    (session,) = services.submit(users[0], order)
    run_pass()
    session.refresh_from_db()
    if promised == "now":
        assert session.status == Status.SCHEDULED
    else:
        assert session.status == Status.PENDING
        assert session.eta == round_up_to_minute(promised)
