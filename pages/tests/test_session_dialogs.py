"""The dialogs of a session's page: another name, and ending it."""

import json

import pytest

from engine.containers import container_name
from pages.session.losses import losses_of, read_losses
from sessions.lifecycle import Status
from sessions.models import Session
from tests.containers import running_container
from tests.factories import make_host, make_session, make_user, run_session
from tests.tiny_image import ensure_tiny_image
from tests.web import HTMX, browser_of, text_of

pytestmark = pytest.mark.django_db


def test_a_session_gets_another_name() -> None:
    session = make_session(name="before")
    browser = browser_of(session.owner)
    assert 'value="before"' in text_of(browser, f"/sessions/{session.pk}/rename/", **HTMX)
    answer = browser.post(f"/sessions/{session.pk}/rename/", {"name": " after "}, headers=HTMX)
    assert answer.status_code == 204
    assert json.loads(answer["HX-Trigger"]) == {"sessions:renamed": {"message": "It is called after now."}}
    assert Session.objects.get(pk=session.pk).name == "after"
    answer = browser.post(f"/sessions/{session.pk}/rename/", {"name": "again"})
    assert answer["Location"] == f"/sessions/{session.pk}/"


@pytest.mark.parametrize("name", ["x", "taken", "no spaces"])
def test_a_refused_name_is_shown_with_the_reason(name: str) -> None:
    session = make_session(name="before")
    make_session(owner=session.owner, name="taken")
    answer = browser_of(session.owner).post(f"/sessions/{session.pk}/rename/", {"name": name}, headers=HTMX)
    assert answer.status_code == 422
    assert 'id="new-name-error"' in answer.content.decode()
    assert f'value="{name}"' in answer.content.decode()
    assert Session.objects.get(pk=session.pk).name == "before"


def test_strangers_find_neither_dialog() -> None:
    browser, session = browser_of(make_user()), run_session()
    for part in ("rename", "losses", "terminate"):
        assert browser.get(f"/sessions/{session.pk}/{part}/").status_code == 404


def test_only_programs_of_the_user_are_named() -> None:
    text = (
        "/sbin/docker-init -- /bin/sh -c  end() {     trap\n/bin/sh -c  end() {     trap\nsleep 86400 \n"
        "sh -c  for process in /proc\n-bash \n/bin/bash \ntmux -u attach \n"
        "sh -c if [ -r /run/gpuplatform/environment ]; then . \n"
        "/opt/python/bin/python3 train.py --epochs 5 \npython3 worker.py \npython3 worker.py \n--\n12\n2048\n"
    )
    losses = read_losses(text)
    assert losses.programs == [("python3 worker.py", 2), ("python3 train.py --epochs 5", 1)]
    assert (losses.more_programs, losses.file_count, losses.size_bytes) == (0, 12, 2 << 20)


def test_many_programs_are_cut_short() -> None:
    losses = read_losses("".join(f"{'x' * 90}{number} \n" for number in range(9)) + "--\n")
    assert (len(losses.programs), losses.file_count, losses.size_bytes) == (1, None, None)
    losses = read_losses("".join(f"program{number} \n" for number in range(9)) + f"--\n{'1' * 5000}\n2\n")
    assert (losses.file_count, losses.size_bytes) == (None, 2048)
    assert (len(losses.programs), losses.more_programs) == (6, 3)


@pytest.mark.docker
def test_the_dialog_tells_what_is_lost() -> None:
    session = run_session(host=make_host(name="test-host"))
    browser = browser_of(session.owner)
    dialog = text_of(browser, f"/sessions/{session.pk}/terminate/", **HTMX)
    assert f"/sessions/{session.pk}/losses/" in dialog
    assert "cannot be seen right now" in text_of(browser, f"/sessions/{session.pk}/losses/")
    with running_container(ensure_tiny_image(), name=container_name(session.pk, session.attempt)) as container:
        container.run("tail -f /dev/null & cd /tmp && echo 1 > a && echo 2 > b")
        part = text_of(browser, f"/sessions/{session.pk}/losses/")
    assert "<code>tail -f /dev/null</code>" in part


def test_a_session_that_waits_loses_nothing() -> None:
    session = make_session()
    assert losses_of(session) is None
    assert "losses" not in text_of(browser_of(session.owner), f"/sessions/{session.pk}/terminate/", **HTMX)
    assert session.status == Status.PENDING


@pytest.mark.django_db
def test_the_log_of_an_earlier_attempt_has_a_link() -> None:
    user = make_user()
    plain, again = (
        make_session(owner=user, name="plain"),
        make_session(owner=user, name="again", previous_output="epoch 1\n"),
    )
    browser = browser_of(user)
    assert "Earlier attempt" not in text_of(browser, f"/sessions/{plain.pk}/")
    link = f"/sessions/{again.pk}/logs/?previous=1"
    assert f'href="{link}"' in text_of(browser, f"/sessions/{again.pk}/")
    shown = text_of(browser, link)
    assert "epoch 1" in shown
    assert f'href="/sessions/{again.pk}/logs/download/?previous=1"' in shown
    assert b"epoch 1" in browser.get(f"/sessions/{again.pk}/logs/download/?previous=1").getvalue()
    assert browser_of(make_user()).get(link).status_code == 404
