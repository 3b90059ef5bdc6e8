"""Starts that fail by the host's fault: tried elsewhere; the host is cordoned, probed and put back into service."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from hostworker.agent import host_probe, reconciler
from hostworker.runtime.engine_requests import is_image_fault
from hostworker.runtime_protocol import (
    ContainerRuntimeError,
    ContainerState,
    EnforcementError,
    EngineUnreachableError,
    ImageUnavailableError,
    RemovalError,
    StartError,
)
from hostworker.tests.fault_injection import FaultInjectingRuntime
from hostworker.tests.starting import start_session
from notifications.delivery.texts import text_of
from notifications.models import Notification
from resources.amounts.units import MIB
from resources.gpus.tiers import Tier
from resources.hosts import health as host_health
from resources.hosts import services as hosts
from resources.models import Host, HostHealth, HostImage, HostStatus, Image, ImageSource
from scheduler.cycle.passes import run_pass
from sessions import sweeps
from sessions.lifecycle import LIVE, Reason, Status
from sessions.models import Lease, Session
from sessions.requeueing import host_faults
from sessions.requeueing.host_faults import MAX_RETRIES
from tests.factories import make_gpu, make_group, make_host, make_image, make_session, make_user, session_in

pytestmark = pytest.mark.django_db
BROKEN = StartError("could not select device driver nvidia")


def fail_start(host: Host, failure: ContainerRuntimeError = BROKEN, **overrides: object) -> Session:
    """Return a session after a start on this host that failed."""
    session = session_in(Status.SCHEDULED, host=host, **overrides)
    runtime = FaultInjectingRuntime()
    runtime.fail_next("ensure_image" if isinstance(failure, ImageUnavailableError) else "start", failure)
    start_session(runtime, session.pk, 1)
    session.refresh_from_db()
    assert runtime.containers() == []
    return session


def start_all(runtime: FaultInjectingRuntime, broken: Host) -> None:
    """Start what is SCHEDULED, as the hosts' workers do; the broken host starts nothing."""
    for session in Session.objects.filter(status=Status.SCHEDULED).order_by("created_at"):
        if session.host_id == broken.pk:
            runtime.fail_next("start", BROKEN)
        start_session(runtime, session.pk, session.attempt)


def test_a_broken_ready_host_loses_no_waiting_session() -> None:
    """Forty sessions waited, and the broken host looked best, as it is always free: forty ended in ERROR."""
    group, image = make_group(), make_image()
    broken = make_host(group=group, name="a", gpus=8, cpu=64)
    whole = make_host(group=group, name="b", gpus=8, cpu=64)
    for _ in range(40):
        make_session(resource_group=group, image=image, fgpu=1000)
    runtime = FaultInjectingRuntime()
    for _ in range(12):
        run_pass()
        start_all(runtime, broken)
        for session in Session.objects.filter(status=Status.RUNNING):
            session.move_to(Status.TERMINATED, Reason.USER_REQUEST)
    assert {*Session.objects.values_list("status", flat=True)} == {Status.TERMINATED}
    assert {*Session.objects.values_list("host", flat=True)} == {whole.pk}
    broken.refresh_from_db()
    assert broken.is_cordoned
    assert broken.cordon_reason == f"3 sessions in a row could not be started. {BROKEN}"


@pytest.mark.parametrize(
    "failure", [BROKEN, EnforcementError("No hook."), ImageUnavailableError("Full.", is_host_fault=True)]
)
def test_a_start_that_its_host_failed_is_queued_anew(failure: ContainerRuntimeError) -> None:
    host = make_host()
    session = fail_start(host, failure)
    assert (session.status, session.reason, session.host) == (Status.PENDING, Reason.HOST_FAULT, None)
    assert (session.avoided_hosts, session.start_failures) == ([host.pk], 1)
    assert session.detail == f"Host {host} failed to start it; waiting for another. {failure}"
    assert not Lease.objects.exists()
    other = make_host(group=host.group, name="zzz", cpu=128)  # by any other rule the worse choice
    assert run_pass() == 1
    session.refresh_from_db()
    assert (session.host, session.attempt) == (other, 2)


def test_a_second_retry_waits_for_its_pause() -> None:
    host = make_host()
    session = fail_start(host, start_failures=1)
    assert (session.status, session.start_failures) == (Status.PENDING, 2)
    make_host(group=host.group)
    assert run_pass() == 0
    session.refresh_from_db()
    assert session.reason == Reason.HOST_FAULT
    Session.objects.update(status_at=session.status_at - host_faults.FIRST_PAUSE)
    assert run_pass() == 1


def test_pauses_double_to_a_bound_and_differ() -> None:
    now = timezone.now()
    assert [host_faults.retry_at("s", failures, now) for failures in (0, 1)] == [None, None]
    for failures, seconds in ((2, 10), (3, 20), (4, 40), (5, 60), (60, 60)):
        found = [host_faults.retry_at(f"s{number}", failures, now) for number in range(50)]
        pauses = [(at - now).total_seconds() for at in found if at]
        assert len({*pauses}) == 50
        assert seconds / 2 <= min(pauses) < 0.6 * seconds
        assert 0.9 * seconds < max(pauses) <= seconds


