"""Lists of images, groups, presets and hosts over the API: bounded to the caller, at a constant number of queries."""

from decimal import Decimal

import pytest
from pytest_django import DjangoAssertNumQueries

from accounts.models import User
from resources.amounts.units import GIB
from resources.models import Host, Image
from tests.api import client_of
from tests.factories import (
    make_gpu,
    make_group,
    make_host,
    make_image,
    make_preset,
    make_session,
    make_user,
    run_session,
)

LISTS = ("images", "resource-groups", "presets", "hosts")
pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("name", LISTS)
def test_a_stranger_gets_nothing(name: str) -> None:
    assert client_of().get(f"/api/v1/{name}/").status_code == 401


@pytest.mark.parametrize("name", LISTS)
def test_nothing_can_be_written(name: str) -> None:
    assert client_of(make_user(is_superuser=True)).post(f"/api/v1/{name}/", {}).status_code == 405


@pytest.mark.parametrize(("name", "queries"), [("images", 3), ("resource-groups", 2), ("presets", 2), ("hosts", 3)])
@pytest.mark.parametrize("rows", [1, 20])
def test_lists_take_a_constant_number_of_queries(
    name: str, queries: int, rows: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(rows):
        host = make_host(gpus=2)
        make_image()
        make_preset(group=host.group)
        run_session(host=host, fgpu=500)
    client = client_of(make_user())
    with django_assert_num_queries(queries):
        body = client.get(f"/api/v1/{name}/").json()
    assert body["count"] >= rows


def test_only_superadmins_see_disabled_images() -> None:
    shown, hidden = make_image(), make_image(is_enabled=False)
    user, superadmin = make_user(), make_user(is_superuser=True)
    assert names("images", "reference", user) == {shown.reference}
    assert names("images", "reference", superadmin) == {shown.reference, hidden.reference}


def test_callers_see_only_granted_groups_presets_and_hosts() -> None:
    mine, others = make_group(open_to_all=False), make_group(open_to_all=False)
    user = make_user()
    mine.users.add(user)
    for group in (mine, others):
        make_host(group=group, name=f"host-of-{group}")
        make_preset(group=group, name=f"preset-of-{group}")
    make_preset(name="for all")
    assert names("resource-groups", "name", user) == {mine.name}
    assert names("presets", "name", user) == {f"preset-of-{mine}", "for all"}
    assert names("hosts", "name", user) == {f"host-of-{mine}"}


def test_a_host_shows_sums_without_names() -> None:
    host = make_host(cpu=8, memory=32 * GIB)
    gpu = make_gpu(host=host, memory=8 * GIB)
    make_gpu(host=host, index=1, is_present=False)
    Host.objects.update(gpu_topology={"indexes": [0], "links": [["X"]], "numa_nodes": [1]})
    sessions = [run_session(host=host, cpu=2, memory=3 * GIB, fgpu=350) for _ in range(2)]
    response = client_of(make_user()).get("/api/v1/hosts/")
    assert response.json()["results"] == [
        {
            "name": host.name,
            "status": "READY",
            "is_cordoned": False,
            "cordon_reason": "",
            "drain_by": None,
            "faulty_since": None,
            "probe_at": None,
            "resource_group": host.group.name,
            "topology": "",
            "cpu": 8,
            "cpu_held": 4,
            "cpu_held_milli": 4000,
            "memory": 32 * GIB,
            "memory_held": 6 * GIB,
            "gpus": [
                {
                    "kind": "nvidia.com/gpu",
                    "uuid": gpu.uuid,
                    "name": "Simulated GPU",
                    "index": 0,
                    "memory": 8 * GIB,
                    "is_simulated": True,
                    "tier": "hook",
                    "sharing": "cap",
                    "capacity": "2",
                    "held": "0.7",
                    "reading": None,
                }
            ],
            "gpu_topology": {"indexes": [0], "links": [["X"]], "numa_nodes": [1]},
        }
    ]
    assert not any(session.owner.email in response.content.decode() for session in sessions)


def test_a_host_shows_the_cores_that_are_guaranteed() -> None:
    host = make_host(group=make_group(cpu_overcommit=Decimal("2.5")), cpu=8)
    run_session(host=host, cpu=3)
    client = client_of(make_user())
    (row,) = client.get("/api/v1/hosts/").json()["results"]
    assert (row["cpu_held"], row["cpu_held_milli"]) == (2, 1200)
    assert client.get("/api/v1/resource-groups/").json()["results"][0]["cpu_overcommit"] == "2.50"


def test_page_size_is_obeyed_and_capped() -> None:
    for _ in range(3):
        make_image()
    client = client_of(make_user())
    assert len(client.get("/api/v1/images/?page_size=2").json()["results"]) == 2
    assert client.get("/api/v1/images/?page_size=2&page=9").status_code == 404
    for text in ("100000", "-1", "x", "\0", "9" * 5000):
        assert client.get("/api/v1/images/", {"page_size": text}).status_code == 400
    for text in ("0", "x", "\0", "9" * 5000):
        assert client.get("/api/v1/images/", {"page": text}).status_code == 404


def test_a_page_has_at_most_200_rows() -> None:
    Image.objects.bulk_create(
        Image(environment="Many", version=str(number), reference=f"many:{number}") for number in range(201)
    )
    client = client_of(make_user())
    body = client.get("/api/v1/images/?page_size=200").json()
    assert (body["count"], len(body["results"])) == (201, 200)
    assert client.get("/api/v1/images/?page_size=201").json()["errors"].keys() == {"page_size"}


def test_a_waiting_session_holds_nothing() -> None:
    host = make_host(gpus=1)
    make_session(resource_group=host.group, fgpu=500)
    row = client_of(make_user()).get("/api/v1/hosts/").json()["results"][0]
    assert (row["cpu_held"], row["gpus"][0]["held"]) == (0, "0")


def names(path: str, field: str, user: User) -> set[str]:
    response = client_of(user).get(f"/api/v1/{path}/")
    return {row[field] for row in response.json()["results"]}
