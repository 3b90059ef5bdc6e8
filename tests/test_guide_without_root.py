"""The README's tour as users who are not root but in the group that may use the engine, two of them at once."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import docker
import pytest
from playwright.sync_api import Browser, Page, expect

from engine.containers import HOST_LABEL, SESSION_LABEL
from hostworker.privileged.helper_container import HELPER_LABEL
from hostworker.runtime.container_config import NETWORK
from hostworker.runtime.sandboxes.containers import SANDBOX_LABEL
from tests.accounts import Account, accounts
from tests.app_windows import launched
from tests.containers import remove_containers
from tests.guide import end, launch, sessions_page, terminal_of
from tests.images import ensure_images
from tests.platform import Platform, announced
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.long(minutes=4), pytest.mark.docker, pytest.mark.browser]

NAMES = ("gp-test-one", "gp-test-two")


@pytest.fixture(scope="module")
def platforms() -> Iterator[list[Platform]]:
    """The platforms of two users, started at the same moment with `make up`."""
    ensure_images()
    with accounts(*NAMES) as users, running(users) as processes:
        yield [
            announced(process, user.checkout / "up.log", user.checkout / "var", user.environment)
            for user, process in zip(users, processes, strict=True)
        ]


@contextmanager
def running(users: list[Account]) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Run `make up` for each until the block ends, and then stop all as Ctrl-C in a terminal does."""
    processes = []
    try:
        for user in users:
            with (user.checkout / "up.log").open("wb") as log:
                processes.append(user.popen("make", "up", stdout=log, stderr=log))
        yield processes
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGINT)
        for process in processes:
            process.wait(2 * SECONDS)
        for user in users:
            remove_containers(f"{HOST_LABEL}={user.environment['COMPUTE_HOST_NAME']}")


@pytest.fixture
def pages(browser: Browser, platforms: list[Platform]) -> Iterator[list[Page]]:
    """The sessions pages of both platforms' demo users."""
    with ExitStack() as stack:
        yield [stack.enter_context(sessions_page(browser, platform)) for platform in platforms]


def containers(platform: Platform, label: str) -> int:
    """Return how many containers with this label the platform's host worker has running."""
    client = docker.from_env()
    try:
        return len(client.containers.list(filters={"label": [f"{HOST_LABEL}={platform.host_name}", label]}))
    finally:
        client.close()


def has_networks_ready(platform: Platform) -> bool:
    return containers(platform, SANDBOX_LABEL) >= 2


def test_two_users_without_root_take_the_tour_at_once(pages: list[Page], platforms: list[Platform]) -> None:
    for page in pages:
        launch(page, name="tour", preset="medium", count=3)
    for page, platform in zip(pages, platforms, strict=True):
        expect(page.locator("tr[data-status=RUNNING]")).to_have_count(2)
        expect(page.locator("tr[data-status=PENDING]", has_text="tour-3")).to_contain_text("Waiting for")
        assert platform.held()["fgpu"] == 2000
        assert containers(platform, SESSION_LABEL) == 2
        assert containers(platform, HELPER_LABEL) == 1

        terminal = terminal_of(page, "tour-1")
        terminal.keyboard.type("nvidia-smi\n")
        expect(terminal.locator(".xterm-rows")).to_contain_text("/ 4096MiB")
        terminal.keyboard.type("clear; hostname\n")
        expect(terminal.locator(".xterm-rows")).not_to_contain_text("gp-sandbox")
        terminal.close()

    lab = launched(pages[0], "tour-1", "JupyterLab")
    lab.wait_for_url("http://jupyterlab--*.apps.localhost:*/lab*")
    lab.close()
    pages[0].keyboard.press("Escape")

    for page in pages:
        end(page, "tour-1")
        expect(page.locator("tr[data-status=RUNNING]", has_text="tour-3")).to_be_visible()
    pages[0].get_by_role("link", name="tour-3", exact=True).click()
    expect(pages[0].get_by_text("How it is divided: memory and GPU time limited by the platform")).to_be_visible()


def test_networks_are_kept_ready_and_rules_in_place(platforms: list[Platform]) -> None:
    for platform in platforms:
        until(partial(has_networks_ready, platform))
    rules = subprocess.run(["iptables", "-w", "-S", "INPUT"], capture_output=True, text=True, check=True).stdout
    assert f"-A INPUT -i {NETWORK} -j GP-IN-{NETWORK}" in rules


def test_the_helper_leaves_nothing_of_roots_in_the_checkout(platforms: list[Platform]) -> None:
    of_root = ["find", f"/home/{NAMES[0]}", "-xdev", "-user", "root", "-not", "-type", "l", "-printf", "%f\n"]
    found = subprocess.run(of_root, capture_output=True, text=True, check=True).stdout.split()
    assert set(found) <= {"limits.conf", "up.log"}
