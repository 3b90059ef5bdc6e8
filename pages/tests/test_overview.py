"""The summary, and the pages of hosts, environments and limits."""

import re
from datetime import timedelta
from functools import partial

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import User
from resources.amounts.units import GIB
from resources.gpus import simulated as simulated_gpus
from resources.models import BuildState, Gpu, GpuReading, Host, HostImage, HostStatus, Image, ImageBuild
from sessions.lifecycle import Reason, Status
from sessions.models import Mount, Session
from tests.factories import (
    make_app,
    make_folder,
    make_gpu,
    make_group,
    make_host,
    make_image,
    make_policy,
    make_session,
    make_user,
    run_session,
    session_in,
)
from tests.web import HTMX, browser_of, text_of

pytestmark = pytest.mark.django_db

PAGES = ("/", "/hosts/", "/environments/", "/accounts/limits/")


@pytest.fixture
def user() -> User:
    return make_user()


@pytest.fixture
def browser(user: User) -> Client:
    return browser_of(user)


@pytest.fixture
def admin() -> Client:
    return browser_of(make_user(is_superuser=True))


def post(client: Client, path: str, **fields: object) -> int:
    return client.post(path, fields).status_code


@pytest.mark.parametrize("path", PAGES)
def test_strangers_sign_in_first(path: str) -> None:
    assert Client().get(path).status_code == 302


@pytest.mark.parametrize("path", [*PAGES, "/hosts/busy/"])
def test_the_number_of_queries_is_constant(path: str, user: User, browser: Client) -> None:
    def fill(count: int) -> None:
        for _ in range(count):
            group = make_group()
            host = make_host(group=group, gpus=2)
            image = make_image(environment=f"Environment {host.pk}")
            make_app(image)
            HostImage.objects.create(host=host, image=image, size=GIB)
            run_session(host=busy, owner=user, image=image, fgpu=10)
            run_session(host=host, fgpu=500)
            make_session(owner=user, image=image, resource_group=group)
            session_in(Status.ERROR, host=host, owner=user, image=image)
            make_folder(owner=user)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            text_of(browser, path)
        return len(captured)

    busy = make_host(name="busy", gpus=1)
    fill(1)
    few = queries()
    fill(4)
    assert queries() == few


class TestSummary:
    def test_it_shows_mine_and_what_is_free(self, user: User, browser: Client) -> None:
        group = make_group(name="a100", fgpu_per_gpu=4)
        host = make_host(group=group, gpus=2, cpu=16)
        make_host(group=group, gpus=4, is_cordoned=True)  # is not free for anybody
        run_session(host=host, owner=user, name="training", fgpu=1500, cpu=4)
        run_session(host=host, name="strange", fgpu=500, cpu=2)
        page = text_of(browser, "/")
        assert "training" in page
        assert "strange" not in page
        assert 'class="figure">6<span' in page
        assert "<dd>10 free</dd>" in page

    def test_a_new_user_reads_what_a_session_is(self, browser: Client) -> None:
        assert "You have not launched a session yet." in text_of(browser, "/")
        assert "No resource group is open to you yet" in text_of(browser, "/")

    def test_what_to_go_on_with_is_the_latest(self, user: User, browser: Client) -> None:
        host, image = make_host(gpus=1, cpu=64), make_image(environment="Python", version="3.13")
        old, used, _ = (make_folder(owner=user, name=name) for name in ("old", "used", "new"))
        make_folder(name="strange")
        launched = partial(run_session, host=host, owner=user, image=image)
        first = launched(name="first", cpu=2)
        Mount.objects.create(session=first, folder=used, folder_name="used", path="/home/work/used")
        again = launched(name="again", cpu=2)
        larger = launched(name="larger", cpu=4)
        page = text_of(browser, "/")
        recent = page[page.index('id="beside"') : page.index('id="free"')]
        assert re.findall(r"<strong>(\w+)</strong>", recent) == ["used", "new", "old"]
        assert re.findall(r"again=(\w+)", recent) == [larger.pk, again.pk]
        assert old.name in recent
        assert "last mounted" in recent

    def test_htmx_gets_the_live_part_alone(self, browser: Client) -> None:
        assert "<html" not in text_of(browser, "/", **HTMX)

    def test_only_superadmins_see_the_platform(self, browser: Client, admin: Client) -> None:
        make_host(status=HostStatus.LOST.value)
        assert "Hosts unreachable" in text_of(admin, "/")
        assert "Hosts unreachable" not in text_of(browser, "/")

    def test_signing_in_leads_to_it(self, browser: Client) -> None:
        response = browser.get("/accounts/sign-in/")
        assert response["Location"] == "/"


