"""Deployments whose replicas have GPU memory in place of a share."""

import re
from typing import Any

import pytest

from accounts.models import User
from deployments.models import Deployment
from deployments.replicas import launching
from resources.amounts.units import GIB
from resources.models import Host
from sessions.launching import services as sessions
from tests.api import client_of
from tests.factories import make_gpu, make_group, make_host, make_image, make_user
from tests.web import browser_of

URL = "/api/v1/deployments/"
pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    return make_user()


@pytest.fixture
def host() -> Host:
    host = make_host(group=make_group(name="lab", fgpu_per_gpu=1), cpu=8)
    make_gpu(host=host, name="A100", memory=40 * GIB)
    return host


def body_of(host: Host, **changes: Any) -> dict[str, Any]:
    body = {"name": "model", "resource_group": host.group.name, "image": make_image().reference, "command": "serve"}
    return {**body, "cpu": 1, "memory": "1g", "gpu_memory": "12g", **changes}


def test_replicas_get_the_memory_of_their_revision(owner: User, host: Host) -> None:
    client = client_of(owner)
    answer = client.post(URL, body_of(host))
    assert answer.status_code == 201, answer.content
    row = Deployment.objects.get(owner=owner)
    assert row.revision
    assert (row.revision.gpu_memory, row.revision.fgpu, row.revision.share) == (12 * GIB, 300, 0)
    (session,) = sessions.submit(owner, launching.launch_request(row, row.revision, "replica"))
    assert (session.gpu_memory, session.fgpu, session.min_fgpu) == (12 * GIB, 300, 0)
    assert "12 GiB of GPU memory" in browser_of(owner).get(f"/deployments/{row.pk}/").content.decode()


def test_a_share_beside_memory_is_the_least(owner: User, host: Host) -> None:
    client = client_of(owner)
    pk = client.post(URL, body_of(host, fgpu="0.4")).json()["id"]
    row = Deployment.objects.get(pk=pk)
    assert row.revision
    assert (row.revision.fgpu, row.revision.min_fgpu, row.revision.share) == (400, 400, 0)
    (session,) = sessions.submit(owner, launching.launch_request(row, row.revision, "replica"))
    assert (session.gpu_memory, session.fgpu, session.min_fgpu) == (12 * GIB, 400, 400)
    page = browser_of(owner).get(f"/deployments/{pk}/").content.decode()
    assert "12 GiB of GPU memory and 0.4 fGPU at least" in page
    form = browser_of(owner).get(f"/deployments/{pk}/revisions/new/").content.decode()
    assert 'name="fgpu" value="0.4"' in form
    text = client.get(f"{URL}{pk}/spec/").json()["spec"]
    assert re.search("^fgpu: .?0[.]4.?$", text, re.MULTILINE)
    assert "gpu_memory: 12g" in text
    for changes, kept in (
        ({"gpu_memory": "20g"}, (20 * GIB, "0.4", "0.5")),
        ({"fgpu": "0.6", "gpu_memory": "12g"}, (12 * GIB, "0.6", "0.6")),
        ({"gpu_memory": 0}, (0, "0", "0")),
        ({"gpu_memory": "4g"}, (4 * GIB, "0", "0.1")),
    ):
        answer = client.post(f"{URL}{pk}/revisions/", changes)
        assert answer.status_code in (200, 201), answer.content
        newest = client.get(f"{URL}{pk}/revisions/").json()["results"][0]
        assert (newest["gpu_memory"], newest["min_fgpu"], newest["fgpu"]) == kept


def test_a_revision_keeps_memory_until_it_names_a_share(owner: User, host: Host) -> None:
    client = client_of(owner)
    pk = client.post(URL, body_of(host)).json()["id"]
    for changes, kept in (({"cpu": 2}, (12 * GIB, "0.3")), ({"fgpu": "0.5"}, (0, "0.5")), ({"cpu": 1}, (0, "0.5"))):
        answer = client.post(f"{URL}{pk}/revisions/", changes)
        assert answer.status_code in (200, 201), answer.content
        newest = client.get(f"{URL}{pk}/revisions/").json()["results"][0]
        assert (newest["gpu_memory"], newest["fgpu"]) == kept
    refused = client.post(f"{URL}{pk}/revisions/", {"gpu_memory": "41g"})
    assert refused.json()["errors"]["gpu_memory"][0].startswith("The largest GPU of this group has 40 GiB")
