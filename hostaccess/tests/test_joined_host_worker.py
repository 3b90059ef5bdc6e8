"""A real host worker and gateway with the credentials of a host that has joined, and nothing of the platform's."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

from hostaccess.models import HostAccess
from scheduler.passes import run_pass
from sessions import services
from sessions.lifecycle import Reason, Status
from sessions.models import Mount, Session
from sessions.notify import proxies_redis
from tests.factories import make_folder, make_root, make_session, make_user
from tests.joined_hosts import environment
from tests.wait import SECONDS, until
from tests.workers import is_ready

ROOT = Path(__file__).resolve().parents[2]
DENIED = ("denied", "NOPERM", "no permission", "row-level security", "Traceback")


@contextmanager
def worker(variables: dict[str, str], log: Path, **changes: str) -> Iterator[None]:
    """Run `manage.py hostworker`, with containers that it only imagines, until the block ends."""
    own = {
        "COMPUTE_VAR_DIR": str(settings.COMPUTE_VAR_DIR),
        "COMPUTE_RUNTIME": "hostworker.runtime.memory.MemoryRuntime",
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
    folder = make_folder(owner, root=root, name=".config")
    with worker(variables, log):
        until(lambda: is_ready("gpu7"))
        lab = HostAccess.objects.get(name="gpu7").group
        session = make_session(owner=owner, resource_group=lab)
        Mount.objects.create(session=session, folder=folder, folder_name=folder.name, path="/x", is_automatic=True)
        run_pass()
        until(lambda: Session.objects.filter(pk=session.pk, status=Status.RUNNING).exists())
        session.refresh_from_db()
        services.end(session, Reason.USER_REQUEST, "Ended.")
        until(lambda: Session.objects.filter(pk=session.pk, status=Status.TERMINATED).exists())
        until(lambda: proxies_redis().exists("host.gpu7", "host.gpu7.unacked") == 0)
    text = log.read_text()
    assert not [line for line in text.splitlines() if any(word in line for word in DENIED)], text
