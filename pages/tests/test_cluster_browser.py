"""A cluster from the wizard to the pages of its members, in a real browser and by keyboard."""

import pytest
from playwright.sync_api import Browser, Page, expect

from accounts.models import User
from resources.models import Host
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.browser import signed_in
from tests.factories import make_group, make_host, make_image, make_preset, make_user, moved_to, run_session
from tests.live import LiveServer
from tests.wizard import launch_without_folder, open_step

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


def test_a_cluster_is_launched_watched_and_opened(browser: Browser, server: LiveServer) -> None:
    owner, group = make_user(), make_group(name="lab", fgpu_per_gpu=2)
    hosts = [make_host(group=group, gpus=1) for _ in range(2)]
    make_image(environment="Python", version="3.11")
    make_preset(name="small", cpu=2, fgpu=500)
    with signed_in(browser, server, owner, viewport={"width": 390, "height": 900}) as context:
        page = context.new_page()
        launch(page, owner)
        watch(page, hosts)


def launch(page: Page, owner: User) -> None:
    """Fill in the part of the cluster, see what is said of it, and launch."""
    page.goto("/sessions/launch/resources/")
    part = page.locator("#cluster")
    part.locator("summary").first.press("Enter")
    members = part.get_by_label("Members", exact=True)
    members.fill("99")
    expect(part.locator("#error-cluster_size")).to_have_text("A cluster has 2 to 64 members.")
    expect(members).to_have_attribute("aria-invalid", "true")
    members.fill("2")
    expect(part.locator("#error-cluster_size")).to_be_empty()
    expect(part).to_contain_text("(2 cores, 1 GiB RAM, 0.5 fGPU) = 4 cores, 2 GiB RAM, 1 fGPU")
    part.locator("#main-size summary").press("Enter")
    part.locator("#id_cluster_main_fgpu").fill("0.3")
    expect(part.locator("#error-cluster_main_fgpu")).to_contain_text("as much GPU as each of the others or none")
    part.locator("#id_cluster_main_fgpu").fill("0")
    expect(part.locator("#error-cluster_main_fgpu")).to_be_empty()
    expect(part).to_contain_text("main1 (2 cores, 1 GiB RAM, 0 fGPU) + 1")
    expect(part).to_contain_text("(2 cores, 1 GiB RAM, 0.5 fGPU) = 4 cores, 2 GiB RAM, 0.5 fGPU")
    part.get_by_label("Where").select_option("spread")
    open_step(page, "Review")
    expect(page.locator("#review")).to_contain_text("2 members, each on a host of its own")
    expect(page.locator("#review")).to_contain_text("main1 2 cores, 1 GiB RAM, 0 fGPU")
    expect(page.locator("#advice")).to_contain_text("Starts now")
    launch_without_folder(page)
    page.wait_for_url("**/sessions/**")
    assert Session.objects.filter(owner=owner, cluster__mode="spread").count() == 2


def watch(page: Page, hosts: list[Host]) -> None:
    """See the members in the open row of the list as they move, and go to the page of one."""
    head, sub = Session.objects.order_by("rank")
    page.goto("/sessions/")
    row = page.locator(f"#session-{head.pk}")
    row.locator(".row-members summary").press("Enter")
    run_session(head, host=hosts[0])
    moved_to(Status.PREPARING, sub, hosts[1])
    expect(row.locator(f"#member-{sub.pk}")).to_contain_text("Preparing")  # in the row that was opened
    expect(row.locator(".td-status")).to_contain_text("sub1: The host prepares the container")
    row.get_by_role("link", name="sub1").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{head.name}.sub1")
    members = page.locator("#members")
    expect(members.locator("[aria-current]")).to_have_text("sub1")
    sub.move_to(Status.RUNNING, Reason.STARTED, fields={"address": "10.9.0.9"})
    terminal = members.get_by_role("link", name="Terminal of sub1")
    expect(terminal).to_have_attribute("href", f"/sessions/{sub.pk}/terminal/")
    members.get_by_role("link", name="main1", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(head.name)
    with page.expect_request(f"**/sessions/{sub.pk}/stats/?window=hour"):
        page.get_by_label("Member shown").select_option("sub1")
