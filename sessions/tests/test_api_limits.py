"""What I may still ask for, over the API."""

import pytest

from resources.amounts.units import GIB
from tests.api import client_of
from tests.factories import make_gpu, make_group, make_host, make_policy, make_session, make_user, run_session

URL = "/api/v1/me/limits/"
pytestmark = pytest.mark.django_db


def test_limits_show_usage_and_remaining() -> None:
    policy = make_policy(
        cpu=8, memory=32 * GIB, fgpu=1500, max_sessions=3, max_pending=5, max_cluster_size=16, max_array_tasks=7
    )
    user, host = make_user(policy=policy), make_host(gpus=2, cpu=12, memory=48 * GIB)
    make_gpu(host=host, index=9, is_present=False)
    run_session(make_session(owner=user, cpu=2, memory=4 * GIB, fgpu=350, resource_group=host.group), host=host)
    make_session(owner=user, cpu=8)
    run_session(host=host)
    user.resource_groups.clear()
    answer = client_of(user).get(URL, {"resource_group": host.group.name})
    assert answer.json() == {
        "limits": {"cpu": 8, "memory": 32 * GIB, "fgpu": "1.5", "sessions": 3, "pending": 5},
        "used": {"cpu": 2, "memory": 4 * GIB, "fgpu": "0.35", "sessions": 1, "pending": 1},
        "remaining": {"cpu": 6, "memory": 28 * GIB, "fgpu": "1.15", "sessions": 2, "pending": 4},
        "resource_group": host.group.name,
        "per_session": {"cpu": 12, "memory": 48 * GIB, "fgpu": "4"},
        "max_per_launch": None,
        "max_cluster_size": 16,
        "max_array_tasks": 7,
        "max_priority": 10,
        "project": None,
    }


def test_no_limit_is_null() -> None:
    body = client_of(make_user()).get(URL).json()
    nothing = {"cpu": None, "memory": None, "fgpu": None, "sessions": None, "pending": None}
    assert (body["limits"], body["remaining"], body["per_session"]) == (nothing, nothing, None)


def test_the_group_is_optional_if_unique() -> None:
    make_group(name="only")
    user = make_user()
    assert client_of(user).get(URL).json()["resource_group"] == "only"
    make_group(name="another")
    assert client_of(user).get(URL).json()["resource_group"] is None


@pytest.mark.parametrize("name", ["hidden", "no such", "\0", "x" * 65])
def test_an_inaccessible_group_is_refused(name: str) -> None:
    make_group(name="hidden", open_to_all=False)
    answer = client_of(make_user()).get(URL, {"resource_group": name})
    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["resource_group"])


def test_a_stranger_is_401() -> None:
    assert client_of().get(URL).status_code == 401
