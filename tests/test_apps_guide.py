"""The guide's apps on the whole platform, with real containers and a real browser: Jupyter, TensorBoard, MLflow."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.app_windows import launched, save_a_notebook, typed
from tests.browser import watched_context
from tests.platform import Platform
from tests.wizard import choose_environment, launch_without_folder, open_step

pytestmark = [pytest.mark.docker, pytest.mark.browser]

USER = "user@example.org"
NAME = "study"

EVENTS = """
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

writer = EventFileWriter("logs/first-run")
for step in range(50):
    value = Summary.Value(tag="loss", simple_value=1 / (step + 1))
    writer.add_event(Event(step=step, summary=Summary(value=[value])))
writer.close()
"""
# Elastic nets on scikit-learn's diabetes data: its arguments are the alpha of each.
TRAIN = """
import sys
import mlflow
from sklearn.datasets import load_diabetes
from sklearn.linear_model import ElasticNet
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split

x, x_test, y, y_test = train_test_split(*load_diabetes(return_X_y=True), random_state=1)
for alpha in map(float, sys.argv[1:]):
    with mlflow.start_run(run_name=f"net-{alpha}"):
        net = ElasticNet(alpha=alpha, l1_ratio=0.05).fit(x, y)
        mlflow.log_params({"alpha": alpha})
        mlflow.log_metric("r2", r2_score(y_test, net.predict(x_test)))
