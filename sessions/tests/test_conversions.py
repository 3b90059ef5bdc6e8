"""Who may turn a session into an image, under which name, and what becomes of it."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from accounts.models import User
from resources.models import HostStatus, Image, ImageSource, Registry
from sessions import sweeps
from sessions.conversion import private_images
from sessions.conversion import services as conversions
from sessions.errors import GENERAL, RejectedError
from sessions.lifecycle import Reason, Status
from sessions.models import Conversion, ConversionState, Session
from tests.factories import make_app, make_policy, make_user, run_session, session_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    return make_user(email="Ada.L@example.org", policy=make_policy(allow_conversion=True))


@pytest.fixture
def session(owner: User) -> Session:
    return run_session(owner=owner, name="My_Session.1")


def ask(session: Session, *, actor: User | None = None, name: str = "tool", tag: str = "1") -> Conversion:
    return conversions.request(session, actor=actor or session.owner, name=name, tag=tag)


def refused(session: Session, **fields: Any) -> dict[str, str]:
    with pytest.raises(RejectedError) as refusal:
        ask(session, **fields)
    return refusal.value.errors


def finished(conversion: Conversion, digest: str = "") -> Image:
    begun = conversions.begin(str(conversion.pk))
    assert begun
    assert begun.host
    return conversions.finish(begun, begun.host, size_bytes=5, registry_digest=digest, recipe="FROM x")


def test_an_owner_may_where_the_policy_says_so(session: Session) -> None:
    assert ask(session).state == ConversionState.QUEUED


def test_others_may_not(session: Session) -> None:
    session.owner.policy.allow_conversion = False
    session.owner.policy.save()
    assert list(refused(session)) == [GENERAL]
    assert list(refused(session, actor=make_user(policy=make_policy(allow_conversion=True)))) == [GENERAL]
    assert ask(session, actor=make_user(is_superuser=True)).reference.endswith(f"-{session.owner.pk}/tool:1")


@pytest.mark.parametrize("name", ["", "Tool", "a b", "-a", "a..b", "a/b", "ä", "a" * 65, "a\n"])
def test_a_bad_name_is_refused_at_its_field(session: Session, name: str) -> None:
    assert list(refused(session, name=name)) == ["name"]


@pytest.mark.parametrize("tag", ["", ".1", "-1", "a b", "1/2", "1:2", "a" * 65, "1\n"])
def test_a_bad_tag_is_refused_at_its_field(session: Session, tag: str) -> None:
    assert list(refused(session, tag=tag)) == ["tag"]


def test_a_suggested_name_is_valid(session: Session) -> None:
    assert conversions.suggested_name(session) == "my-session-1"


@pytest.mark.parametrize("status", [status for status in Status if status != Status.RUNNING])
def test_only_a_running_session_is_saved(status: Status) -> None:
    assert list(refused(session_in(status), actor=make_user(is_superuser=True))) == [GENERAL]


def test_a_session_of_a_lost_host_is_refused(session: Session) -> None:
    assert session.host
    session.host.status = HostStatus.LOST
    assert list(refused(session)) == [GENERAL]


def test_a_session_is_saved_once_at_a_time(session: Session) -> None:
    ask(session)
    with transaction.atomic():
        assert list(refused(session, tag="2")) == [GENERAL]


def test_a_name_is_taken_by_an_image_or_a_conversion(session: Session) -> None:
    other = run_session(owner=session.owner)
    conversion = ask(session)
    assert list(refused(other)) == ["tag"]
    finished(conversion)
    assert list(refused(other)) == ["tag"]
    assert ask(other, tag="2")


def test_the_limit_counts_images_and_conversions(session: Session) -> None:
    session.owner.policy.max_private_images = 2
    session.owner.policy.save()
    finished(ask(session))
    ask(session, tag="2")
    assert list(refused(run_session(owner=session.owner), tag="3")) == [GENERAL]


def test_an_image_is_named_after_the_registry_and_its_owner(session: Session) -> None:
    expected = f"private/ada-l-{session.owner.pk}/tool:1"
    assert conversions.reference_of(session.owner, "tool", "1") == f"gpuplatform/{expected}"
    Registry.objects.create(name="r", address="registry.example.org:5000", is_push_target=True)
    assert ask(session).reference == f"registry.example.org:5000/{expected}"


def test_a_finished_conversion_offers_a_private_image(
    session: Session, django_capture_on_commit_callbacks: Any, settings: Any
) -> None:
    make_app(session.image)
    with django_capture_on_commit_callbacks(execute=True):
        image = finished(ask(session))
    assert (image.owner, image.source, image.is_local, image.size) == (session.owner, ImageSource.SESSION, True, 5)
    assert [app.name for app in image.apps.all()] == ["jupyter"]
    assert image in Image.objects.usable_by(session.owner)
    assert image not in Image.objects.usable_by(make_user())


def test_each_step_is_reported_in_the_timeline(session: Session) -> None:
    finished(ask(session))
    conversions.fail(ask(session, tag="2"), "No room.")
    told = session.events.filter(reason=Reason.CONVERSION)
    assert [event.detail.split(" ", 1)[0] for event in told] == ["To", "Saved", "To", "Not"]
    assert {event.old_status for event in told} == {event.new_status for event in told} == {Status.RUNNING}


def test_what_was_given_up_cannot_be_finished(session: Session) -> None:
    conversion = ask(session)
    conversions.fail(conversion, "Why.")
    with pytest.raises(conversions.StaleConversionError):
        conversions.finish(conversion, conversion.host, size_bytes=1, registry_digest="", recipe="")  # type: ignore[arg-type]
    assert not Image.objects.filter(source=ImageSource.SESSION).exists()


def test_a_conversion_is_begun_once(session: Session) -> None:
    conversion = ask(session)
    assert conversions.begin(str(conversion.pk))
    assert conversions.begin(str(conversion.pk)) is None


def test_a_deleted_image_leaves_its_name_free(session: Session) -> None:
    image = finished(ask(session))
    private_images.delete(image, actor=session.owner)
    private_images.delete(image, actor=session.owner)
    image.refresh_from_db()
    assert image.removed_at
    assert image not in Image.objects.usable_by(session.owner)
    assert image not in private_images.visible_to(session.owner)
    again = finished(ask(session), digest="sha256:1")
    assert again.pk == image.pk
    assert (again.removed_at, again.is_enabled, again.is_local) == (None, True, False)


def test_an_image_in_use_is_not_deleted(session: Session) -> None:
    image = finished(ask(session))
    user = run_session(owner=session.owner, image=image, name="uses-it")
    with pytest.raises(RejectedError, match="uses-it"):
        private_images.delete(image, actor=session.owner)
    user.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
    private_images.delete(image, actor=session.owner)


def test_private_images_are_seen_by_owner_and_superadmins(session: Session) -> None:
    image = finished(ask(session))
    assert list(private_images.visible_to(session.owner)) == [image]
    assert list(private_images.visible_to(make_user(is_superuser=True))) == [image]
    assert not private_images.visible_to(make_user()).exists()


def test_a_conversion_whose_host_is_gone_fails(session: Session) -> None:
    conversion = ask(session)
    assert session.host
    long_ago = timezone.now() - timedelta(days=1)
    type(session.host).objects.filter(pk=session.host.pk).update(status=HostStatus.LOST, lost_at=long_ago)
    sweeps.fail_stranded_conversions()
    conversion.refresh_from_db()
    assert conversion.state == ConversionState.FAILED
    assert str(session.host) in conversion.problem


def test_a_conversion_that_nobody_begins_fails(session: Session) -> None:
    conversion = ask(session)
    sweeps.fail_stranded_conversions()
    assert Conversion.objects.get(pk=conversion.pk).is_active
    Conversion.objects.update(created_at=timezone.now() - timedelta(hours=1))
    sweeps.fail_stranded_conversions()
    assert not Conversion.objects.get(pk=conversion.pk).is_active


def test_a_request_has_its_time_by_the_shared_clock(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    behind = timezone.now() - timedelta(days=1)
    monkeypatch.setattr(timezone, "now", lambda: behind)
    monkeypatch.setattr(Conversion._meta.get_field("created_at"), "_get_default", lambda: behind)
    conversion = ask(session)
    sweeps.fail_stranded_conversions()
    conversion.refresh_from_db()
    assert conversion.state == ConversionState.QUEUED
