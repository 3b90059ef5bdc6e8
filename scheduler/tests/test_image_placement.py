"""Placement by images: an equal host that has the image is preferred, and a host that cannot run it gets no session."""

import pytest
from django.utils import timezone

from resources.models import Host, HostImage, Image, ResourceGroup
from scheduler.advice.estimate import estimate
from scheduler.cycle import passes
from scheduler.state.cache import GroupCaches, StateCache
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from sessions.tests.launch_requests import make_launch_request
from tests.factories import make_group, make_host, make_image, make_session, make_user, run_session

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def fresh_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "caches", GroupCaches())
    monkeypatch.setattr("scheduler.advice.estimate.state_cache", StateCache())


@pytest.fixture
def group() -> ResourceGroup:
    return make_group()


def hold(host: Host, image: Image) -> None:
    HostImage.objects.create(host=host, image=image, size=1)


def after_pass(session: Session) -> Session:
    passes.run_pass()
    session.refresh_from_db()
    return session


def test_among_equal_hosts_one_with_the_image_is_taken(group: ResourceGroup) -> None:
    make_host(group=group, name="a")
    second = make_host(group=group, name="b")
    image = make_image()
    hold(second, image)
    assert after_pass(make_session(resource_group=group, image=image)).host == second


def test_the_placement_policy_counts_more_than_the_image(group: ResourceGroup) -> None:
    busy, idle = make_host(group=group, name="a"), make_host(group=group, name="b")
    run_session(host=busy)
    image = make_image()
    hold(idle, image)
    assert after_pass(make_session(resource_group=group, image=image)).host == busy  # packing: the fuller host


def test_a_session_runs_on_a_host_of_its_images_architecture(group: ResourceGroup) -> None:
    make_host(group=group, name="a", architecture="amd64")
    arm = make_host(group=group, name="b", architecture="arm64")
    session = make_session(resource_group=group, image=make_image(architecture="arm64"))
    assert after_pass(session).host == arm


def test_another_architecture_waits_and_says_so(group: ResourceGroup) -> None:
    make_host(group=group, architecture="amd64")
    session = after_pass(make_session(resource_group=group, image=make_image(architecture="arm64")))
    assert (session.status, session.reason) == (Status.PENDING, Reason.NO_SUITABLE_HOST)
    assert session.detail == "No ready host of this session's resource group has a CPU of architecture arm64."


def test_a_host_that_has_not_reported_its_architecture_takes_any(group: ResourceGroup) -> None:
    make_host(group=group, name="a", architecture="amd64")
    silent = make_host(group=group, name="b")
    session = make_session(resource_group=group, image=make_image(architecture="arm64"))
    assert after_pass(session).host == silent


def test_an_image_of_no_registry_runs_where_it_is(group: ResourceGroup) -> None:
    make_host(group=group, name="a")
    holder = make_host(group=group, name="b")
    image = make_image(is_local=True)
    session = after_pass(make_session(resource_group=group, image=image))
    assert session.reason == Reason.NO_SUITABLE_HOST
    assert image.reference in session.detail
    hold(holder, image)
    assert after_pass(session).host == holder


def test_an_estimate_knows_what_the_image_needs(group: ResourceGroup) -> None:
    make_host(group=group, name="a")
    holder = make_host(group=group, name="b", is_cordoned=True)
    image = make_image(is_local=True)
    hold(holder, image)
    order = make_launch_request(holder, image=image)
    advice = estimate(make_user(), order).advice.last
    assert advice.starts is None
    assert image.reference in advice.reason
    Host.objects.filter(pk=holder.pk).update(is_cordoned=False, heartbeat_at=timezone.now())
    assert estimate(make_user(), order).advice.last.starts == "now"
