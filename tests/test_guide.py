"""The guide's scenario, on the whole platform with real containers, driven in a real browser."""

from collections.abc import Iterator
from contextlib import closing

import docker
import pytest
from playwright.sync_api import Browser, Page, expect

from resources.amounts.units import GIB
from tests.execs import output_of
from tests.guide import DEVELOPER, end, launch, sessions_page, terminal_of
from tests.platform import Platform

pytestmark = [pytest.mark.docker, pytest.mark.browser]

PACKAGE = "hello-1.0-py3-none-any.whl"
# A command that makes this package in the current directory, for pip to install without a network.
MAKE_PACKAGE = (
    f"python -c \"import zipfile; w = zipfile.ZipFile('{PACKAGE}', 'w'); i = 'hello-1.0.dist-info/'; "
    "w.writestr('hello.py', 'number = 42'); "
    "w.writestr(i + 'METADATA', 'Metadata-Version: 2.1\\nName: hello\\nVersion: 1.0\\n'); "
    "w.writestr(i + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n'); "
    "w.writestr(i + 'RECORD', 'hello.py,,\\n' + i + 'METADATA,,\\n' + i + 'WHEEL,,\\n' + i + 'RECORD,,\\n'); "
    'w.close()"'
)


@pytest.fixture
def page(browser: Browser, platform: Platform) -> Iterator[Page]:
    with sessions_page(browser, platform) as opened:
        yield opened


def test_a_waiting_session_starts_when_a_share_is_released(page: Page, platform: Platform) -> None:
    launch(page, name="guide", preset="medium", count=3)
    expect(page.locator("tr[data-status=RUNNING]")).to_have_count(2)
    waiting = page.locator("tr[data-status=PENDING]")
    expect(waiting).to_have_count(1)
    expect(waiting).to_contain_text("guide-3")
    expect(waiting).to_contain_text("Waiting for")
    assert platform.held() == {"sessions": 2, "cpu": 2, "memory": 4 * GIB, "fgpu": 2000}

    page.evaluate("window.notReloaded = true")
    end(page, "guide-1")
    expect(page.locator("tr[data-status=RUNNING]", has_text="guide-3")).to_be_visible()
    expect(page.locator("tr", has_text="guide-1")).to_have_count(0)
    assert page.evaluate("window.notReloaded") is True
    assert platform.held() == {"sessions": 2, "cpu": 2, "memory": 4 * GIB, "fgpu": 2000}

    for name in ("guide-2", "guide-3"):
        end(page, name)
        expect(page.locator("tr", has_text=name)).to_have_count(0)
    assert platform.held() == {"sessions": 0, "cpu": 0, "memory": 0, "fgpu": 0}
    page.get_by_role("link", name="FINISHED").click()
    expect(page.locator("tr[data-status=TERMINATED]", has_text="guide-")).to_have_count(3)


def test_nvidia_smi_and_page_show_the_share(page: Page) -> None:
    launch(page, name="quarter", preset="small")
    row = page.locator("tr", has_text="quarter")
    expect(row).to_have_attribute("data-status", "RUNNING")
    terminal = terminal_of(page, "quarter")
    terminal.keyboard.type("nvidia-smi\n")
    expect(terminal.locator(".xterm-rows")).to_contain_text("/ 2048MiB")
    terminal.close()
    page.get_by_role("link", name="quarter", exact=True).click()
    expect(page.get_by_text("How it is divided: memory and GPU time limited by the platform")).to_be_visible()
    expect(page.locator("[data-plot=gpu_memory] [data-now]")).to_contain_text("0 B of your 2 GiB")
    page.get_by_role("link", name="Sessions", exact=True).first.click()
    end(page, "quarter")
    expect(row).to_have_count(0)


def test_a_terminal_runs_commands_and_survives_a_reload(page: Page, platform: Platform) -> None:
    launch(page, name="shell", preset="small")
    row = page.locator("tr[data-status=RUNNING]", has_text="shell")
    expect(row).to_be_visible()
    terminal = terminal_of(page, "shell")
    screen = terminal.locator(".xterm-rows")
    terminal.keyboard.type("echo $((6*7)) > a.txt; cat a.txt\n")
    expect(screen).to_contain_text("42")
    terminal.reload()
    expect(screen).to_contain_text("42")  # the same shell, with what it showed
    terminal.keyboard.type("sudo whoami\n")
    expect(screen).to_contain_text("your resource policy does not allow root rights")

    (session,) = platform.rows("SELECT container_id FROM compute_session WHERE name = 'shell'")
    assert limits(session["container_id"]) == {"memory": GIB, "cpu": 1.0}

    end(page, "shell")
    expect(terminal.get_by_role("heading", name="The session has ended")).to_be_visible()


def test_a_dot_folder_keeps_what_pip_installs_for_the_user(page: Page) -> None:
    page.get_by_role("link", name="Data folders", exact=True).click()
    page.wait_for_url("**/folders/")  # loaded, with the scripts that open dialogs
    page.get_by_role("link", name="New folder").first.click()
    page.get_by_role("dialog").get_by_label("Name").fill(".local")
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.get_by_text(".local").first).to_be_visible()
    page.get_by_role("link", name="Sessions", exact=True).first.click()

    launch(page, name="installs", preset="small", has_folder=True)
    terminal = terminal_of(page, "installs")
    terminal.keyboard.type(f"touch elsewhere; {MAKE_PACKAGE} && pip install --user --no-index ./{PACKAGE}\n")
    expect(terminal.locator(".xterm-rows")).to_contain_text("Successfully installed hello-1.0")
    terminal.close()
    end(page, "installs")
    expect(page.locator("tr", has_text="installs")).to_have_count(0)

    launch(page, name="imports", preset="small", has_folder=True)
    page.get_by_role("link", name="imports", exact=True).click()
    expect(page.get_by_text("read-write, always mounted")).to_be_visible()
    page.get_by_role("link", name="Sessions", exact=True).first.click()
    terminal = terminal_of(page, "imports")
    terminal.keyboard.type("python -c 'import hello; print(hello.number * 100)'; ls elsewhere\n")
    screen = terminal.locator(".xterm-rows")
    expect(screen).to_contain_text("4200")
    expect(screen).to_contain_text("No such file or directory")
    terminal.close()
    end(page, "imports")
    expect(page.locator("tr", has_text="imports")).to_have_count(0)


def test_a_user_whose_policy_allows_it_has_sudo(browser: Browser, platform: Platform) -> None:
    with sessions_page(browser, platform, DEVELOPER) as page:
        launch(page, name="tools", preset="small")
        expect(page.locator("tr[data-status=RUNNING]", has_text="tools")).to_be_visible()
        terminal = terminal_of(page, "tools")
        terminal.keyboard.type(
            f"{MAKE_PACKAGE} && sudo pip install -q --no-index ./{PACKAGE} && echo from-$(sudo whoami)\n"
        )
        expect(terminal.locator(".xterm-rows")).to_contain_text("from-root")
        end(page, "tools")
        expect(terminal.get_by_role("heading", name="The session has ended")).to_be_visible()


def limits(container_id: str) -> dict[str, float]:
    """Return the limits that the kernel enforces on the container, read in its cgroup (version 1 or 2)."""
    script = """
        cd /sys/fs/cgroup
        if [ -e memory.max ]; then cat memory.max cpu.max
        else cat memory/memory.limit_in_bytes cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us; fi
    """
    with closing(docker.from_env()) as client:
        memory, quota, period = map(int, output_of(client.api, container_id, script)[1].split())
    return {"memory": memory, "cpu": quota / period}