def test_the_fourth_failure_ends_the_session() -> None:
    session = fail_start(make_host(), start_failures=MAX_RETRIES)
    assert (session.status, session.reason) == (Status.ERROR, Reason.START_FAILED)
    assert session.detail == f"Not started in 4 attempts, the last on host {session.host}. {BROKEN}"


def test_only_three_failures_in_a_row_cordon_a_host() -> None:
    host = make_host(gpus=4)
    for fgpu in (1000, 1000, 0, 0):  # two with a GPU, two without: not three of either
        fail_start(host, fgpu=fgpu)
    start_session(FaultInjectingRuntime(), session_in(Status.SCHEDULED, host=host).pk, 1)
    fail_start(host, fgpu=0)  # the first in a row again
    assert not Host.objects.get().is_cordoned
    start_session(FaultInjectingRuntime(), session_in(Status.SCHEDULED, host=host, fgpu=1000).pk, 1)
    for _ in range(2):
        fail_start(host, fgpu=1000)
    assert not Host.objects.get().is_cordoned
    fail_start(host, fgpu=1000)
    assert Host.objects.get().is_cordoned


def test_images_of_users_cannot_cordon_a_host() -> None:
    host, owner = make_host(), make_user()
    for number, source in enumerate((ImageSource.SESSION, ImageSource.UNLISTED) * 3):
        image = make_image(owner=owner, source=source, version=str(number))
        assert fail_start(host, image=image).status == Status.PENDING
    assert not HostHealth.objects.exists()


def cordoned_host(runtime: FaultInjectingRuntime) -> Host:
    host = make_host(gpus=2)
    make_image()
    for _ in range(3):
        fail_start(host, fgpu=1000)
    HostHealth.objects.update(probe_at=timezone.now())
    return Host.objects.get(pk=host.pk)


def test_superadmins_are_notified_of_fault_and_return(client: Client) -> None:
    admin, _other = make_user(is_superuser=True), make_user()
    runtime = FaultInjectingRuntime()
    host = cordoned_host(runtime)
    client.force_login(admin)
    page = client.get(f"/hosts/{host}/").content.decode()
    assert "3 sessions in a row could not be started." in page
    assert "It returns as soon as a probe starts a container on it" in page
    assert str(BROKEN) in client.get(f"/admin/resources/host/{host.pk}/change/").content.decode()
    host_probe.poll(runtime, host)
    back, faulty = map(text_of, Notification.objects.filter(kind__startswith="HOST").order_by("-pk"))
    assert {*Notification.objects.filter(kind__startswith="HOST").values_list("user", flat=True)} == {admin.pk}
    assert (faulty.title, back.title) == (
        f"Host {host} is cordoned: it fails to start sessions",
        f"Host {host} takes sessions again",
    )
    assert str(BROKEN) in faulty.body
    assert faulty.url == f"/hosts/{host}/"


def test_a_probe_returns_a_host_that_starts_containers() -> None:
    runtime = FaultInjectingRuntime()
    host = cordoned_host(runtime)
    runtime.fail_next("start", BROKEN)
    host_probe.poll(runtime, host)
    health = HostHealth.objects.get()
    assert health.probe_pause == 2 * host_health.FIRST_PAUSE
    assert health.probe_at
    assert timezone.now() + host_health.FIRST_PAUSE < health.probe_at
    host_probe.poll(runtime, host)  # not due
    assert Host.objects.get().is_cordoned
    HostHealth.objects.update(probe_at=timezone.now())
    seen: list[list[ContainerState]] = []
    runtime.just_before("start", lambda: seen.append(runtime.containers()))
    host_probe.poll(runtime, host)
    assert [len(states) for states in seen] == [1]
    spec_of = seen[0][0].session
    assert spec_of.startswith("probe-")
    assert runtime.containers() == []
    returned = Host.objects.get()
    assert (returned.is_cordoned, returned.cordon_reason) == (False, "")
    for _ in range(3):  # again, within the hour
        fail_start(host, fgpu=1000)
    assert HostHealth.objects.get().probe_pause == 4 * host_health.FIRST_PAUSE


def test_a_probe_takes_the_smallest_image_that_is_offered() -> None:
    host = make_host(architecture="amd64")
    assert (host_probe._image(host), host_probe.probe(FaultInjectingRuntime(), host)) == (None, host_probe.NO_IMAGE)
    refused: tuple[dict[str, Any], ...] = (
        {"is_enabled": False},
        {"removed_at": timezone.now()},
        {"owner": make_user()},
        {"source": ImageSource.SESSION},
        {"architecture": "arm64"},
    )
    for overrides in refused:
        make_image(size=1, **overrides)
    assert host_probe._image(host) is None
    offered = [make_image(size=size, architecture=name) for size, name in ((40, "amd64"), (20, ""), (30, ""))]
    assert host_probe._image(host) == offered[1]
    for image, size in zip(offered[::2], (8, 9), strict=True):
        HostImage.objects.create(host=host, image=image, size=size)
    assert host_probe._image(host) == offered[0]  # on the host


