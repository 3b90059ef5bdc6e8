"""A pool on a real Slurm cluster, from sessions that wait to hosts that are given back, and what goes wrong between."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import requests
from django.conf import settings as own
from pytest_django import Settings

from endpoints.services import open_app
from operations import embedded
from resources.amounts.units import GIB, MIB
from resources.models import ElasticState, ResourceGroup
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Endpoint, EndpointState, GpuShare, Lease, Session, SessionEvent
from tests.factories import make_image
from tests.fgpu_sessions import OUT_OF_MEMORY, InContainer, ensure_hook_built
from tests.joined_hosts import hosts_may_join
from tests.live import LiveServer, app_cookie, app_host, login_cookie, serving
from tests.relay import relaying
from tests.slurm_cluster import SlurmCluster, slurm_cluster
from tests.slurm_pool import SlurmPool, containers, slurm_pool
from tests.tiny_image import ensure_tiny_image
from tests.wait import SECONDS
from tests.web_terminal import web_terminal

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]

DRAINED = (Status.TERMINATED, Reason.HOST_DRAINED, "Its host was taken out of service.")
FILL, FULL = ["init", "enter 0", f"alloc plain {4 * GIB} 0", "alloc plain 1 1"], ["0", "0", "0", OUT_OF_MEMORY]
WARNED = "Its host is taken out of service (The time that the cluster gives for it is over): it ends at"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    ensure_hook_built()
    with slurm_cluster(kill_wait=60, cpus=4) as cluster:  # the machine may be busy
        yield cluster


@pytest.fixture
def pool(cluster: SlurmCluster, server: LiveServer, settings: Settings) -> Iterator[SlurmPool]:
    with hosts_may_join(), slurm_pool(cluster, server, settings) as pool:
        yield pool


def granted(pool: SlurmPool, session: Session) -> tuple[int, int, list[int], int]:
    """Return cores, memory and shares of a session's lease, and the memory of its container."""
    lease = Lease.objects.get(pk=session.pk)
    (container,) = [each for each in containers(lease.host.name) if session.pk in each["Names"][0]]
    memory = pool.cluster.client.inspect_container(container["Id"])["HostConfig"]["Memory"]
    shares = GpuShare.objects.filter(lease=lease).values_list("milli", flat=True)
    return lease.cpu, lease.memory, list(shares), memory


def end_of(pool: SlurmPool, session: Session, *, provisions: bool = True) -> tuple[str, str, str]:
    """Return status, reason and detail of a session once it has ended."""

    def has_ended() -> bool:
        session.refresh_from_db()
        return session.is_final

    pool.until(has_ended, provisions=provisions)
    return session.status, session.reason, session.detail


def told(session: Session) -> str:
    """Return what the owner of a session reads in its timeline."""
    return "\n".join(SessionEvent.objects.filter(session=session).order_by("pk").values_list("detail", flat=True))


def detail_of(pool: SlurmPool, session: Session) -> str:
    """Return what the owner of a waiting session reads."""
    pool.look()
    session.refresh_from_db()
    return session.detail


def ends_of_hosts(pool: SlurmPool) -> set[tuple[str, str]]:
    """Return states and reasons of the hosts once nothing is left of them."""
    over = ElasticState.ENDED, ElasticState.FAILED
    pool.until(lambda: len(pool.hosts(*over)) == len(pool.hosts()) and not pool.left())
    return {(row.state, row.reason) for row in pool.hosts()}


