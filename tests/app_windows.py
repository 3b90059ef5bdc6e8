"""What a person does in the windows of a session's apps, in a real browser."""

from playwright.sync_api import Page, expect


def launched(page: Page, session: str, app: str) -> Page:
    """Open an app from the launcher in the list of sessions and return its window; `session` is the session's name."""
    page.bring_to_front()
    dialog = page.get_by_role("dialog")
    if not dialog.is_visible():
        page.get_by_role("link", name=f"Apps of {session}").click()
    with page.context.expect_page() as opening:
        dialog.locator(".app-tile", has_text=app).click()
    return opening.value


def typed(terminal: Page, command: str, answer: str) -> None:
    """Run a command in the terminal and wait for its answer, which must not be a part of the command."""
    terminal.bring_to_front()
    terminal.locator(".xterm-helper-textarea").focus()
    terminal.keyboard.type(f"{command}\n")
    expect(terminal.locator(".xterm-rows")).to_contain_text(answer)


def save_a_notebook(lab: Page, terminal: Page) -> None:
    """Run a cell of a new notebook in JupyterLab, see its output, save it, and find it in the terminal."""
    lab.wait_for_url("http://jupyterlab--*.apps.localhost:*/lab*")
    lab.locator(".jp-LauncherCard[data-category=Notebook]").first.click()
    expect(lab.get_by_role("button", name="| Idle")).to_be_visible()  # Lab draws the notebook anew until then
    cell = lab.locator(".jp-Notebook .cm-content").first
    cell.fill("print('answer', 6 * 7)")
    expect(cell).to_contain_text("6 * 7")
    cell.press("Shift+Enter")
    expect(lab.locator(".jp-OutputArea-output").first).to_contain_text("answer 42")
    lab.keyboard.press("Control+s")
    lab.locator(".jp-Dialog .jp-mod-accept").click()  # keeps the name that it has
    typed(terminal, "clear; ls", "Untitled.ipynb")
    typed(terminal, "clear; until grep -c 'answer 42' Untitled.ipynb; do sleep 0.2; done; echo sav''ed", "saved")
