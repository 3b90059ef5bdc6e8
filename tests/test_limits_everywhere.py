"""One over each limit is refused in the wizard, by the API and on the command line, with one sentence at one field."""

import html
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from gpuplatform_client.cli.app import app
from typer.testing import CliRunner, Result

from accounts.models import ApiToken, User
from resources.amounts.units import GIB
from sessions.models import Session
from tests.api import client_of
from tests.factories import make_folder, make_host, make_image, make_policy, make_root, make_session, make_user
from tests.live import LiveServer
from tests.web import browser_of

pytestmark = [pytest.mark.loopback, pytest.mark.django_db(transaction=True)]

Program = Callable[..., Result]
NOT_STARTED = 125  # of `gpuplatform run`, as of `docker run`


class Case(NamedTuple):
    """A limit, a launch that is one over it, and what is said of it."""

    policy: dict[str, Any]
    asked: dict[str, Any]  # as forms and API have it
    options: tuple[str, ...] | None  # of the command line; None where a command asks for no such thing
    field: str
    sentence: str
    in_wizard: bool = True


CASES = {
    "cpu": Case({"cpu": 2}, {"cpu": 3}, ("--cpu", "3"), "cpu", "Your policy allows at most 2 CPU cores."),
    "memory": Case(
        {"memory": 2 * GIB},
        {"memory": "3g"},
        ("--memory", "3g"),
        "memory",
        "Your policy allows at most 2 GiB of memory.",
    ),
    "fgpu": Case({"fgpu": 500}, {"fgpu": "0.51"}, ("--fgpu", "0.51"), "fgpu", "Your policy allows at most 0.5 fGPU."),
    "sessions": Case({"max_sessions": 0}, {}, (), "detail", "Your policy allows no sessions."),
    "pending": Case(
        {"max_pending": 1},
        {},
        (),
        "count",
        "Your policy allows 1 waiting sessions, and 1 wait already: 1 more are too many.",
    ),
    "per launch": Case(
        {"max_per_launch": 2}, {"count": 3}, None, "count", "Your policy allows at most 2 sessions per launch."
    ),
    "priority": Case(
        {"max_priority": 20}, {"priority": 21}, None, "priority", "Your policies allow a priority of at most 20.", False
    ),
    "lifetime": Case(
        {"max_lifetime": timedelta(hours=4)},
        {"time_limit": "5h"},
        ("--time-limit", "5h"),
        "time_limit",
        "Your policy ends sessions after 4 h.",
    ),
    "preemptible": Case(
        {"preemptible_only": True},
        {"preemptible": False},
        None,
        "preemptible",
        "Your policy allows preemptible sessions only.",
        False,  # where it starts them so by itself
    ),
}


@pytest.fixture
def run_as(server: LiveServer, tmp_path: Path) -> Program:
    """Runs the program `gpuplatform` as a user."""

    def run(user: User, *arguments: str) -> Result:
        token = ApiToken.objects.issue(user)[1]
        login = {"HOME": str(tmp_path), "GPUPLATFORM_URL": server.url, "GPUPLATFORM_TOKEN": token}
        return CliRunner(env=login).invoke(app, arguments)

    return run


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_one_over_a_limit_is_refused_alike_everywhere(case: Case, run_as: Program) -> None:
    group = make_host(gpus=2, cpu=64).group
    user = make_user(policy=make_policy(**case.policy))
    make_session(owner=user, resource_group=group)  # which waits
    image = make_image(reference="team/torch:2.13", environment="PyTorch", version="2.13")
    amounts = {"cpu": 1, "memory": "1g", "shared_memory": "64m", "fgpu": "0"}
    form = {"image": image.pk, "resource_group": group.pk, "preset": "", "count": 1} | amounts | case.asked
    if case.in_wizard:
        page = browser_of(user).post("/sessions/launch/", form)
        assert (page.status_code, case.sentence in html.unescape(page.content.decode())) == (422, True)
    answer = client_of(user).post("/api/v1/sessions/", {"image": image.reference} | amounts | case.asked)
    problem = answer.json()
    said = problem["errors"] or {"detail": [problem["detail"]]}
    assert (answer.status_code, said) == (400, {case.field: [case.sentence]})
    if case.options is not None:
        launch = ("run", "--image", image.reference, "--cpu", "1", "--memory", "1g", *case.options, "--", "true")
        refused = run_as(user, *launch)
        assert (refused.exit_code, case.sentence in " ".join(refused.stderr.split())) == (NOT_STARTED, True), (
            refused.stderr
        )
    assert Session.objects.count() == 1


def test_one_folder_too_many_is_refused_alike_everywhere(run_as: Program) -> None:
    user = make_user(policy=make_policy(max_folders=1))
    root = make_root(make_host())
    make_folder(user, root=root, name="first")
    sentence = "Your policy allows 1 data folders, and you have as many."
    page = browser_of(user).post("/folders/create/", {"name": "second", "root": root.pk})
    assert sentence in html.unescape(page.content.decode())
    answer = client_of(user).post("/api/v1/folders/", {"name": "second"})
    assert (answer.status_code, answer.json()["errors"]) == (400, {"name": [sentence]})
    refused = run_as(user, "folders", "create", "second")
    assert (refused.exit_code, sentence in " ".join(refused.stderr.split())) == (5, True), refused.stderr
