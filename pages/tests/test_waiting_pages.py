"""What helps a session that waits: its owner's own sessions by name, and less, on the list and on its page."""

import json

import pytest

from resources.amounts.units import GIB
from resources.models import Host
from scheduler.advice import own_sessions
from scheduler.advice.wait_help import help_for
from scheduler.cycle.passes import run_pass
from sessions.lifecycle import Status
from sessions.models import Session
from sessions.parking import services as parking
from tests.factories import make_host, make_image, make_policy, make_session, make_user, run_session
from tests.web import HTMX, browser_of, text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def host() -> Host:
    """A host of 16 cores, 64 GiB and one GPU of 2 fGPU."""
    return make_host(gpus=1)


def waiting_on(host: Host, **overrides: object) -> Session:
    return make_session(**{"resource_group": host.group, "name": "next", "fgpu": 1000, **overrides})


def named(session: Session) -> tuple[list[str], bool, object]:
    """Return the names of what is in the way, whether one of them is enough, and the start without."""
    found = help_for([session.pk]).get(session.pk)
    return ([each.name for each in found.blockers], found.is_any, found.starts) if found else ([], False, None)


def test_row_and_page_name_the_own_session_and_offer_acts(host: Host) -> None:
    own = run_session(host=host, name="train-3", fgpu=1500)
    waiting = waiting_on(host, owner=own.owner)
    run_pass()
    for path in ("/sessions/", f"/sessions/{waiting.pk}/"):
        page = " ".join(text_of(browser_of(own.owner), path).split())
        assert f'Waits for your own session</span> <span class="wait-blocker"><a href="/sessions/{own.pk}/">' in page
        for act in (f"{own.pk}/park/", f"{own.pk}/terminate/", f"{waiting.pk}/less/"):
            assert f"/sessions/{act}" in page
        assert "then this one starts at once" in page
    parking.park(own, actor=own.owner)
    found = help_for([waiting.pk])[waiting.pk]
    assert found is not None
    assert [(each.may_be_parked, each.may_be_ended) for each in found.blockers] == [(False, False)]  # it stops already


def test_superadmins_see_it_for_their_own_alone(host: Host) -> None:
    admin = make_user(is_superuser=True)
    for owner, place in ((admin, host), (make_user(), make_host(gpus=1))):
        waiting_on(place, owner=run_session(host=place, owner=owner, fgpu=2000).owner)
    page = text_of(browser_of(admin), "/sessions/")
    assert page.count("Waits for your own session") == 1
    assert page.count('class="wait-help"') == 1


def test_any_own_session_or_all_that_are_needed(host: Host) -> None:
    owner = make_user()
    for name in ("first", "second"):
        run_session(host=host, owner=owner, name=name, fgpu=1000)
    waiting = waiting_on(host, owner=owner)
    assert named(waiting) == (["second", "first"], True, "now")
    Session.objects.filter(pk=waiting.pk).update(fgpu=2000)
    assert named(waiting) == (["second", "first"], False, "now")


def test_sessions_of_others_are_never_named(host: Host) -> None:
    other = run_session(host=host, fgpu=1500)
    waiting = waiting_on(host)
    elsewhere = run_session(host=make_host(gpus=1), owner=waiting.owner, fgpu=500)
    assert named(waiting) == ([], False, None)
    page = text_of(browser_of(waiting.owner), f"/sessions/{waiting.pk}/")
    assert "Ask for less" in page
    assert other.name not in page
    assert elsewhere.name not in page


def test_a_limit_is_freed_by_sessions_anywhere(host: Host) -> None:
    owner = make_user(policy=make_policy(max_sessions=1))
    run_session(host=make_host(), owner=owner, name="far-away")
    assert named(waiting_on(host, owner=owner)) == (["far-away"], True, "now")


def test_asking_for_less_starts_the_session_in_its_place(host: Host) -> None:
    run_session(host=host, fgpu=1500)
    waiting = waiting_on(host, cpu=2, memory=2 * GIB)
    browser, path = browser_of(waiting.owner), f"/sessions/{waiting.pk}/less/"
    assert "2 CPU cores, 2 GiB of memory and 0.5 fGPU" in text_of(browser, path, **HTMX)
    for wrong in ({}, {"cpu": 2, "memory": 2 * GIB, "fgpu": 1500}, {"cpu": 2, "memory": 2**70, "fgpu": 1}):
        assert browser.post(path, wrong, headers=HTMX).status_code == 422
    answer = browser.post(path, {"cpu": 2, "memory": 2 * GIB, "fgpu": 500}, headers=HTMX)
    assert json.loads(answer["HX-Trigger"]) == {"sessions:resized": {"message": "next asks for less now."}}
    run_pass()
    waiting.refresh_from_db()
    assert (waiting.status, waiting.fgpu) == (Status.SCHEDULED, 500)
    assert "does not wait" in browser.post(path, {"cpu": 1, "memory": GIB, "fgpu": 500}, headers=HTMX).content.decode()
    assert "It asks for 2 CPU cores, 2 GiB of memory and 0.5 fGPU now." in text_of(browser, f"/sessions/{waiting.pk}/")


def test_less_than_the_image_needs_is_not_proposed(host: Host) -> None:
    run_session(host=host, fgpu=1500)
    waiting = waiting_on(host, image=make_image(min_fgpu=1000))
    assert "would not start with less either" in text_of(browser_of(waiting.owner), f"/sessions/{waiting.pk}/less/")


def test_help_that_takes_long_is_given_to_the_first(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    own = run_session(host=host, fgpu=1500)
    waiting = [waiting_on(host, owner=own.owner, name=name).pk for name in ("next", "last")]
    assert help_for(waiting).keys() == {*waiting}
    monkeypatch.setattr(own_sessions, "MAX_SECONDS", 0)
    assert len(help_for(waiting)) == 1
    page = text_of(browser_of(own.owner), "/sessions/")
    assert page.count("data-kept") == 1  # what it shows of the other stays
