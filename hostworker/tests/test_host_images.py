"""The images of a host: reports, pulls for sessions and pulls that administrators ask for."""

from collections.abc import Callable

import pytest

from hostworker.images import host_images
from hostworker.runtime.memory.engine import MemoryEngineControl
from hostworker.runtime.memory.runtime import MemoryImages
from hostworker.runtime_protocol import FindLogin, HeldImage, ImageUnavailableError
from hostworker.tests.fault_injection import FaultInjectingRuntime
from resources.models import Host, HostImage, ImagePull, ImageSource, PullState, Registry
from resources.registries.credentials import set_password
from resources.registries.login import ANONYMOUS, RegistryLogin
from tests.factories import make_host, make_image, make_policy, make_user

pytestmark = pytest.mark.django_db


class RecordingImages(MemoryImages):
    """Remembers each pull: reference, login, and whether the registry is asked in any case."""

    def __init__(self, control: MemoryEngineControl) -> None:
        super().__init__(control)
        self.pulls: list[tuple[str, RegistryLogin | None, bool]] = []

    def ensure(
        self,
        reference: str,
        on_progress: Callable[[str], None],
        find_login: FindLogin = lambda: None,
        *,
        always_pull: bool = False,
    ) -> None:
        self.pulls.append((reference, find_login(), always_pull))
        super().ensure(reference, on_progress, find_login, always_pull=always_pull)


@pytest.fixture
def runtime() -> FaultInjectingRuntime:
    return FaultInjectingRuntime()


@pytest.fixture
def images(runtime: FaultInjectingRuntime) -> RecordingImages:
    runtime.images = recording = RecordingImages(runtime)
    return recording


@pytest.fixture
def host() -> Host:
    return make_host()


def test_a_report_follows_what_the_engine_has(runtime: FaultInjectingRuntime, host: Host) -> None:
    here, gone = make_image(), make_image()
    host_images.report(runtime, host)
    assert {row.image for row in HostImage.objects.filter(host=host)} == {here, gone}
    runtime.remove_image(gone.reference)
    host_images.report(runtime, host)
    (row,) = HostImage.objects.filter(host=host)
    assert (row.image, row.size) == (here, 50_000_000)


def test_a_report_completes_what_no_scan_has_reported(runtime: FaultInjectingRuntime, host: Host) -> None:
    unknown, scanned = make_image(), make_image(architecture="arm64", size=7)
    host_images.report(runtime, host)
    for image in (unknown, scanned):
        image.refresh_from_db()
    assert (unknown.architecture, unknown.size) == ("amd64", 50_000_000)
    assert (scanned.architecture, scanned.size) == ("arm64", 7)


def test_a_row_made_during_a_report_stays(runtime: FaultInjectingRuntime, host: Host) -> None:
    image = make_image()
    runtime.remove_image(image.reference)
    runtime.just_before("images", lambda: HostImage.objects.create(host=host, image=image, size=1))
    host_images.report(runtime, host)
    assert HostImage.objects.filter(host=host, image=image).exists()


def test_a_second_report_writes_no_rows_anew(runtime: FaultInjectingRuntime, host: Host) -> None:
    make_image()
    host_images.report(runtime, host)
    before = list(HostImage.objects.values_list("pk", flat=True))
    host_images.report(runtime, host)
    assert list(HostImage.objects.values_list("pk", flat=True)) == before


def test_a_registered_image_is_pulled_with_its_registrys_login(
    runtime: FaultInjectingRuntime, images: RecordingImages
) -> None:
    registry = Registry(name="Lab", address="lab.example.com", username="platform")
    set_password(registry, "secret")
    registry.save()
    image = make_image(reference="lab.example.com/team/x:1")
    runtime.remove_image(image.reference, can_pull=True)
    assert host_images.ensure(runtime, image, lambda text: None)
    assert images.pulls == [
        (image.reference, RegistryLogin(address="lab.example.com", username="platform", password="secret"), False)
    ]
    assert not host_images.ensure(runtime, image, pytest.fail)


def test_a_built_image_is_never_pulled(runtime: FaultInjectingRuntime, images: RecordingImages) -> None:
    image = make_image(reference="gpuplatform/python:3.11", source=ImageSource.CATALOG)
    assert not host_images.ensure(runtime, image, print)
    runtime.remove_image(image.reference, can_pull=True)
    images.pulls.clear()
    with pytest.raises(ImageUnavailableError, match="built there, not pulled"):
        host_images.ensure(runtime, image, print)
    assert images.pulls == []


def test_an_unlisted_image_is_always_pulled_without_a_login(
    runtime: FaultInjectingRuntime, images: RecordingImages
) -> None:
    owner = make_user(policy=make_policy(allow_unlisted_images=True))
    image = make_image(reference="lab.example.com/team/x:1", owner=owner, source=ImageSource.UNLISTED)
    host_images.ensure(runtime, image, lambda text: None)
    assert images.pulls == [(image.reference, ANONYMOUS, True)]


def test_an_unlisted_name_never_replaces_a_registered_image(
    runtime: FaultInjectingRuntime, images: RecordingImages
) -> None:
    registered = make_image(owner=make_user(), source=ImageSource.SESSION)
    named = make_image(owner=make_user(), reference=registered.reference, source=ImageSource.UNLISTED)
    with pytest.raises(ImageUnavailableError, match="no such image, or it needs a login"):
        host_images.ensure(runtime, named, lambda text: None)
    assert not images.pulls


def test_a_requested_pull_ends_with_a_report(runtime: FaultInjectingRuntime, host: Host) -> None:
    good, bad = make_image(), make_image()
    runtime.remove_image(good.reference, can_pull=True)
    runtime.remove_image(bad.reference)
    for image in (good, bad):
        ImagePull.objects.create(host=host, image=image)
    host_images.pull_requested(runtime, host)
    assert ImagePull.objects.get(image=good).state == PullState.DONE
    failed = ImagePull.objects.get(image=bad)
    assert (failed.state, "no such image" in failed.detail) == (PullState.FAILED, True)
    assert [row.image for row in HostImage.objects.all()] == [good]


def test_a_pull_cut_short_is_done_again(runtime: FaultInjectingRuntime, images: RecordingImages, host: Host) -> None:
    pull = ImagePull.objects.create(host=host, image=make_image(), state=PullState.PULLING)
    host_images.pull_requested(runtime, host)
    assert not images.pulls
    host_images.resume_pulls(host)
    host_images.pull_requested(runtime, host)
    pull.refresh_from_db()
    assert (pull.state, len(images.pulls)) == (PullState.DONE, 1)


def test_the_engine_tells_size_and_architecture(runtime: FaultInjectingRuntime) -> None:
    assert runtime.images.find(["a:1"]) == {"a:1": HeldImage(size_bytes=50_000_000, architecture="amd64")}
