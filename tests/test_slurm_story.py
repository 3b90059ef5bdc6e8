"""Hosts of a Slurm cluster: a pilot joins with what it was granted, runs sessions, and leaves nothing behind."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import docker
import pytest

from engine.containers import HOST_LABEL
from hostaccess import services
from resources.amounts.units import MIB
from resources.elastic.providers import HostRequest, HostShape, ProvidedHost, ProvidedState
from resources.elastic.slurm import SlurmProvider
from resources.models import Gpu, Host
from sessions import sweeps
from sessions.lifecycle import Reason, Status
from sessions.models import Session, SessionEvent
from tests.containers import ENGINE_URL, remove_containers
from tests.factories import make_group
from tests.fgpu_sessions import ensure_hook_built, submit, wait_for
from tests.joined_hosts import hosts_may_join
from tests.live import LiveServer, serving
from tests.shell_image import ensure_shell_image
from tests.slurm_cluster import SlurmCluster, slurm_cluster
from tests.two_hosts import REAL
from tests.wait import until
from tests.workers import wait_until_ready

pytestmark = [pytest.mark.docker, pytest.mark.long, pytest.mark.django_db(transaction=True)]


@dataclass(frozen=True)
class Pilot:
    """A pilot whose host is ready, with a running session."""

    cluster: SlurmCluster
    provider: SlurmProvider
    number: str
    host: Host
    session: Session

    def containers(self) -> list[Any]:
        with closing(docker.APIClient(ENGINE_URL, version="auto")) as client:
            found: list[Any] = client.containers(all=True, filters={"label": f"{HOST_LABEL}={self.host.name}"})
            return found

    def job(self) -> ProvidedHost:
        return next(host for host in self.provider.list() if host.identifier == self.number)

    def log(self) -> str:
        return self.cluster.run(f"cat /tmp/{self.number}.log")

    def left_nothing(self) -> bool:
        folders = list((self.cluster.folder / "pilots").iterdir())
        return self.job().state not in (ProvidedState.PENDING, ProvidedState.RUNNING) and not folders


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    ensure_hook_built()
    with slurm_cluster(kill_wait=60) as cluster:  # the machine may be busy
        yield cluster


@pytest.fixture
def web(tmp_path: Any) -> Iterator[LiveServer]:
    with serving(tmp_path / "web.log", COMPUTE_RUNTIME=REAL) as web, hosts_may_join():
        yield web


@pytest.fixture
def pilot(cluster: SlurmCluster, web: LiveServer, settings: Any) -> Iterator[Pilot]:
    settings.COMPUTE_SLURM_PREFIX = cluster.prefix
    group, name = make_group(name=f"slurm-{uuid4().hex[:8]}"), f"gp-{uuid4().hex[:8]}"
    quiet = {"COMPUTE_SANDBOX_POOL": "0", "COMPUTE_FIREWALL": "false", "COMPUTE_RUNTIME": REAL}
    hosts = {"COMPUTE_SIMULATED_GPUS": "2x8GiB", "COMPUTE_VAR_DIR": str(cluster.folder)}
    configuration = {
        "partition": "gpu",
        "time_limit_minutes": 60,
        "grace_seconds": 60,
        "log": "/tmp/%j.log",
        "settings": quiet | hosts,
    }
    provider = SlurmProvider(configuration, "gp-")
    shape = HostShape(cpus=1, memory_bytes=400 * MIB, gpu_count=1)
    token = services.add(name, group.name).token
    number = provider.create(
        HostRequest(name=name, group=group.name, shape=shape, join_token=token, join_address=web.url)
    )
    try:
        wait_until_ready(name)
        session = submit(group, "0", ensure_shell_image())
        wait_for(session, Status.RUNNING)
        yield Pilot(cluster, provider, number, Host.objects.get(name=name), session)
    finally:
        cluster.cancel_all()
        remove_containers(f"{HOST_LABEL}={name}")


def ended(session: Session) -> Session:
    """Enforce deadlines, as Celery beat does, until the session has ended."""

    def has_ended() -> bool:
        sweeps.end_on_drained_hosts()
        session.refresh_from_db()
        return session.is_final

    until(has_ended)
    return session


def test_a_cancelled_pilot_ends_its_sessions_and_leaves_nothing(pilot: Pilot) -> None:
    (gpu,) = Gpu.objects.filter(host=pilot.host)
    assert (pilot.host.cpu, pilot.host.memory, gpu.is_simulated) == (1, 400 * MIB, True)
    pilot.provider.delete(pilot.number)
    assert ended(pilot.session).reason == Reason.HOST_DRAINED
    until(pilot.left_nothing)
    assert pilot.containers() == []


def test_before_its_time_limit_a_pilot_warns_and_ends_well(pilot: Pilot) -> None:
    pilot.cluster.run(f"scancel --signal=USR1 --batch {pilot.number}")  # as --signal has Slurm send it
    until(lambda: SessionEvent.objects.filter(session=pilot.session, reason=Reason.HOST_DRAINED).exists())
    host = Host.objects.get(pk=pilot.host.pk)
    assert host.is_cordoned
    assert host.drain_by is not None
    assert not Session.objects.get(pk=pilot.session.pk).is_final, "it has the time of the notice"
    sessions = Session.objects.filter(pk=pilot.session.pk)
    Host.objects.filter(pk=host.pk).update(drain_by=sessions.get().created_at)  # that time is over
    ended(pilot.session)
    until(pilot.left_nothing)
    assert pilot.job().state is ProvidedState.ENDED, pilot.log()
    assert pilot.containers() == []


def test_a_killed_pilot_leaves_no_container(pilot: Pilot) -> None:
    assert pilot.containers()
    own = f"grep -qsz ^COMPUTE_VAR_DIR={pilot.cluster.folder} $process/environ"
    pilot.cluster.run(f"for process in /proc/[0-9]*; do ! {own} || kill -9 ${{process#/proc/}}; done")
    until(pilot.left_nothing)
    assert pilot.containers() == []