class TestHosts:
    def test_owners_are_named_to_superadmins_alone(self, user: User, browser: Client, admin: Client) -> None:
        host = make_host(name="alpha", gpus=1)
        run_session(host=host, owner=user, name="training", fgpu=500)
        theirs = run_session(host=host, name="strange", fgpu=1000)
        for path in ("/hosts/", "/hosts/alpha/"):
            mine = text_of(browser, path)
            assert "0.5 fGPU, training" in mine
            assert "1 fGPU, somebody else&#x27;s" in mine
            assert "strange" not in mine
            assert theirs.owner.email not in mine
            assert f"1 fGPU, strange of {theirs.owner.email}" in text_of(admin, path)

    def test_where_a_host_stands_is_shown(self, browser: Client) -> None:
        make_host(name="alpha", topology="row1/rack3")
        for path in ("/hosts/", "/hosts/alpha/"):
            assert "· row1/rack3</span>" in text_of(browser, path)

    def test_only_hosts_of_my_groups_are_there(self, browser: Client) -> None:
        make_host(name="closed", group=make_group(open_to_all=False))
        assert "closed" not in text_of(browser, "/hosts/")
        assert browser.get("/hosts/closed/").status_code == 404

    def test_bars_have_the_width_of_the_shares(self, user: User, browser: Client) -> None:
        gpu = make_gpu(host=make_host(group=make_group(fgpu_per_gpu=4)))
        run_session(host=gpu.host, fgpu=2000)
        run_session(host=gpu.host, owner=user, fgpu=1000)
        page = text_of(browser, "/hosts/")
        assert 'part-mine" x="0.000%" width="25.000%"' in page
        assert 'x="25.000%" width="50.000%"' in page
        assert "3 of 4 fGPU in use, 1 mine" in page

    def test_sharing_mode_is_shown_where_a_gate_applies(self, browser: Client) -> None:
        make_gpu(host=make_host(group=make_group(sharing="burst")))
        words = "GPU time that others leave idle may be used as well"
        assert words in text_of(browser, "/hosts/")
        Gpu.objects.update(tier="mig")
        assert words not in text_of(browser, "/hosts/")

    def test_readings_are_shown_with_their_age(self, browser: Client) -> None:
        gpu = make_gpu()
        GpuReading.objects.create(gpu=gpu, utilisation=43, memory_used=2 * GIB, temperature=61)
        page = text_of(browser, "/hosts/")
        assert "43 %" in page
        assert "61 °C" in page
        assert "as of" not in page
        GpuReading.objects.update(at=timezone.now() - timedelta(minutes=5))
        assert "as of" in text_of(browser, "/hosts/")

    def test_hosts_are_filtered(self, browser: Client) -> None:
        make_gpu(name="NVIDIA H100", host=make_host(name="alpha"))
        make_host(name="beta", status=HostStatus.LOST.value)
        assert "beta" not in text_of(browser, "/hosts/?q=h100")
        assert "alpha" not in text_of(browser, "/hosts/?state=lost")
        assert "No host matches." in text_of(browser, "/hosts/?q=%00nothing")

    def test_its_page_says_how_gpus_are_connected(self, browser: Client) -> None:
        host = make_host(name="alpha", gpus=3)
        assert "The driver does not say." in text_of(browser, "/hosts/alpha/")
        declared = simulated_gpus.declared("2x8GiB nvlink=4 numa=0,1x8GiB numa=1")
        Host.objects.update(gpu_topology=simulated_gpus.topology(declared).as_json())
        page = text_of(browser, "/hosts/alpha/")
        assert page.count('<td class="is-nvlink">NV4</td>') == 2
        assert page.count("<td>SYS</td>") == 4
        assert "from one NUMA node to another" in page
        host.gpus.exclude(index=0).delete()
        assert "How its GPUs are connected" not in text_of(browser, "/hosts/alpha/")

    def test_a_superadmin_takes_one_out_of_service_and_back(self, admin: Client) -> None:
        host = make_host(name="alpha")
        session = run_session(host=host, name="training")
        assert "training" in text_of(admin, "/hosts/alpha/drain/", **HTMX)
        assert post(admin, "/hosts/alpha/drain/", minutes=60, reason="new fans") == 302
        host.refresh_from_db()
        assert host.drain_by is not None
        assert session.events.filter(reason=Reason.HOST_DRAINED).exists()
        page = text_of(admin, "/hosts/alpha/")
        assert "Leaving service" in page
        assert "new fans" in page
        assert post(admin, "/hosts/alpha/return/") == 302
        assert Host.objects.filter(is_cordoned=False, drain_by=None).exists()

    def test_nobody_else_does(self, browser: Client, admin: Client) -> None:
        make_host(name="alpha")
        assert browser.get("/hosts/alpha/drain/").status_code == 404
        assert post(browser, "/hosts/alpha/drain/") == 404
        assert post(browser, "/hosts/alpha/return/") == 404
        assert post(admin, "/hosts/alpha/drain/", minutes=7) == 422
        assert not Host.objects.get().is_cordoned


