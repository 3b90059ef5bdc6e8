"""Launches that name several resource groups, or demand GPUs of a kind: what is queued, and what is refused where."""

import pytest
from django.test import Client

from accounts.models import User
from resources.amounts.units import GIB
from resources.models import Host
from sessions.launching import services
from sessions.models import Session
from sessions.tests.launch_requests import make_launch_request, rejection
from tests.api import client_of
from tests.factories import make_gpu, make_group, make_host, make_image, make_policy, make_user

URL = "/api/v1/sessions/"


@pytest.fixture
def owner(db: None) -> User:
    return make_user(policy=make_policy(max_pending=2))


@pytest.fixture
def small(db: None) -> Host:
    """A host of 2 cores with an A10 of 24 GiB; a GPU is 2 fGPU."""
    host = make_host(cpu=2, group=make_group(name="small"))
    make_gpu(host=host, name="A10", memory=24 * GIB)
    return host


@pytest.fixture
def large(db: None) -> Host:
    """A host of 16 cores with an A100 of 80 GiB; a GPU is 2 fGPU."""
    host = make_host(group=make_group(name="large"))
    make_gpu(host=host, name="A100", memory=80 * GIB)
    return host


def test_sessions_wait_in_all_groups_that_are_named(owner: User, small: Host, large: Host) -> None:
    request = make_launch_request(small, other_groups=[large.group, small.group], count=2)
    sessions = services.submit(owner, request)
    assert {tuple(session.group_choices) for session in sessions} == {(small.group_id, large.group_id)}
    assert {session.resource_group for session in sessions} == {small.group}
    assert Session.objects.waiting_in(large.group_id).count() == 2
    assert "count" in rejection(owner, request)  # each counts once against the limit on those that wait


def test_any_group_is_each_that_can_grant_it(owner: User, small: Host, large: Host) -> None:
    closed = make_host(group=make_group(name="closed", open_to_all=False))
    (session,) = services.submit(owner, make_launch_request(small, is_any_group=True))
    assert session.group_choices == [small.group_id, large.group_id]
    (session,) = services.submit(owner, make_launch_request(small, is_any_group=True, cpu=8))
    assert (session.group_choices, session.resource_group) == ([], large.group)
    assert closed.group_id not in session.group_choices
    refused = rejection(make_user(), make_launch_request(small, is_any_group=True, cpu=64))
    assert refused == {"cpu": "The largest host of this group has 2 CPU cores."}


def test_what_another_group_cannot_grant_is_said_with_its_name(owner: User, small: Host, large: Host) -> None:
    empty, closed = make_group(name="empty"), make_group(name="closed", open_to_all=False)
    refused = rejection(owner, make_launch_request(large, cpu=8, other_groups=[small.group]))
    assert refused == {"cpu": "In small: The largest host of this group has 2 CPU cores."}
    refused = rejection(owner, make_launch_request(large, other_groups=[empty]))
    assert refused == {"resource_groups": "In empty: No host has joined this resource group yet."}
    refused = rejection(owner, make_launch_request(large, other_groups=[closed]))
    assert refused == {"resource_groups": "In closed: You may not use this resource group."}


def test_gpus_that_no_host_has_are_refused_at_their_field(owner: User, small: Host) -> None:
    for demand, refused in (
        (
            {"gpu_model": "H100", "fgpu": 1000},
            {"gpu_model": "No host of this group has GPUs of the model H100 alone; there is A10."},
        ),
        (
            {"min_gpu_memory": 13 * GIB, "fgpu": 1000},
            {"min_gpu_memory": "With 1 fGPU a session gets at most 12 GiB on one GPU of this group."},
        ),
        ({"min_gpu_memory": 24 * GIB, "fgpu": 2000, "gpu_model": "A10"}, {}),
        (
            {"gpu_model": "A10", "min_gpu_memory": GIB},
            {
                "gpu_model": "A session without a GPU has no GPU model.",
                "min_gpu_memory": "A session without a GPU has no GPU memory.",
            },
        ),
    ):
        assert rejection(owner, make_launch_request(small, **demand)) == refused


def test_an_image_may_need_gpu_memory(owner: User, small: Host) -> None:
    image = make_image(environment="Llama", version="70", min_gpu_memory=20 * GIB)
    services.submit(owner, make_launch_request(small, image=image))  # it needs none without a GPU
    refused = rejection(owner, make_launch_request(small, image=image, fgpu=1000))
    assert refused == {
        "fgpu": "With 1 fGPU a session gets at most 12 GiB on one GPU of this group; Llama 70 needs 20 GiB."
    }
    (session,) = services.submit(owner, make_launch_request(small, image=image, fgpu=2000))
    assert session.min_gpu_memory == 20 * GIB


def test_the_api_takes_several_groups(owner: User, small: Host, large: Host) -> None:
    client, image = client_of(owner), make_image()
    order = {"image": image.reference, "cpu": 1, "memory": "1g", "fgpu": "1"}
    (row,) = client.post(URL, order | {"resource_groups": ["large", "small"], "min_gpu_memory": "10g"}).json()
    assert (row["resource_group"], row["resource_groups"]) == ("large", ["large", "small"])
    assert (row["waits"], row["gpu_model"], row["min_gpu_memory"]) == ([], "", 10 * GIB)
    (row,) = client.post(URL, order | {"resource_groups": "any", "gpu_model": "A10"}).json()
    assert row["resource_groups"] == ["small"]
    for groups, said in ((["none"], "There is no resource group 'none' that you may use."), (7, "Write a list")):
        refused = client.post(URL, order | {"resource_group": "small", "resource_groups": groups})
        assert refused.status_code == 400
        assert refused.json()["errors"]["resource_groups"][0].startswith(said)


def test_the_wizard_and_the_sessions_page_show_the_groups(
    owner: User, small: Host, large: Host, client: Client
) -> None:
    client.force_login(owner)
    form = {"image": make_image().pk, "resource_group": small.group_id, "other_groups": [large.group_id]}
    amounts = {"preset": "", "cpu": 1, "memory": "1g", "shared_memory": "64m", "fgpu": "1", "count": 1}
    shown = client.post("/sessions/launch/", form | amounts | {"min_gpu_memory": "90g"})
    assert b"With 1 fGPU a session gets at most 12 GiB" in shown.content
    client.post("/sessions/launch/", form | amounts | {"min_gpu_memory": "10g"})
    session = Session.objects.get()
    assert (session.group_choices, session.min_gpu_memory) == ([small.group_id, large.group_id], 10 * GIB)
    wait = {"reason": "NO_CAPACITY", "detail": "Waiting in large.", "eta": None, "eta_reason": ""}
    Session.objects.update(group_waits={str(large.group_id): wait})
    page = client.get(f"/sessions/{session.pk}/").content
    assert b"<strong>large</strong>: Waiting in large." in page
    assert b"<dt>Least GPU memory</dt><dd>10 GiB</dd>" in page