def test_a_probe_has_the_least_share_of_each_gpu() -> None:
    host = make_host(group=make_group(fgpu_per_gpu=2))
    make_gpu(host=host, index=0)
    make_gpu(host=host, index=1, is_present=False)
    make_gpu(host=host, index=2, tier=Tier.NONE)
    spec = host_probe._spec(host, make_image())
    assert [(gpu.share_milli, gpu.tier) for gpu in spec.gpus] == [(20, Tier.HOOK), (2000, Tier.NONE)]
    assert (spec.attempt, spec.cpu, spec.memory_bytes, spec.command) == (1, 1, 64 * MIB, "exec sleep 60")


def test_a_probe_begins_anew_and_pulls_what_is_missing() -> None:
    runtime, host, image = FaultInjectingRuntime(), make_host(), make_image()
    spec = host_probe._spec(host, image)
    runtime.create(spec)
    runtime.start(spec.session, spec.attempt)
    runtime.end(spec.session, spec.attempt)  # left by a worker that died
    runtime.remove_image(image.reference, can_pull=True)
    assert host_probe.probe(runtime, host) == ""
    assert runtime.containers() == []


@pytest.mark.parametrize("failure", [EngineUnreachableError("away"), RemovalError("busy")])
def test_a_probe_that_stays_has_told_what_it_saw(failure: ContainerRuntimeError) -> None:
    runtime, host = FaultInjectingRuntime(), make_host()
    make_image()
    runtime.just_before("start", lambda: runtime.fail_next("remove", failure))
    assert host_probe.probe(runtime, host) == ""
    assert len(runtime.containers()) == 1
    runtime.fail_next("create", StartError())
    assert host_probe.probe(runtime, host) == "StartError"


def test_the_reconciler_leaves_a_probe_alone() -> None:
    runtime = FaultInjectingRuntime()
    host = cordoned_host(runtime)
    kept: list[int] = []

    def reconcile() -> None:
        reconciler.reconcile(runtime, host, lambda *_: None)
        kept.append(len(runtime.containers()))

    runtime.just_before("start", reconcile)
    host_probe.poll(runtime, host)
    assert kept == [1]
    spec = host_probe._spec(host, Image.objects.all()[0])
    runtime.create(spec)  # as a worker that died has left it
    reconciler.reconcile(runtime, host, lambda *_: None)
    assert runtime.containers() == []
    assert [(gpu.share_milli, gpu.gpu_milli) for gpu in spec.gpus] == [(20, 2000), (20, 2000)]


def test_an_administrator_decides_over_the_platform() -> None:
    runtime = FaultInjectingRuntime()
    host = cordoned_host(runtime)
    hosts.set_drain(host, end_at=None, reason="new fans")
    host_probe.poll(runtime, host)
    assert (Host.objects.get().is_cordoned, Host.objects.get().cordon_reason) == (True, "new fans")
    for _ in range(3):
        assert fail_start(host, fgpu=1000).status in LIVE
    assert Host.objects.get().cordon_reason == "new fans"  # a cordon of theirs stays theirs
    assert HostHealth.objects.get().faulty_since is None
    hosts.cordon(Host.objects.all(), cordoned=False)
    assert not HostHealth.objects.exists()


def test_sessions_of_a_silent_engine_or_lost_host_wait_elsewhere() -> None:
    host = make_host()
    preparing, running = session_in(Status.PREPARING, host=host), session_in(Status.RUNNING, host=host)
    assert host_faults.requeue_prepared(host, "Its container engine does not answer.") == 1
    preparing.refresh_from_db()
    assert (preparing.status, preparing.avoided_hosts) == (Status.PENDING, [host.pk])
    again = session_in(Status.PREPARING, host=host)
    Host.objects.update(status=HostStatus.LOST, lost_at=timezone.now() - timedelta(days=1))
    sweeps.end_on_lost_hosts()
    again.refresh_from_db()
    running.refresh_from_db()
    assert (again.status, running.status) == (Status.PENDING, Status.ERROR)


@pytest.mark.parametrize(
    ("message", "is_images"),
    [
        ('OCI runtime create failed: exec: "nope": executable file not found in $PATH: unknown', True),
        ("exec /bin/sh: exec format error", True),
        ("unable to find user alice: no matching entries in passwd file", True),
        ('error running hook: exec: "nvidia-container-cli": executable file not found in $PATH', False),
        ('could not select device driver "nvidia" with capabilities: [[gpu]]', False),
        ("write /var/lib/docker: no space left on device", False),
    ],
)
def test_words_of_the_engine_tell_whose_fault_it_is(message: str, is_images: bool) -> None:
    assert is_image_fault(message) is is_images
