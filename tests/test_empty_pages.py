"""What lists say where there is nothing: to a fresh installation's superadmin, a user and a project's manager."""

from itertools import cycle
from typing import Final

import pytest
from playwright.sync_api import Browser, Page

from accounts.models import User
from tests.axe import AXE, STYLE_REFUSED, VIEWS, check, text_of
from tests.browser import allow_errors, signed_in
from tests.factories import make_policy, make_project, make_user
from tests.live import LiveServer
from tests.page_world import PageWorld

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

# Pages that list nothing, by how their names begin; any other says what to do next.
NO_LIST: Final = (
    *("account_", "accounts-profile", "mfa_", "socialaccount_", "sessions-launch-", "sessions-template-new"),
    *("sessions-terminate-many", "imports-new", "deployments-new", "folders-create", "help-", "palette"),
    *("notifications-preferences", "simulation", "configuration", "api-docs", "admin-index"),
)
# Whether a page has rows, or in their place what to do: a link, a button, or more than a title.
SAYS_WHAT_TO_DO: Final = """() => {
  const main = document.querySelector("main, #content");
  const rows = main.querySelectorAll(".row-list > li:not(.empty-row), #result_list tbody tr");
  const empty = [...main.querySelectorAll(".empty, .empty-row")];
  const hasSentences = (each) => each.textContent.split(/[.;:]\\s/).length > 1;
  const isEnough = (each) => each.querySelector("a, button, .empty-subtitle") || hasSentences(each);
  return empty.length ? empty.every(isEnough) : rows.length > 0;
}"""


@pytest.fixture(scope="module")
def people(module_db: None) -> dict[str, User]:
    policy = make_policy(name="students")
    manager = make_user(policy=policy)
    make_project(managers=[manager], name="vision")
    return {"superadmin": make_user(is_superuser=True), "user": make_user(policy=policy), "manager": manager}


@pytest.fixture(
    params=[
        "user",
        pytest.param("superadmin", marks=pytest.mark.long(minutes=3)),
        pytest.param("manager", marks=pytest.mark.long(minutes=3)),
    ]
)
def person(request: pytest.FixtureRequest, people: dict[str, User]) -> User:
    return people[request.param]


def test_every_empty_list_says_what_to_do(browser: Browser, server: LiveServer, person: User) -> None:
    world = PageWorld(person, person)
    world.add_administration()
    with signed_in(browser, server, person) as context:
        allow_errors(context, STYLE_REFUSED)
        context.add_init_script(f"if (self === top) {{ {AXE} }}")
        pages = {name: path for name, path in world.pages(context).items() if "1" not in path}  # 1 is any argument
        found = check(context, pages, cycle([view] for view in VIEWS), (), silence)
        assert not found, text_of(found)


def silence(page: Page, name: str) -> list[str]:
    """Return what is wrong with a page of a list that has no rows: that it does not say what to do."""
    is_fine = name.startswith(NO_LIST) or page.evaluate(SAYS_WHAT_TO_DO)
    return [] if is_fine else ["it lists nothing, and does not say what to do"]
