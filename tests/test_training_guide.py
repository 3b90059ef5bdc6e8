"""Training on a share of a GPU in the browser: an image that an administrator enables, JupyterLab, TensorBoard."""

from collections.abc import Iterator

import pytest
import requests
from playwright.sync_api import Browser, Page, expect

from tests.app_windows import launched, typed
from tests.guide import USER, end, sessions_page
from tests.images import ensure_images
from tests.platform import ROOT, Platform, running_platform
from tests.wait import SECONDS
from tests.wizard import choose_environment, open_step

pytestmark = [pytest.mark.long(minutes=3), pytest.mark.docker, pytest.mark.browser]

VAR_DIR = ROOT / "var" / "test-training"
ADMIN = "admin@example.org"
# A network that learns to tell inside from outside of a circle, with its loss for TensorBoard and a checkpoint.
TRAIN = """
import torch
from torch.utils.tensorboard import SummaryWriter
torch.manual_seed(0)
points = torch.rand(2000, 2) * 2 - 1
inside = (points.norm(dim=1) < 0.7).float().unsqueeze(1)
net = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
writer = SummaryWriter("logs/circle")
for epoch in range(200):
    loss = torch.nn.functional.binary_cross_entropy_with_logits(net(points), inside)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    writer.add_scalar("loss", loss.item(), epoch)

writer.close()
torch.save({"epoch": epoch + 1, "net": net.state_dict()}, "results/checkpoint.pt")
right = ((net(points) > 0) == (inside > 0.5)).float().mean().item()
print("trained with torch", torch.__version__, "good" if right > 0.95 else f"bad: {right}")
"""


@pytest.fixture(scope="module")
def platform() -> Iterator[Platform]:
    ensure_images(["PyTorch 2.13"])
    with running_platform(VAR_DIR) as running:
        yield running


def test_pytorch_trains_on_a_share_and_keeps_its_checkpoint(browser: Browser, platform: Platform) -> None:
    with sessions_page(browser, platform, ADMIN) as page:
        enable_pytorch(page, platform)
    create_folder(platform)
    with sessions_page(browser, platform) as page:
        launch_pytorch(page, "training")
        terminal = terminal_in(page, "training")
        typed(terminal, "clear; nvidia-smi", "/ 4096MiB")
        train(launched(page, "training", "JupyterLab"))
        board = launched(page, "training", "TensorBoard")
        expect(board.get_by_text("circle").first).to_be_visible()
        expect(board.get_by_text("loss").first).to_be_visible()
        end_session(page, "training")
        launch_pytorch(page, "inference")
        terminal = terminal_in(page, "inference")
        look = "import torch; print('epochs', torch.load('results/checkpoint.pt')['epoch'])"
        typed(terminal, f'clear; ls; python -c "{look}"', "epochs 200")
        expect(terminal.locator(".xterm-rows")).not_to_contain_text("logs")  # written outside of the folder
        end_session(page, "inference")


def create_folder(platform: Platform) -> None:
    """Create the folder for the checkpoint, by the API."""
    credentials = {"email": USER, "password": platform.passwords[USER]}
    token = requests.post(f"{platform.url}/api/v1/auth/token/", json=credentials, timeout=SECONDS).json()["token"]
    headers = {"Authorization": f"Token {token}"}
    url = f"{platform.url}/api/v1/folders/"
    created = requests.post(url, json={"name": "results"}, headers=headers, timeout=SECONDS)
    assert created.status_code == 201, created.text


def terminal_in(page: Page, name: str) -> Page:
    terminal = launched(page, name, "Terminal")
    expect(terminal.locator(".xterm-rows")).to_contain_text("$")
    return terminal


def end_session(page: Page, name: str) -> None:
    page.bring_to_front()
    page.keyboard.press("Escape")  # closes the launcher
    end(page, name)
    expect(page.locator("tr", has_text=name)).to_have_count(0)


def enable_pytorch(page: Page, platform: Platform) -> None:
    """Switch the image on in the administration; the image builder finds it built already."""
    page.goto(f"{platform.url}/admin/resources/image/?q=gpuplatform/pytorch")
    page.locator("#result_list").get_by_role("link", name="PyTorch", exact=True).click()
    page.get_by_label("Enabled", exact=True).check()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("was changed successfully")).to_be_visible()


def launch_pytorch(page: Page, name: str) -> None:
    """Launch a session on half of the simulated GPU, with the folder."""
    page.get_by_role("link", name="START").first.click()
    choose_environment(page, "PyTorch", "2.13")
    page.get_by_label("Session name").fill(name)
    open_step(page, "Data folders")
    page.locator("[data-folder=results] input[name=mount]").check()
    open_step(page, "Resources")
    page.locator(".preset", has_text="medium").click()
    page.locator("#launch-button").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"Apps of {name}")


def train(lab: Page) -> None:
    """Run the training in a new notebook of JupyterLab until it says that it went well."""
    lab.wait_for_url("http://jupyterlab--*.apps.localhost:*/lab*")
    lab.locator(".jp-LauncherCard[data-category=Notebook]").first.click()
    expect(lab.get_by_role("button", name="| Idle")).to_be_visible()
    cell = lab.locator(".jp-Notebook .cm-content").first
    cell.fill(TRAIN)
    expect(cell).to_contain_text("trained with torch")
    cell.press("Shift+Enter")
    expect(lab.locator(".jp-OutputArea-output").first).to_contain_text("trained with torch 2.13.0+cpu good")
