"""A real host worker and gateway with the credentials of a host that has joined, and nothing of the platform's."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

from deployments.models import HealthKind, ReplicaHealth
from deployments.requests import HealthCheck
from deployments.tests.making import revision_request, serving_deployment
from folders.models import Folder
from folders.storage.paths import prepare_root
from hostaccess.models import HostAccess
from notifications.models import Notification
from resources.models import Image
from scheduler.cycle.passes import run_pass
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Conversion, Mount, Session
from sessions.notify import proxies_redis
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize
from tests.factories import (
    make_app,
    make_folder,
    make_host,
    make_image,
    make_project,
    make_root,
    make_session,
    make_user,
    run_session,
)
from tests.joined_hosts import environment
from tests.wait import SECONDS, until
from tests.workers import is_ready
from webhooks import services as webhook_services
from webhooks.event_types import types_for

ROOT = Path(__file__).resolve().parents[2]
DENIED = ("denied", "NOPERM", "no permission", "row-level security", "Traceback")


@contextmanager
def worker(variables: dict[str, str], log: Path, **changes: str) -> Iterator[None]:
    """Run `manage.py hostworker`, with containers that it only imagines, until the block ends."""
    own = {
        "COMPUTE_VAR_DIR": str(settings.COMPUTE_VAR_DIR),
        "COMPUTE_RUNTIME": "hostworker.runtime.memory.runtime.MemoryRuntime",
        "COMPUTE_FIREWALL": "false",
        "COMPUTE_SIMULATED_GPUS": "",
    }
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "hostworker"],
            cwd=ROOT,
            env=environment(variables) | own | changes,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)


def test_sessions_run_with_a_hosts_own_credentials(variables: dict[str, str], tmp_path: Path) -> None:
    log, owner = tmp_path / "worker.log", make_user()
    root = make_root(path=str(tmp_path / "root"))
    prepare_root(root)
    folders = make_folder(owner, root=root, name=".config"), make_folder(project=make_project(owner), root=root)
    with worker(variables, log):
        until(lambda: is_ready("gpu7"))
        lab = HostAccess.objects.get(name="gpu7").group
        session = make_session(owner=owner, resource_group=lab)
        for folder in folders:
            Mount.objects.create(
                session=session,
                folder=folder,
                folder_name=folder.name,
                path=f"/home/work/{folder.name}",
                is_automatic=folder.is_automounted,
            )
        run_pass()
        until(lambda: Session.objects.filter(pk=session.pk, status=Status.RUNNING).exists())
        assert set(session.mounts.values_list("folder", "problem")) == {(folder.pk, "") for folder in folders}
        until(lambda: not Folder.objects.filter(measured_at=None).exists())
        session.refresh_from_db()
        services.end(session, Reason.USER_REQUEST, "Ended.")
        until(lambda: Session.objects.filter(pk=session.pk, status=Status.TERMINATED).exists())
        until(lambda: proxies_redis().exists("host.gpu7") == 0)
    text = log.read_text()
    assert not [line for line in text.splitlines() if any(word in line for word in DENIED)], text


def test_all_that_a_host_worker_writes_is_granted(variables: dict[str, str], tmp_path: Path) -> None:
    make_user(is_superuser=True)  # is told of hosts that fail
    group, image = HostAccess.objects.get(name="gpu7").group, make_image(size=None)
    make_app(image)
    session = run_session(host=make_host(name="gpu7", group=group, gpus=1), fgpu=1000, image=image)
    make_folder(session.owner, root=make_root(path=str(tmp_path)))
    Conversion.objects.create(
        session=session, attempt=session.attempt, host=session.host, name="mine", tag="1", reference="own/mine:1"
    )
    smaller = SessionSize(cpu=session.cpu, memory=session.memory // 2, fgpu=session.fgpu)
    resizing.resize(session, smaller, actor=session.owner)
    health = HealthCheck(kind=HealthKind.TCP, interval_seconds=1, timeout_seconds=1, retries=1)
    revision = revision_request(port=1025, health=health)  # where nothing listens
    replica = serving_deployment(1, host=session.host, revision=revision).replica_rows.get()
    Session.objects.filter(pk=replica.pk).update(address="127.0.0.1")
    webhook, _ = webhook_services.create(session.owner, url="https://example.org/", types=types_for(is_superuser=False))
    program = [sys.executable, "-m", "hostaccess.tests.host_work"]
    subprocess.run(
        program, cwd=ROOT, env=environment(variables) | {"DJANGO_SETTINGS_MODULE": "gpuplatform.settings"}, check=True
    )
    replica.refresh_from_db()
    assert (replica.health, replica.unhealthy_at is None) == (ReplicaHealth.UNHEALTHY, False)
    image.refresh_from_db()
    assert (image.size, image.apps.count()) == (5, 1)
    assert Image.objects.get(reference="own/mine:1").apps.count() == 1
    told = set(Notification.objects.values_list("kind", "user__is_superuser"))
    assert told >= {("HOST_FAULTY", True), ("HOST_BACK", True), ("IMAGE_READY", False), ("FAILED", False)}
    assert ("RESIZE_REFUSED", False) in told
    sent = set(webhook.deliveries.values_list("type", flat=True))
    assert sent == {
        "session.error",
        "notification.out_of_memory",
        "notification.image_ready",
        "notification.resize_refused",
    }
