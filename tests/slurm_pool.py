"""An elastic pool on a real Slurm cluster: its pilots join the test's platform and run sessions in real containers."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import docker
from pytest_django import Settings

from engine.containers import HOST_LABEL
from hostaccess.models import HostAccess
from resources.amounts.units import MIB
from resources.models import ElasticHost, ElasticPool, ElasticState, Host, Image
from scheduler.cycle.passes import run_pass
from scheduler.provisioning import reconciler
from sessions import sweeps
from sessions.launching import services
from sessions.lifecycle import FINAL, Status
from sessions.models import Session
from tests.containers import ENGINE_URL, remove_containers
from tests.factories import make_group, make_image, make_policy, make_user
from tests.live import LiveServer
from tests.shell_image import ensure_shell_image
from tests.slurm_cluster import SlurmCluster
from tests.wait import SECONDS, until

TYPE: Final = {"name": "pilot", "cpus": 2, "memory": "600m", "gpu_count": 1}
SETTINGS: Final = {
    "COMPUTE_FIREWALL": "false",
    "COMPUTE_RUNTIME": "hostworker.runtime.docker.DockerRuntime",
    "COMPUTE_SANDBOX_POOL": "0",
    "COMPUTE_SIMULATED_GPUS": "2x8GiB",
    "COMPUTE_WEB_PROCESSES": "1",
}


@dataclass(frozen=True)
class SlurmPool:
    """A pool whose reconciler, scheduler and deadlines are run by `look`, in place of Celery beat."""

    cluster: SlurmCluster
    pool: ElasticPool
    folder: Path  # COMPUTE_VAR_DIR of pilots

    def look(self, *, provisions: bool = True) -> None:
        """Do once what the scheduler does every few seconds."""
        run_pass()
        sweeps.enforce_deadlines()
        if provisions:
            reconciler.reconcile_pool(self.pool.pk)

    def until(self, is_so: Callable[[], Any], *, provisions: bool = True) -> Any:
        """Return what `is_so` returns once it is true, looking meanwhile; several processes start beside others."""

        def look() -> Any:
            self.look(provisions=provisions)
            return is_so()

        try:
            return until(look, seconds=10 * SECONDS)
        except AssertionError as error:
            raise AssertionError(self.story()) from error

    def submit(self, count: int = 1, **asked: Any) -> list[Session]:
        """Return new sessions of half a GPU, a core and 256 MiB each, which wait."""
        reference = ensure_shell_image()
        fields: dict[str, Any] = {
            "image": Image.objects.filter(reference=reference).first() or make_image(reference=reference),
            "resource_group": self.pool.group,
            "cpu": 1,
            "memory": 256 * MIB,
            "shared_memory": 16 * MIB,
            "fgpu": 500,
            "count": count,
        }
        owner = make_user(policy=make_policy(max_sessions=100))
        return services.submit(owner, services.LaunchRequest(**fields | asked))

    def run(self, count: int = 1, **asked: Any) -> list[Session]:
        """Return sessions once all of them run."""
        sessions = self.submit(count, **asked)
        self.until(lambda: self.are_running(sessions))
        return [Session.objects.get(pk=session.pk) for session in sessions]

    def are_running(self, sessions: list[Session]) -> bool:
        """Return whether all run; fail when one has ended."""
        assert not any(self.having(sessions, status) for status in FINAL)
        return self.having(sessions, Status.RUNNING) == len(sessions)

    def having(self, sessions: list[Session], status: Status) -> int:
        """Return how many of the sessions have the status."""
        return Session.objects.filter(pk__in=[session.pk for session in sessions], status=status).count()

    def hosts(self, *states: ElasticState) -> list[ElasticHost]:
        """Return the pool's hosts that are in one of these states, all without one."""
        found = ElasticHost.objects.filter(pool=self.pool).order_by("pk")
        return list(found.filter(state__in=states) if states else found)

    def left(self) -> dict[str, Any]:
        """Return what there is of hosts: jobs, containers, folders, processes, rows and credentials."""
        names = [row.name for row in self.hosts()]
        own = f"grep -lsza {self.folder}/pilots /proc/[0-9]*/environ /dev/null"
        found = {
            "jobs": self.cluster.run("squeue --noheader"),
            "containers": [each["Names"] for name in names for each in containers(name)],
            "folders": [str(each) for each in self.folder.glob("*/*")],
            "processes": self.cluster.run(f"{own} || true"),
            "hosts": list(Host.objects.filter(name__in=names)),
            "credentials": list(HostAccess.objects.filter(name__in=names)),
        }
        return {name: value for name, value in found.items() if value}

    def story(self) -> str:
        """Return what has become of sessions and hosts, and what the pilots have written."""
        sessions = [f"{each.pk} {each.status} {each.reason} {each.detail}" for each in Session.objects.all()]
        hosts = [f"{row.name} {row.state} {row.reason} {row.identifier}" for row in self.hosts()]
        logs = self.cluster.run("tail -n 25 /tmp/*.log || true")
        return "\n".join([*sessions, *hosts, str(self.left()), self.cluster.run("squeue --states=all"), logs])


def containers(host_name: str) -> list[Any]:
    """Return the containers of a host, running or not."""
    with closing(docker.APIClient(ENGINE_URL, version="auto")) as client:
        found: list[Any] = client.containers(all=True, filters={"label": f"{HOST_LABEL}={host_name}"})
        return found


@contextmanager
def slurm_pool(
    cluster: SlurmCluster, web: LiveServer, settings: Settings, *, prefix: str = "", folder: Path | None = None
) -> Iterator[SlurmPool]:
    """Make a pool of up to three pilots, and remove whatever is left of them when the block ends.

    Slurm's commands are run by `prefix`, as root unless given; `folder` is one of its user's.
    """
    settings.COMPUTE_SLURM_PREFIX = prefix or cluster.prefix
    folder = folder or cluster.folder
    settings.COMPUTE_PUBLIC_URL = web.url
    asked = {
        "partition": "gpu",
        "time_limit_minutes": 60,
        "grace_seconds": 60,
        "log": "/tmp/%j.log",
        "settings": SETTINGS | {"COMPUTE_VAR_DIR": str(folder), "COMPUTE_ARBITER_DIR": str(folder / "arbiters")},
    }
    pool = ElasticPool(
        group=make_group(name=f"slurm-{uuid4().hex[:8]}", fgpu_per_gpu=1),
        provider="slurm",
        configuration=asked,
        host_types=[TYPE],
        max_hosts=3,
        hosts_per_hour=100,
    )
    pool.full_clean()
    pool.save()
    ElasticPool.objects.update(cool_down=timedelta(seconds=1))  # less than the administration takes
    pool.refresh_from_db()
    made = SlurmPool(cluster, pool, folder)
    try:
        yield made
    finally:
        cluster.cancel_all()
        for row in made.hosts():
            remove_containers(f"{HOST_LABEL}={row.name}")