def test_six_sessions_have_pilots_made_and_given_back(pool: SlurmPool) -> None:
    sessions = pool.run(6)
    rows = pool.hosts(ElasticState.UP)
    assert len(rows) == 3
    for row in rows:
        assert row.host is not None
        job = pool.cluster.run(f"scontrol show job --details {row.identifier}")
        (gpu,) = row.host.gpus.all()
        assert f"GRES=gpu:1(IDX:{gpu.index})" in job, "CUDA_VISIBLE_DEVICES"
        assert (row.host.cpu, row.host.memory, row.host.sessions.count()) == (2, 600 * MIB, 2)
    for session in sessions:
        assert granted(pool, session) == (1, 256 * MIB, [500], 256 * MIB)
    assert InContainer(sessions[0]).cuda(*FILL) == FULL
    for session in sessions:
        services.terminate(session, actor=session.owner)
    assert ends_of_hosts(pool) == {(ElasticState.ENDED, "Idle")}
    assert pool.having(sessions, Status.TERMINATED) == 6


@pytest.mark.long
def test_a_cancelled_pilot_ends_its_sessions_and_leaves_nothing(pool: SlurmPool) -> None:
    (session,) = pool.run()
    pool.cluster.run(f"scancel {pool.hosts()[0].identifier}")
    assert end_of(pool, session) == DRAINED
    assert WARNED in told(session)
    assert ends_of_hosts(pool) == {(ElasticState.FAILED, "Its Slurm job was cancelled.")}


@pytest.mark.long
def test_sessions_of_a_killed_node_are_lost_and_cleared(pool: SlurmPool) -> None:
    ResourceGroup.objects.update(host_loss_grace=timedelta(0))
    (session,) = pool.run()
    (row,) = pool.hosts()
    node = pool.cluster.run(f"squeue --noheader --jobs={row.identifier} --format=%N")
    pool.cluster.kill_node(node)
    try:
        assert end_of(pool, session) == (Status.ERROR, Reason.HOST_LOST, f"Host {row.name} did not come back.")
        (other,) = pool.run()  # its pilot clears what the other one left, as both nodes have one engine here
        assert containers(row.name) == []
    finally:
        pool.cluster.start_node(node)
    services.terminate(other, actor=other.owner)
    ends = {(ElasticState.FAILED, "Its node failed."), (ElasticState.ENDED, "Idle")}
    assert ends_of_hosts(pool) == ends


@pytest.mark.long
def test_hosts_and_sessions_go_on_without_slurmctld(pool: SlurmPool) -> None:
    running = pool.run(2)
    pool.cluster.stop_controller()
    try:
        (waiting,) = pool.submit()
        for _ in range(3):
            pool.look()
        assert pool.having(running, Status.RUNNING) == 2
        assert [row.state for row in pool.hosts()] == [ElasticState.UP]
        assert Session.objects.get(pk=waiting.pk).status == Status.PENDING
    finally:
        pool.cluster.start_controller()
    pool.until(lambda: pool.having([waiting], Status.RUNNING))
    assert pool.having(running, Status.RUNNING) == 2
    for session in (*running, waiting):
        services.terminate(session, actor=session.owner)
    assert ends_of_hosts(pool) == {(ElasticState.ENDED, "Idle")}


@pytest.mark.long
def test_a_pilot_leaves_before_its_time_limit(pool: SlurmPool) -> None:
    pool.pool.configuration |= {"notice_seconds": 60}
    pool.pool.save()
    (session,) = pool.run()
    (row,) = pool.hosts()
    minutes = pool.cluster.run(f"squeue --noheader --jobs={row.identifier} --format=%M").partition(":")[0]
    pool.cluster.run(f"scontrol update jobid={row.identifier} timelimit={int(minutes) + 2}")
    assert end_of(pool, session, provisions=False) == DRAINED, "by its host alone"
    assert WARNED in told(session)
    assert ends_of_hosts(pool) == {(ElasticState.ENDED, "Its provider takes it back")}
    assert "COMPLETED" in pool.cluster.run(f"squeue --noheader --states=all --jobs={row.identifier} --format=%T")


