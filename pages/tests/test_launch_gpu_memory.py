"""The launch wizard, presets and dialogs by GPU memory in place of a share."""

import re
from typing import Any

import pytest

from accounts.models import User
from pages.tests.test_launch_drafts import LAUNCH, form_of, shown, value_of
from resources.amounts.units import GIB
from resources.models import Host, Image
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from sessions.resizing import services as resizing
from sessions.resizing.sizes import StoredResize
from tests.api import client_of
from tests.factories import make_gpu, make_group, make_host, make_image, make_preset, make_user, run_session
from tests.web import HTMX, browser_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    return make_user()


@pytest.fixture
def host() -> Host:
    host = make_host(group=make_group(name="lab", fgpu_per_gpu=2), cpu=8)
    make_gpu(host=host, name="A100", memory=40 * GIB)
    return host


@pytest.fixture
def image() -> Image:
    return make_image(environment="Python", version="3.11", reference="example/python:3.11", is_default=True)


def text_of(answer: Any) -> str:
    return " ".join(re.sub("<[^>]*>", " ", answer.content.decode()).split())


def test_the_wizard_launches_by_gpu_memory(owner: User, host: Host, image: Image) -> None:
    typed = form_of(host, image, fgpu="0", gpu_memory="12 GiB")
    browser_of(owner).post(LAUNCH, typed)
    session = Session.objects.get(owner=owner)
    assert (session.gpu_memory, session.fgpu, session.min_fgpu) == (12 * GIB, 600, 0)
    page = text_of(browser_of(owner).get(f"/sessions/{session.pk}/"))
    assert "12 GiB of GPU memory, which is 0.6 fGPU or more" in page
    again = shown(owner, f"?again={session.pk}")
    assert value_of(again, "gpu_memory", "fgpu", "min_gpu_memory") == ["12 GiB", "0", ""]
    answer = browser_of(owner).post(LAUNCH, {**typed, "gpu_memory": "41g"})
    assert "The largest GPU of this group has 40 GiB" in text_of(answer)


def test_advice_says_how_often_it_fits(owner: User, host: Host, image: Image) -> None:
    typed = form_of(host, image, fgpu="0", gpu_memory="12 GiB", cpu="1", memory="1g")
    assert "Fits now: 3 times on A100" in text_of(browser_of(owner).post(f"{LAUNCH}advice/", typed))


def test_a_preset_may_name_gpu_memory(owner: User, host: Host, image: Image) -> None:
    preset = make_preset(name="vision", cpu=1, gpu_memory=20 * GIB, fgpu=0)
    large = make_preset(name="large", cpu=1, gpu_memory=80 * GIB, fgpu=0)
    page = text_of(browser_of(owner).get(f"{LAUNCH}resources/"))
    assert "20 GiB of GPU memory" in page
    assert "The largest GPU of this group has 40 GiB." in page
    browser_of(owner).post(LAUNCH, form_of(host, image, preset=preset.pk))
    session = Session.objects.get(owner=owner)
    assert (session.gpu_memory, session.fgpu) == (20 * GIB, 1000)
    assert value_of(shown(owner, f"?again={session.pk}"), "preset") == [preset.pk]
    body = {"image": image.reference, "resource_group": "lab", "preset": large.name}
    answer = client_of(owner).post("/api/v1/sessions/", body)
    assert list(answer.json()["errors"]) == ["preset"]


def test_the_resize_dialog_asks_for_gpu_memory(owner: User, host: Host) -> None:
    session = run_session(owner=owner, host=host, cpu=1, memory=GIB, fgpu=500)
    Session.objects.update(gpu_memory=10 * GIB)
    path = f"/sessions/{session.pk}/resize/"
    dialog = browser_of(owner).get(path, headers=HTMX).content.decode()
    assert 'name="gpu_memory"' in dialog
    assert 'name="fgpu"' not in dialog
    amounts = {"cpu": "1", "memory": "1g"}
    refused = browser_of(owner).post(path, {**amounts, "gpu_memory": "40g"}, headers=HTMX)
    assert "It keeps a part of its GPU, which has 40 GiB." in text_of(refused)
    browser_of(owner).post(path, {**amounts, "gpu_memory": "14g"}, headers=HTMX)
    session.refresh_from_db()
    assert session.fgpu == 700
    stored = StoredResize.of(session)
    assert stored
    assert resizing.finish(session.pk, stored.id)
    session.refresh_from_db()
    assert session.gpu_memory == 14 * GIB


def test_who_used_more_gpu_memory_is_advised_more(owner: User, host: Host) -> None:
    session = run_session(owner=owner, host=host, fgpu=500)
    Session.objects.update(gpu_memory=10 * GIB)
    session.refresh_from_db()
    session.move_to(Status.TERMINATING, Reason.GPU_LIMIT_EXCEEDED)
    session.move_to(Status.ERROR, Reason.GPU_LIMIT_EXCEEDED)
    assert "Launch again with 20 GiB of GPU memory" in text_of(browser_of(owner).get(f"/sessions/{session.pk}/"))


def test_the_least_share_goes_with_a_spec_file(owner: User, host: Host, image: Image) -> None:
    client = client_of(owner)
    body = {"image": image.reference, "resource_group": "lab", "cpu": 1, "memory": "1g", "gpu_memory": "12g"}
    for name, more in (("alone", {}), ("gang", {"cluster": {"size": 2, "main": {"cpu": 2, "fgpu": "0"}}})):
        (session, *_) = client.post("/api/v1/sessions/", {**body, **more, "fgpu": "0.75", "name": name}).json()
        text = client.get(f"/api/v1/sessions/{session['id']}/spec/").json()["spec"]
        Session.objects.filter(name=name).update(name=f"gone-{name}")
        made = client.post("/api/v1/specs/", {"text": text})
        assert made.status_code in (200, 201), made.content
        last = Session.objects.filter(name=name).order_by("rank").last()
        assert last
        assert (last.gpu_memory, last.min_fgpu, last.min_gpu_memory) == (12 * GIB, 750, 12 * GIB)
    assert client.get(f"/api/v1/sessions/{session['id']}/").json()["cluster"]["members"][1]["min_fgpu"] == "0.75"


def test_spec_files_and_arrays_know_gpu_memory(owner: User, host: Host, image: Image) -> None:
    client = client_of(owner)
    body = {"image": image.reference, "resource_group": "lab", "cpu": 1, "memory": "1g", "gpu_memory": "12g"}
    array = client.post("/api/v1/arrays/", {**body, "command": "run", "tasks": "1-2"})
    assert array.status_code == 201, array.content
    cluster = {"size": 2, "main": {"cpu": 2, "fgpu": "0"}}
    session = client.post("/api/v1/sessions/", {**body, "name": "gang", "cluster": cluster}).json()[0]
    text = client.get(f"/api/v1/sessions/{session['id']}/spec/").json()["spec"]
    assert "gpu_memory: 12g" in text
    assert "fgpu: '0'" in text or 'fgpu: "0"' in text
    Session.objects.filter(owner=owner, name="gang").update(name="gone")
    made = client.post("/api/v1/specs/", {"text": text})
    assert made.status_code in (200, 201), made.content
    again = Session.objects.filter(owner=owner, name="gang").order_by("rank")
    assert list(again.values_list("gpu_memory", "fgpu")) == [(0, 0), (12 * GIB, 600)]