print("trained", alpha)
"""


@pytest.fixture(scope="module")
def context(browser: Browser, platform: Platform) -> Iterator[BrowserContext]:
    """A browser in which the demo user is signed in; no page of the platform may log an error."""
    with watched_context(browser, platform.url, viewport={"width": 1440, "height": 900}) as made:
        page = made.new_page()
        page.goto(f"{platform.url}/sessions/")
        page.get_by_label("E-mail").fill(USER)
        page.get_by_label("Password", exact=True).fill(platform.passwords[USER])
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Sessions", exact=True)).to_be_visible()
        yield made


@pytest.fixture(scope="module")
def page(context: BrowserContext) -> Page:
    """The list of sessions with one that runs, whose launcher has opened by itself."""
    (sessions,) = context.pages
    sessions.get_by_role("link", name="START").first.click()
    sessions.wait_for_url("**/sessions/launch/**")  # loaded, with the scripts by which an environment is chosen
    choose_environment(sessions, "scikit-learn")
    sessions.get_by_label("Session name").fill(NAME)
    open_step(sessions, "Resources")
    sessions.locator(".preset", has_text="medium").click()
    launch_without_folder(sessions)
    expect(sessions.get_by_role("dialog")).to_contain_text(f"Apps of {NAME}")
    return sessions


def write_file(terminal: Page, name: str, text: str) -> None:
    """Write a file as people do: cat with a here-document."""
    typed(terminal, f"clear; cat >{name} <<'END'{text}END\necho written-$(ls {name})", f"written-{name}")


@pytest.fixture(scope="module")
def terminal(page: Page) -> Page:
    window = launched(page, NAME, "Terminal")
    expect(window.locator(".xterm-rows")).to_contain_text("$")
    return window


def test_a_notebook_runs_and_is_listed_in_the_terminal(page: Page, terminal: Page) -> None:
    save_a_notebook(launched(page, NAME, "JupyterLab"), terminal)


def test_both_notebook_pages_share_one_server(page: Page, terminal: Page) -> None:
    typed(terminal, "clear; echo hello >made-in-terminal.txt; echo made-$(ls made*)", "made-made-in-terminal.txt")
    tree = launched(page, NAME, "Jupyter Notebook")
    tree.wait_for_url("http://jupyter--*.apps.localhost:*/tree*")
    expect(tree.get_by_text("made-in-terminal.txt")).to_be_visible()
    typed(terminal, "clear; echo servers-$(pgrep -fc jupyter-la[b])", "servers-1")


def test_a_dead_app_is_restarted_from_its_window(page: Page, terminal: Page) -> None:
    tree = launched(page, NAME, "Jupyter Notebook")
    expect(tree.get_by_text("made-in-terminal.txt")).to_be_visible()
    typed(terminal, "clear; pkill -9 -f jupyter-la[b]; while pgrep -f jupyter-la[b]; do :; done; echo go''ne", "gone")
    tree.reload()
    tree.get_by_role("link", name="Show it in its session").click()
    tree.get_by_role("button", name="Start it again").click()
    expect(tree.get_by_text("made-in-terminal.txt")).to_be_visible()


def test_vs_code_edits_files_of_the_terminal(page: Page, terminal: Page) -> None:
    typed(terminal, "clear; echo made-$(ls made*)", "made-made-in-terminal.txt")
    code = launched(page, NAME, "VS Code")
    code.wait_for_url("http://vscode--*.apps.localhost:*/**")
    code.get_by_role("treeitem", name="made-in-terminal.txt").dblclick()
    editor = code.locator(".monaco-editor[role=code]")
    expect(editor).to_contain_text("hello")
    editor.click()
    code.keyboard.type("from VS Code ")
    code.keyboard.press("Control+s")
    typed(terminal, "clear; until grep -c 'from VS Code' made*; do sleep 0.2; done; echo sav''ed", "saved")
    code.close()


def test_tensorboard_shows_logged_values(page: Page, terminal: Page) -> None:
    write_file(terminal, "events.py", EVENTS)
    typed(terminal, "clear; python events.py; echo logs-$(ls logs)", "logs-first-run")
    board = launched(page, NAME, "TensorBoard")
    board.wait_for_url("http://tensorboard--*.apps.localhost:*/**")
    expect(board.get_by_text("first-run").first).to_be_visible()
    expect(board.get_by_text("loss").first).to_be_visible()


@pytest.mark.long(minutes=3)
def test_mlflow_compares_runs_of_the_terminal(page: Page, terminal: Page) -> None:
    write_file(terminal, "train_diabetes.py", TRAIN)
    typed(terminal, "clear; mlflow ui --host 0.0.0.0", "Application startup complete")
    ui = launched(page, NAME, "MLflow UI")
    ui.wait_for_url("http://mlflow--*.apps.localhost:*/**")
    terminal.bring_to_front()
    terminal.keyboard.press("Control+b")
    terminal.keyboard.press("c")
    typed(terminal, "clear; python train_diabetes.py 0.05 0.2", "trained 0.2")
    ui.reload()
    for run in ("net-0.05", "net-0.2"):
        expect(ui.get_by_text(run).first).to_be_visible()
    chosen = ui.get_by_label("Press Space to toggle row selection (checked)")
    for count in (1, 2):
        ui.get_by_label("Press Space to toggle row selection (unchecked)").first.check()
        expect(chosen).to_have_count(count)
    ui.get_by_role("button", name="Compare", exact=True).click()
    expect(ui.get_by_role("heading", name="Comparing 2 Runs from 1 Experiment")).to_be_visible()
    typed(terminal, "clear; echo servers-$(pgrep -fc 'bin/mlflow u[i]')", "servers-1")


def test_two_versions_run_side_by_side(page: Page, terminal: Page) -> None:
    page.bring_to_front()
    page.keyboard.press("Escape")
    page.get_by_role("link", name="START").first.click()
    page.wait_for_url("**/sessions/launch/**")
    choose_environment(page, "scikit-learn", "1.5")
    page.get_by_label("Session name").fill("older")
    open_step(page, "Resources")
    page.locator(".preset", has_text="small").click()
    launch_without_folder(page)
    expect(page.get_by_role("dialog")).to_contain_text("Apps of older")
    older = launched(page, "older", "Terminal")
    expect(older.locator(".xterm-rows")).to_contain_text("$")
    command = "clear; python -c 'import sklearn; print(sklearn.__name__, sklearn.__version__)'"
    typed(older, command, "sklearn 1.5.2")
    typed(terminal, command, "sklearn 1.7.2")
    expect(older.locator(".xterm-rows")).to_contain_text("sklearn 1.5.2")
    page.bring_to_front()
    page.keyboard.press("Escape")
    page.locator("tr", has_text="older").get_by_role("link", name="Terminate").click()
    page.get_by_role("dialog").get_by_role("button", name="Terminate").click()
    expect(page.locator("tr", has_text="older")).to_have_count(0)


def test_an_app_says_that_its_session_ended(page: Page, platform: Platform) -> None:
    address = launched(page, NAME, "JupyterLab")
    address.wait_for_url("http://jupyterlab--*.apps.localhost:*/lab*")
    page.bring_to_front()
    page.locator("tr", has_text=NAME).get_by_role("link", name="Terminate").click()
    page.get_by_role("dialog").get_by_role("button", name="Terminate").click()
    expect(page.locator("tr", has_text=NAME)).to_have_count(0)
    answer = address.reload()
    assert answer is not None
    assert answer.status == 410