@pytest.mark.long
def test_preempted_pilots_end_their_sessions_within_the_grace_time(pool: SlurmPool) -> None:
    (session,) = pool.run()
    pool.cluster.run("sbatch --partition=urgent --exclusive --nodes=2 --wrap 'sleep 600'")
    assert end_of(pool, session, provisions=False) == DRAINED, "by its host alone"
    assert WARNED in told(session)
    pool.cluster.run("scancel --partition=urgent --me")
    assert ends_of_hosts(pool) == {(ElasticState.FAILED, "Its Slurm job was preempted by another one.")}


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        (
            {"account": "chemistry"},
            "Slurm lets the platform's user book nothing on account chemistry in partition gpu; trying again at",
        ),
        (
            {"qos": "one"},
            "Slurm takes no more jobs of the platform's user for now: too many are submitted; trying again at",
        ),
    ],
)
def test_what_slurm_refuses_is_said_to_who_waits(pool: SlurmPool, configuration: dict[str, str], words: str) -> None:
    pool.pool.configuration |= {"checkout": "/opt/nowhere"} | configuration
    pool.pool.save()
    if "qos" in configuration:
        pool.cluster.run("sbatch --qos=one --wrap 'sleep 600'")
    (session,) = pool.submit()
    pool.look()
    assert words in detail_of(pool, session)
    (row,) = pool.hosts()
    assert (row.state, row.has_failed) == (ElasticState.FAILED, True)
    pool.cluster.cancel_all()
    assert pool.left() == {}


SITE = "mkdir /tmp/www; hostname >/tmp/www/index.html; busybox httpd -p 8080 -h /tmp/www; echo do''ne"


@pytest.fixture
def web(tmp_path: Path) -> Iterator[LiveServer]:
    """A web process that tells hosts TCP ports of PostgreSQL and Redis, whose sockets are root's alone."""
    var = own.COMPUTE_VAR_DIR
    sockets = Path(own.DATABASES["default"]["OPTIONS"]["host"]) / ".s.PGSQL.5432", embedded.redis_socket(var)
    with relaying(sockets[0]) as database, relaying(sockets[1]) as redis:
        address, url = f"127.0.0.1:{database.port}", f"redis://127.0.0.1:{redis.port}/0"
        with serving(tmp_path / "web.log", COMPUTE_HOSTS_DATABASE_ADDRESS=address, REDIS_URL=url) as web:
            yield web


async def in_terminal(web: LiveServer, session: Session, cookie: str) -> None:
    """Start a web site in the session's terminal."""
    async with web_terminal(web.url, session.pk, cookie) as shell:
        await shell.run(SITE, "done\r\n")


@pytest.mark.long
def test_a_user_behind_ssh_lends_terminals_and_apps(cluster: SlurmCluster, web: LiveServer, settings: Settings) -> None:
    prefix = cluster.serve_ssh()
    with hosts_may_join(), slurm_pool(cluster, web, settings, prefix=prefix, folder=cluster.folder / "gpu") as pool:
        divided, session = *pool.run(), *pool.run(image=make_image(reference=ensure_tiny_image()), fgpu=0)
        assert cluster.run("squeue --noheader --format=%u") == "gpu"
        assert InContainer(divided).cuda(*FILL) == FULL
        cookie = login_cookie(session.owner, web.url)
        asyncio.run(in_terminal(web, session, f"{cookie['name']}={cookie['value']}"))
        endpoint = open_app(session, "p8080", actor=session.owner).endpoint
        pool.until(lambda: Endpoint.objects.filter(pk=endpoint.pk, state=EndpointState.READY).exists())
        headers = {"Host": app_host(web, endpoint), "Cookie": app_cookie(endpoint)}

        def answer() -> str:
            found = requests.get(web.url, headers=headers, timeout=SECONDS, allow_redirects=False)
            return found.text if found.status_code == 200 else ""

        assert pool.until(answer).strip() == session.name
        for each in (divided, session):
            services.terminate(each, actor=each.owner)
        assert ends_of_hosts(pool) == {(ElasticState.ENDED, "Idle")}
