"""Kinds of accelerators: one for each resource group, which decides what may be asked for there, and its name."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db.models import Q
from django.test import Client
from django.utils import timezone

from resources.accelerators.kinds import named_for
from resources.forms import HostForm, ResourceGroupForm
from resources.gpus.discovery import Device, Machine
from resources.gpus.tiers import Tier
from resources.hosts import services as hosts
from resources.models import Host, ResourceGroup
from sessions.errors import RejectedError
from sessions.launching import services
from sessions.models import Session
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize
from sessions.tests.launch_requests import make_launch_request, rejection
from sessions.usage.report import ReportBy, report_of
from tests.api import client_of
from tests.factories import make_gpu, make_group, make_host, make_image, make_preset, make_session, make_user

pytestmark = pytest.mark.django_db
NPU = "example.com/npu"
GIB = 1 << 30


@pytest.fixture
def host() -> Host:
    """A host with two devices of example.com/npu, each of which is 2 fGPU."""
    host = make_host(group=make_group(name="npus", accelerator=NPU, fgpu_per_gpu=2))
    for index in range(2):
        make_gpu(host=host, index=index, kind=NPU, name="Example NPU", tier=Tier.NONE, is_simulated=False)
    return host


def machine(*kinds: str) -> Machine:
    devices = [
        Device(uuid=f"U-{index}", index=index, name=kind, memory=GIB, kind=kind) for index, kind in enumerate(kinds)
    ]
    return Machine(cpu=8, memory=32 * GIB, devices=tuple(devices))


def test_a_new_group_has_the_kind_of_its_first_host() -> None:
    host = hosts.register_host("one", machine(NPU, NPU), "npus")
    assert host.group.accelerator == NPU
    assert list(host.gpus.values_list("kind", "is_present")) == [(NPU, True)] * 2


def test_devices_of_another_kind_are_left_out_in_words(caplog: pytest.LogCaptureFixture) -> None:
    make_group(name="lab", accelerator="amd.com/gpu")
    host = hosts.register_host("one", machine("amd.com/gpu", NPU), "lab")
    assert list(host.gpus.values_list("kind", flat=True)) == ["amd.com/gpu"]
    assert "1 x example.com/npu not lent: its group lab lends amd.com/gpu. Set the kind" in caplog.text


def test_the_kind_of_a_group_stays_while_hosts_lend_some(host: Host) -> None:
    values = {**ResourceGroupForm(instance=host.group).initial, "accelerator": "nvidia.com/gpu"}
    form = ResourceGroupForm(values, instance=host.group)
    assert form.errors == {
        "accelerator": [f"{host} lends devices of another kind here; put it into another group first."]
    }
    host.gpus.update(is_present=False)
    assert not ResourceGroupForm(values, instance=host.group).errors
    assert "Write vendor/class" in str(ResourceGroupForm({**values, "accelerator": "GPU"}, instance=host.group).errors)


def test_a_host_goes_to_groups_of_its_kind_alone(host: Host) -> None:
    for group, problems in ((make_group(), 1), (make_group(accelerator=NPU), 0)):
        values = {**HostForm(instance=host).initial, "group": group.pk}
        assert len(HostForm(values, instance=Host.objects.get(pk=host.pk)).errors) == problems


def test_a_part_of_an_undivided_device_is_refused(host: Host) -> None:
    owner = make_user()
    assert rejection(owner, make_launch_request(host, fgpu=1000)) == {
        "fgpu": "Every NPU of this group is lent whole: ask for a multiple of 2 fGPU."
    }
    services.submit(owner, make_launch_request(host, fgpu=2000))
    services.submit(owner, make_launch_request(host, fgpu=0))


def test_who_waits_asks_for_no_part_of_a_device(host: Host) -> None:
    owner = make_user()
    (session,) = services.submit(owner, make_launch_request(host, fgpu=4000))
    size = SessionSize.of(session)
    with pytest.raises(RejectedError) as refused:
        resizing.resize(session, replace(size, fgpu=1000), actor=owner)
    assert refused.value.errors == {"fgpu": "Every NPU of this group is lent whole: ask for a multiple of 2 fGPU."}
    assert resizing.resize(session, replace(size, fgpu=2000), actor=owner).fgpu == 2000


def test_an_image_of_another_vendor_is_refused(host: Host) -> None:
    owner, image = make_user(), make_image(environment="PyTorch", version="2", accelerators="cuda")
    assert rejection(owner, make_launch_request(host, image=image, fgpu=2000)) == {
        "image": "PyTorch 2 is for nvidia.com/gpu, and the resource group npus lends example.com/npu."
    }
    services.submit(owner, make_launch_request(host, image=image, fgpu=0))
    for said in (f"cuda, {NPU}", "", "tensor cores"):
        services.submit(owner, make_launch_request(host, image=make_image(accelerators=said), fgpu=2000))


def test_any_group_means_one_whose_devices_suit(host: Host) -> None:
    image, owner = make_image(accelerators="cuda"), make_user()
    other = make_host(group=make_group(name="a100"), gpus=1)
    (session,) = services.submit(owner, make_launch_request(host, image=image, fgpu=1000, is_any_group=True))
    assert session.resource_group == other.group


def test_usage_is_told_by_kind(host: Host) -> None:
    make_session(resource_group=host.group)
    make_session()
    today = timezone.now().date()
    report = report_of(Q(), today - timedelta(days=1), today, ReportBy.KIND, timezone.now())
    assert {row.name: row.sessions for row in report.rows} == {NPU: 1, "nvidia.com/gpu": 1}


def test_the_wizard_names_the_devices_of_the_group(host: Host, client: Client) -> None:
    user = make_user()
    client.force_login(user)
    make_image()
    make_preset(name="part", group=host.group, fgpu=500)
    page = client.get("/sessions/launch/").content.decode()
    assert '"device": "NPU"' in page
    assert "Every NPU of this group is lent whole" in page
    session = make_session(owner=user, resource_group=host.group, fgpu=2000)
    assert "<dt>NPU</dt><dd>2 fGPU" in client.get(f"/sessions/{session.pk}/").content.decode()


def test_reasons_name_the_devices_of_the_group(host: Host, client: Client) -> None:
    user = make_user()
    session = make_session(owner=user, resource_group=host.group, fgpu=2000)
    Session.objects.update(detail="Waiting for 2 fGPU: no ready host of this session's resource group has a GPU.")
    words = "Waiting for 2 fGPU: no ready host of this session's resource group has an NPU."
    assert client_of(user).get(f"/api/v1/sessions/{session.pk}/").json()["detail"] == words
    client.force_login(user)
    for page in (f"/sessions/{session.pk}/", "/sessions/", "/"):
        assert "has an NPU." in client.get(page).content.decode()
    korean = client.get(f"/sessions/{session.pk}/", headers={"accept-language": "ko"}).content.decode()
    assert "준비된 호스트에 NPU가 없습니다" in korean
    host.gpus.update(is_present=False)
    asked = make_launch_request(host, fgpu=0, gpu_memory=GIB)
    assert rejection(user, asked) == {"gpu_memory": "No host of this group has any NPU."}


@pytest.mark.parametrize(
    ("text", "of_npus", "of_gaudis"),
    [
        ("A GPU of a host, 2 GPUs", "An NPU of a host, 2 NPUs", "A Gaudi of a host, 2 Gaudis"),
        ("0.5 fGPU on a GPU Platform", "0.5 fGPU on a GPU Platform", "0.5 fGPU on a GPU Platform"),
        ("GPU가 없습니다", "NPU가 없습니다", "Gaudi가 없습니다"),
    ],
)
def test_a_text_about_gpus_names_other_devices(text: str, of_npus: str, of_gaudis: str) -> None:
    names = ("NPU", "Gaudi", "AMD GPU", "GPU", "")
    assert [named_for(name, text) for name in names] == [of_npus, of_gaudis, text, text, text]


def test_the_api_tells_kinds_and_sets_that_of_a_group(host: Host) -> None:
    api = client_of(make_user(is_superuser=True))
    (shown,) = api.get("/api/v1/resource-groups/").json()["results"]
    assert shown["accelerator"] == NPU
    assert {gpu["kind"] for gpu in api.get("/api/v1/hosts/").json()["results"][0]["gpus"]} == {NPU}
    made = api.post("/api/v1/admin/resource-groups/", {"name": "amd", "accelerator": "amd.com/gpu"})
    assert (made.status_code, made.json()["accelerator"]) == (201, "amd.com/gpu")
    refused = api.patch(f"/api/v1/admin/resource-groups/{made.json()['id']}/", {"accelerator": "x"})
    assert (refused.status_code, "accelerator" in refused.json()["errors"]) == (400, True)


def test_a_host_is_added_with_a_group_of_its_kind() -> None:
    with pytest.raises(CommandError, match="Write vendor/class"):
        call_command("add_host", "gpu7", "--group", "mi300", "--create-group", "--accelerator", "AMD")
    assert not ResourceGroup.objects.exists()
