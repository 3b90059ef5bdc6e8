"""Submitting: what is queued, and what is refused at which field, with nothing written."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from celery import Celery
from django.db import connection
from pytest_django import DjangoCaptureOnCommitCallbacks, Settings

from accounts.models import User
from gpuplatform.celery import app as celery_app
from resources.amounts.units import GIB, MIB
from resources.models import Host
from scheduler.cycle.passes import run_pass
from sessions.errors import GENERAL
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Session, SessionEvent
from sessions.tests.launch_requests import make_launch_request, rejection
from tests.factories import (
    make_gpu,
    make_group,
    make_host,
    make_image,
    make_policy,
    make_session,
    make_user,
    run_session,
)
from tests.queues import take_all
from tests.wait import SECONDS


@pytest.fixture
def owner(db: None) -> User:
    return make_user()


@pytest.fixture
def host(db: None) -> Host:
    """A host of 16 cores, 64 GiB and 2 GPUs of 2 fGPU."""
    return make_host(gpus=2)


def test_a_session_is_queued_as_requested(owner: User, host: Host) -> None:
    image = make_image()
    order = make_launch_request(
        host, image=image, name="my.work_1", cpu=2, fgpu=350, environment={"LANG": "C.UTF-8", "E": ""}
    )
    (session,) = services.submit(owner, order)
    stored = Session.objects.get()
    assert stored == session
    assert (stored.owner, stored.name, stored.image, stored.resource_group) == (owner, "my.work_1", image, host.group)
    assert (stored.cpu, stored.memory, stored.shared_memory, stored.fgpu) == (2, GIB, 64 * MIB, 350)
    assert stored.environment == {"LANG": "C.UTF-8", "E": ""}
    assert (stored.status, stored.reason, stored.attempt, stored.host) == (Status.PENDING, Reason.SUBMITTED, 0, None)
    event = stored.events.get()
    assert (event.old_status, event.new_status, event.reason, event.actor) == ("", "PENDING", "SUBMITTED", owner)


def test_several_sessions_are_numbered_in_queue_order(owner: User, host: Host) -> None:
    sessions = services.submit(owner, make_launch_request(host, name="lesson", count=12))
    assert [session.name for session in sessions] == [f"lesson-{number}" for number in range(1, 13)]
    assert list(Session.objects.in_queue_order()) == sessions


def test_a_session_without_a_name_gets_one(owner: User, host: Host) -> None:
    names = [services.submit(owner, make_launch_request(host))[0].name for _ in range(3)]
    assert len(set(names)) == 3
    assert rejection(make_user(), make_launch_request(host, name=names[0])) == {}


def test_submitting_kicks_the_scheduler_after_the_commit(
    owner: User, host: Host, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    take_all("scheduler")
    with django_capture_on_commit_callbacks(execute=True):
        services.submit(owner, make_launch_request(host))
        assert take_all("scheduler") == []
    assert take_all("scheduler") == [("scheduler.tasks.run_pass", ())]


def test_sudo_depends_on_the_policy(host: Host) -> None:
    for allowed in (False, True):
        (session,) = services.submit(make_user(policy=make_policy(allow_sudo=allowed)), make_launch_request(host))
        assert session.allow_sudo is allowed


LONG = "n" * 64
BAD_FIELDS: list[tuple[str, dict[str, Any], str]] = [
    ("name", {"name": "abc"}, "4 to 64"),
    ("name", {"name": LONG + "n"}, "4 to 64"),
    ("name", {"name": "-dash"}, "letters, digits"),
    ("name", {"name": "dash-"}, "letters, digits"),
    ("name", {"name": "two words"}, "letters, digits"),
    ("name", {"name": "newline\n"}, "letters, digits"),
    ("name", {"name": "größe"}, "letters, digits"),
    ("name", {"name": "../../etc"}, "letters, digits"),
    ("name", {"name": LONG, "count": 2}, "longer than 64"),
    ("cpu", {"cpu": 0}, "at least 1 CPU core"),
    ("cpu", {"cpu": -1}, "at least 1 CPU core"),
    ("cpu", {"cpu": 17}, "16 CPU cores"),
    ("cpu", {"cpu": 10**30}, "16 CPU cores"),
    ("memory", {"memory": 64 * MIB - 1, "shared_memory": MIB}, "at least 64 MiB"),
    ("memory", {"memory": 64 * GIB + 1}, "64 GiB"),
    ("memory", {"memory": 10**30}, "64 GiB"),
    ("shared_memory", {"shared_memory": 0}, "at least 1 MiB"),
    ("shared_memory", {"shared_memory": GIB + 1}, "part of the memory"),
    ("fgpu", {"fgpu": -10}, "zero or more"),
    ("fgpu", {"fgpu": 355}, "0.35 and 0.36"),
    ("fgpu", {"fgpu": 4010}, "4 fGPU"),
    ("fgpu", {"fgpu": 10**30}, "4 fGPU"),
    ("count", {"count": 0}, "1 to 50"),
    ("count", {"count": -1}, "1 to 50"),
    ("count", {"count": 51}, "1 to 50"),
    ("environment", {"environment": {"1A": ""}}, "not a variable name"),
    ("environment", {"environment": {"A=B": ""}}, "not a variable name"),
    ("environment", {"environment": {"A\n": ""}}, "not a variable name"),
    ("environment", {"environment": {"": "x"}}, "not a variable name"),
    ("environment", {"environment": {"GPUPLATFORM_SESSION_ID": "x"}}, "reserved"),
    ("environment", {"environment": {"LD_PRELOAD": "/proc/self/cwd/x.so"}}, "would act on the host too"),
    ("environment", {"environment": {"NVIDIA_VISIBLE_DEVICES": "all"}}, "would act on the host too"),
    ("environment", {"environment": {"AMD_VISIBLE_DEVICES": "0"}}, "would act on the host too"),
    ("environment", {"environment": {"HABANA_VISIBLE_DEVICES_": "all"}}, "would act on the host too"),
    ("environment", {"environment": {"A": "x\0y"}}, "NUL"),
    ("environment", {"environment": {"A": "\ud800"}}, "lone surrogate"),
    ("environment", {"environment": {"A": "ä" * 32 * 1024}}, "64 KiB"),
    ("environment", {"environment": {f"A{number}": "" for number in range(201)}}, "200"),
]


@pytest.mark.parametrize(("field", "overrides", "words"), BAD_FIELDS)
def test_an_impossible_request_is_rejected_at_its_field(
    owner: User, host: Host, field: str, overrides: dict[str, Any], words: str
) -> None:
    errors = rejection(owner, make_launch_request(host, **overrides))
    assert list(errors) == [field]
    assert words in errors[field]
    assert not Session.objects.exists()
    assert not SessionEvent.objects.exists()


def test_all_bad_fields_are_named_at_once(owner: User, host: Host) -> None:
    errors = rejection(owner, make_launch_request(host, name="x", cpu=0, fgpu=1, environment={"=": ""}))
    assert errors.keys() == {"name", "cpu", "fgpu", "environment"}


def test_the_largest_that_exists_is_accepted(owner: User, host: Host) -> None:
    order = make_launch_request(host, name=LONG, cpu=16, memory=64 * GIB, shared_memory=64 * GIB, fgpu=4000)
    assert rejection(owner, order) == {}
    assert rejection(owner, make_launch_request(host, environment={"A": "x" * (64 * 1024 - 3)}, count=50)) == {}


def test_names_are_unique_per_owner_while_live(owner: User, host: Host) -> None:
    (session,) = services.submit(owner, make_launch_request(host, name="work-1"))
    assert "work-1" in rejection(owner, make_launch_request(host, name="work-1"))["name"]
    assert "work-1" in rejection(owner, make_launch_request(host, name="work", count=3))["name"]
    assert Session.objects.count() == 1
    assert rejection(make_user(), make_launch_request(host, name="work-1")) == {}
    services.terminate(session, actor=owner)
    assert rejection(owner, make_launch_request(host, name="work-1")) == {}


def test_inaccessible_groups_are_all_rejected_alike(owner: User) -> None:
    closed, inactive = make_host(group=make_group(open_to_all=False)), make_host(group=make_group(is_active=False))
    granted = make_host(group=make_group(open_to_all=False))
    granted.group.users.add(owner)
    messages = [rejection(owner, make_launch_request(host)) for host in (closed, inactive)]
    assert messages == [{"resource_group": "You may not use this resource group."}] * 2
    assert rejection(owner, make_launch_request(granted)) == {}
    assert rejection(make_user(is_superuser=True), make_launch_request(closed)) == {}


def test_disabled_images_and_minimums_are_enforced(owner: User, host: Host) -> None:
    assert list(rejection(owner, make_launch_request(host, image=make_image(is_enabled=False)))) == ["image"]
    demanding = make_image(min_cpu=2, min_memory=2 * GIB, min_fgpu=500)
    errors = rejection(owner, make_launch_request(host, image=demanding))
    assert errors.keys() == {"cpu", "memory", "fgpu"}
    assert "2 CPU cores" in errors["cpu"]
    assert "2 GiB" in errors["memory"]
    assert "0.5 fGPU" in errors["fgpu"]
    assert not Session.objects.exists()
    assert rejection(owner, make_launch_request(host, image=demanding, cpu=2, memory=2 * GIB, fgpu=500)) == {}


@pytest.mark.parametrize(
    ("limit", "field"),
    [({"cpu": 1}, "cpu"), ({"memory": GIB}, "memory"), ({"fgpu": 490}, "fgpu"), ({"max_sessions": 0}, GENERAL)],
)
def test_what_the_policy_never_allows_is_refused(host: Host, limit: dict[str, int], field: str) -> None:
    order = make_launch_request(host, cpu=2, memory=2 * GIB, fgpu=500)
    errors = rejection(make_user(policy=make_policy(**limit)), order)
    assert list(errors) == [field]
    assert "policy" in errors[field]
    assert not Session.objects.exists()


def test_what_the_policy_allows_later_is_queued(host: Host) -> None:
    user = make_user(policy=make_policy(cpu=2, max_sessions=1))
    run_session(owner=user, host=host, cpu=2)
    assert rejection(user, make_launch_request(host, cpu=2)) == {}


def test_the_pending_limit_counts_only_those_that_wait(host: Host) -> None:
    user = make_user(policy=make_policy(max_pending=3))
    run_session(owner=user, host=host)
    assert rejection(user, make_launch_request(host, count=2)) == {}
    assert "2 wait already" in rejection(user, make_launch_request(host, count=2))["count"]
    assert rejection(user, make_launch_request(host, count=1)) == {}
    assert Session.objects.filter(owner=user, status=Status.PENDING).count() == 3


def test_a_group_without_hosts_is_rejected(owner: User, host: Host) -> None:
    empty = make_launch_request(host, resource_group=make_group())
    assert list(rejection(owner, empty)) == ["resource_group"]
    Host.objects.filter(pk=host.pk).update(status="LOST")
    assert rejection(owner, make_launch_request(host)) == {}


def test_absent_gpus_do_not_count(owner: User, host: Host) -> None:
    make_gpu(host=host, index=2, is_present=False)
    assert list(rejection(owner, make_launch_request(host, fgpu=4010))) == ["fgpu"]


@pytest.mark.django_db(transaction=True)
def test_the_pending_limit_holds_under_concurrency() -> None:
    user, host = make_user(policy=make_policy(max_pending=3)), make_host()
    together = threading.Barrier(6, timeout=SECONDS)
    image = make_image()

    def one(_: int) -> dict[str, str]:
        try:
            mine = User.objects.select_related("policy").get(pk=user.pk)
            together.wait()
            return rejection(mine, make_launch_request(host, image=image, name="same-name" if _ % 2 else ""))
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        outcomes = list(threads.map(one, range(6)))
    accepted = sum(not errors for errors in outcomes)
    assert Session.objects.count() == accepted <= 3
    assert Session.objects.filter(name="same-name").count() <= 1
    assert all(errors.keys() <= {"count", "name"} for errors in outcomes)


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that refuses connections for as long as the test runs."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.fixture
def redis_down(closed_port: int, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Broker, cache and channel layer as configured, but with nothing listening."""

    def wait(seconds: float) -> None:
        raise AssertionError("somebody waits for Redis to come back")

    for name in ("kombu.utils.functional.sleep", "redis.retry.sleep"):
        monkeypatch.setattr(name, wait)
    url = f"redis://127.0.0.1:{closed_port}/0"
    settings.CACHES = {"default": settings.CACHES["default"] | {"LOCATION": url}}
    layer = settings.CHANNEL_LAYERS["default"]
    settings.CHANNEL_LAYERS = {"default": layer | {"CONFIG": {"hosts": [url]}}}
    without_broker = Celery("without broker", set_as_current=False)
    without_broker.config_from_object("django.conf:settings", namespace="CELERY")
    without_broker.conf.update(broker_url=url, broker_write_url=url)
    without_broker.set_current()
    yield
    celery_app.set_current()


@pytest.mark.loopback
@pytest.mark.usefixtures("redis_down")
def test_sessions_are_accepted_without_redis(
    owner: User,
    host: Host,
    caplog: pytest.LogCaptureFixture,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        (session,) = services.submit(owner, make_launch_request(host))
    with django_capture_on_commit_callbacks(execute=True):
        assert run_pass() == 1
    assert "could not request scheduler.tasks.run_pass" in caplog.text
    assert "could not send hostworker.tasks.start_session" in caplog.text
    session.refresh_from_db()
    assert session.status == Status.SCHEDULED


@pytest.mark.loopback
@pytest.mark.usefixtures("redis_down")
def test_without_redis_a_session_is_ended_at_once(
    owner: User, host: Host, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    session = run_session(owner=owner, host=host)
    waiting = make_session(owner=owner)
    with django_capture_on_commit_callbacks(execute=True):
        services.terminate(session, actor=owner)
        services.terminate(waiting, actor=owner)
    assert (session.status, waiting.status) == (Status.TERMINATING, Status.CANCELLED)
