"""The build queue: real builds, their progress, failures and retries, and what users read about them."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from docker import DockerClient

from resources.images import background, builds
from resources.models import BuildState, Image, ImageBuild
from tests.factories import make_image, make_user

REFERENCE = "gpuplatform-buildtest/queued:1"
CATALOG = f"""
[[image]]
environment = "queued"
version = "1"
reference = "{REFERENCE}"
[image.build]
suite = "bookworm"
"""
GOOD = "ARG BASE\nFROM ${BASE}\nARG PACKAGES\nRUN echo first\nRUN echo second\n"
BROKEN = "ARG BASE\nFROM ${BASE}\nARG PACKAGES\nRUN echo this cannot work; exit 3\n"
pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def engine() -> Iterator[DockerClient]:
    with closing(DockerClient(base_url=settings.COMPUTE_DOCKER_URL)) as client:
        yield client


@pytest.fixture
def folder(tmp_path: Path, engine: DockerClient) -> Iterator[Path]:
    """A catalogue of one image; what was built of it is removed."""
    (tmp_path / "files").mkdir()
    (tmp_path / "Dockerfile").write_text(GOOD)
    (tmp_path / "catalog.toml").write_text(CATALOG)
    yield tmp_path
    if engine.images.list(REFERENCE):
        engine.images.remove(REFERENCE)


def enqueue(engine: DockerClient, folder: Path) -> ImageBuild:
    background.enqueue_catalog(engine, folder, {}, with_registries=False, report=lambda _: None)
    return ImageBuild.objects.get(image__reference=REFERENCE)


def build_next(engine: DockerClient, folder: Path) -> ImageBuild:
    assert background.build_next(engine, folder, {}, lambda _: None)
    return ImageBuild.objects.get(image__reference=REFERENCE)


def make_build(state: BuildState, **overrides: object) -> ImageBuild:
    return ImageBuild.objects.create(image=make_image(), state=state, **overrides)


@pytest.mark.docker
def test_a_queued_image_is_built_step_by_step(
    engine: DockerClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[int, int]] = []
    record = builds.record_step

    def spy(build: ImageBuild, step: int, steps_: int) -> None:
        record(build, step, steps_)
        stored = ImageBuild.objects.get(pk=build.pk)
        assert stored.state == BuildState.BUILDING
        steps.append((stored.step, stored.steps))

    monkeypatch.setattr(builds, "record_step", spy)
    queued = enqueue(engine, folder)
    assert (queued.state, queued.is_usable) == (BuildState.QUEUED, False)
    built = build_next(engine, folder)
    assert (built.state, built.is_usable) == (BuildState.READY, True)
    assert built.last_duration
    assert steps == [(number, 6) for number in range(1, 7)], "those of the file, and one for the label"
    assert not builds.has_work()
    assert enqueue(engine, folder).state == BuildState.READY, "what is up to date is not queued again"


@pytest.mark.docker
def test_a_failed_build_is_retried_from_the_admin(engine: DockerClient, folder: Path, client: Client) -> None:
    (folder / "Dockerfile").write_text(BROKEN)
    enqueue(engine, folder)
    failed = build_next(engine, folder)
    assert (failed.state, failed.is_usable) == (BuildState.FAILED, False)
    assert "this cannot work" in failed.problem
    assert "returned a non-zero code: 3" in failed.problem
    assert not builds.has_work(), "it is not tried again by itself"
    client.force_login(make_user(is_superuser=True), backend="django.contrib.auth.backends.ModelBackend")
    change = client.get(reverse("admin:resources_image_change", args=[failed.pk])).content.decode()
    assert "this cannot work" in change
    (folder / "Dockerfile").write_text(GOOD)
    action = {"action": "build_again", "_selected_action": [failed.pk]}
    answer = client.post(reverse("admin:resources_image_changelist"), action, follow=True).content.decode()
    assert "1 image will be built" in answer
    assert build_next(engine, folder).state == BuildState.READY
    answer = client.post(reverse("admin:resources_image_changelist"), action, follow=True).content.decode()
    assert "None of these images has a build that failed" in answer


@pytest.mark.docker
def test_an_older_image_stays_usable_while_its_successor_fails(engine: DockerClient, folder: Path) -> None:
    enqueue(engine, folder)
    build_next(engine, folder)
    (folder / "Dockerfile").write_text(BROKEN)
    outdated = enqueue(engine, folder)
    assert (outdated.state, outdated.is_usable) == (BuildState.QUEUED, True)
    failed = build_next(engine, folder)
    assert (failed.state, failed.is_usable) == (BuildState.FAILED, True)
    assert builds.refusal(failed.image) is None


@pytest.mark.docker
def test_a_build_cut_short_is_begun_anew(engine: DockerClient, folder: Path) -> None:
    build = enqueue(engine, folder)
    ImageBuild.objects.filter(pk=build.pk).update(state=BuildState.BUILDING, step=3, steps=5)
    assert builds.has_work()
    assert build_next(engine, folder).state == BuildState.READY


@pytest.mark.docker
def test_two_builders_take_turns(engine: DockerClient, folder: Path) -> None:
    enqueue(engine, folder)
    parameters = connection.get_connection_params()
    parameters.pop("pool", None)
    with psycopg.connect(**parameters) as other:
        other.execute("SELECT pg_advisory_lock(%s)", [builds.BUILD_LOCK])
        assert not background.build_next(engine, folder, {}, lambda _: None)
        ImageBuild.objects.update(state=BuildState.BUILDING)
        assert enqueue(engine, folder).state == BuildState.BUILDING, "what the other builds is left alone"
        other.execute("SELECT pg_advisory_unlock(%s)", [builds.BUILD_LOCK])  # the server ends a session only later
    assert build_next(engine, folder).state == BuildState.READY


@pytest.mark.docker
def test_a_disabled_image_is_built_once_it_is_enabled(engine: DockerClient, folder: Path, client: Client) -> None:
    text = CATALOG.replace("[image.build]", 'enabled = false\nenable_hint = "Enable it."\n[image.build]')
    (folder / "catalog.toml").write_text(text)
    waiting = enqueue(engine, folder)
    assert (waiting.image.is_enabled, waiting.image.enable_hint) == (False, "Enable it.")
    assert not builds.has_work()
    assert not background.build_next(engine, folder, {}, lambda _: None)
    client.force_login(make_user(is_superuser=True), backend="django.contrib.auth.backends.ModelBackend")
    images = reverse("admin:resources_image_changelist")
    assert "waits until it is enabled" in client.get(images).content.decode()
    action = {"action": "enable", "_selected_action": [waiting.pk]}
    answer = client.post(images, action, follow=True).content.decode()
    assert "1 image enabled. 1 will be built" in answer
    assert builds.has_work()
    assert builds.refusal(Image.objects.get())
    assert build_next(engine, folder).state == BuildState.READY


@pytest.mark.docker
def test_an_unexpected_error_fails_the_build(
    engine: DockerClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(engine, folder)

    def explode(*args: object) -> None:
        raise ZeroDivisionError("of all things")

    monkeypatch.setattr(background, "_build", explode)
    failed = build_next(engine, folder)
    assert failed.state == BuildState.FAILED
    assert "of all things" in failed.problem


@pytest.mark.docker
def test_an_image_that_left_the_catalogue_fails(engine: DockerClient, folder: Path) -> None:
    enqueue(engine, folder)
    (folder / "catalog.toml").write_text(CATALOG.replace('"queued"', '"other"'))
    assert "no longer among the images" in build_next(engine, folder).problem


def test_the_queue_says_how_long_it_takes() -> None:
    now = timezone.now()
    building = {
        "step": 7,
        "steps": 23,
        "started_at": now - timedelta(seconds=30),
        "last_duration": timedelta(minutes=2),
    }
    make_build(BuildState.QUEUED, position=1, last_duration=timedelta(minutes=3))
    make_build(BuildState.BUILDING, position=2, **building)
    make_build(BuildState.FAILED, position=3, problem="why")
    make_build(BuildState.READY, position=4)
    assert [status.text for status in builds.statuses()] == [
        "building, step 7 of 23, about 2 minutes",
        "waits to be built, about 5 minutes",
        "could not be built",
    ]


@pytest.mark.parametrize(
    ("elapsed", "steps", "text"),
    [
        (0, 0, "building, preparing its base, about 2 minutes"),
        (60, 9, "building, step 4 of 9, about a minute"),
        (115, 9, "building, step 4 of 9, less than a minute"),
        (300, 9, "building, step 4 of 9"),
    ],
)
def test_a_build_says_how_far_it_is(elapsed: int, steps: int, text: str) -> None:
    make_build(BuildState.BUILDING, step=4, steps=steps, started_at=timezone.now() - timedelta(seconds=elapsed))
    assert [status.text for status in builds.statuses()] == [text]


def test_images_that_are_built_nowhere_are_usable() -> None:
    assert builds.is_usable(make_image())
    assert builds.refusal(make_image()) is None


def test_a_build_goes_with_its_deleted_image() -> None:
    make_build(BuildState.QUEUED)
    build = builds.claim()
    assert build
    Image.objects.all().delete()
    builds.finish(build, None)
    assert not ImageBuild.objects.exists()