class TestEnvironments:
    def test_versions_are_listed_newest_first(self, browser: Client) -> None:
        host = make_host()
        for version in ("2.9", "2.13", "nightly"):
            make_image(environment="PyTorch", version=version, reference=f"example/torch:{version}")
        HostImage.objects.create(host=host, image_id=_image("2.13"), size=GIB)
        page = text_of(browser, "/environments/")
        assert page.index("<strong>2.13</strong>") < page.index("<strong>2.9</strong>") < page.index("nightly")
        assert f"/sessions/launch/?image={_image('2.13')}" in page
        assert page.count("on the host already") == 1

    def test_what_is_built_shows_how_far(self, browser: Client) -> None:
        image = make_image()
        ImageBuild.objects.create(image=image, state=BuildState.BUILDING, step=4, steps=11, started_at=timezone.now())
        page = text_of(browser, "/environments/")
        assert "building, step 4 of 11" in page
        assert f"?image={image.pk}" not in page

    def test_private_images_of_others_are_not_there(self, browser: Client) -> None:
        make_image(environment="Secret", owner=make_user())
        assert "Secret" not in text_of(browser, "/environments/")

    def test_a_superadmin_turns_one_on(self, browser: Client, admin: Client) -> None:
        image = make_image(environment="JAX", is_enabled=False, enable_hint="Enable it")
        assert "Ask an administrator to turn one on." in text_of(browser, "/environments/")
        assert post(browser, f"/environments/{image.pk}/enable/") == 404
        assert post(admin, f"/environments/{image.pk}/enable/") == 302
        image.refresh_from_db()
        assert image.is_enabled


class TestLimits:
    def test_limits_and_what_is_used_are_shown(self) -> None:
        policy = make_policy(cpu=16, fgpu=None, max_lifetime=timedelta(hours=12), storage_bytes=GIB, max_array_tasks=77)
        user = make_user(policy=policy)
        run_session(owner=user, cpu=3)
        make_folder(owner=user)
        page = text_of(browser_of(user), "/accounts/limits/")
        assert 'data-bar="cpu-mine">3 of 16' in page
        assert "at most 12 h" in page
        assert "1 of 20" in page
        assert "at most 77 tasks" in page
        assert "0 B of 1 GiB" in page

    def test_sessions_of_others_do_not_count(self, user: User, browser: Client) -> None:
        run_session(cpu=7)
        assert 'data-bar="cpu-mine">7' not in text_of(browser, "/accounts/limits/")
        assert not Session.objects.filter(owner=user).exists()


def _image(version: str) -> int:
    return Image.objects.get(version=version).pk
