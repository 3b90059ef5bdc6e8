"""Pilots as jobs of a real Slurm cluster; their hosts are not started here."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from pytest_django import Settings

from resources import clock
from resources.amounts.units import MIB
from resources.elastic.providers import HostRequest, HostShape, ProvidedHost, ProvidedState, ProviderError
from resources.elastic.slurm import SlurmProvider
from tests.slurm_cluster import SlurmCluster, slurm_cluster
from tests.wait import until

PREFIX = "gp-1a2b-"
BASIC = {"partition": "gpu", "time_limit_minutes": 60, "checkout": "/opt/idle", "log": "/tmp/%j.log"}
# In place of the platform: a Python that idles, and says what it was given.
IDLE = r"""mkdir -p /opt/idle/.venv/bin && cd /opt/idle/.venv/bin && cat >python <<'END' && chmod +x python
#!/bin/sh
echo "words $*"
echo "token $GPUPLATFORM_JOIN_TOKEN"
echo "setting $COMPUTE_LOG_LEVEL"
exec sleep 600
END"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster() as cluster:
        cluster.run(IDLE)
        yield cluster


@pytest.fixture
def slurm(cluster: SlurmCluster, settings: Settings) -> Iterator[SlurmCluster]:
    settings.COMPUTE_SLURM_PREFIX = cluster.prefix
    yield cluster
    cluster.cancel_all()


def provider(**configuration: Any) -> SlurmProvider:
    return SlurmProvider(BASIC | configuration, PREFIX)


def request(name: str = "1", *, cpus: int = 1, gpus: int = 1, minutes: float = 0) -> HostRequest:
    return HostRequest(
        name=f"{PREFIX}{name}",
        group="gpus",
        shape=HostShape(cpus=cpus, memory_bytes=100 * MIB, gpu_count=gpus),
        join_token="'; touch /tmp/stolen; '",
        join_address="https://gpu.example.org",
        hold_until=clock.now() + timedelta(minutes=minutes) if minutes else None,
    )


def found(identifier: str) -> ProvidedHost:
    return next(host for host in provider().list() if host.identifier == identifier)


def wait_for(identifier: str, state: ProvidedState) -> ProvidedHost:
    until(lambda: found(identifier).state is state)
    return found(identifier)


@pytest.mark.docker
class TestJobs:
    def test_a_pilot_runs_until_it_is_deleted(self, slurm: SlurmCluster) -> None:
        made = provider(settings={"COMPUTE_LOG_LEVEL": "$(id)"})
        number = made.create(request())
        host = wait_for(number, ProvidedState.RUNNING)
        assert host.host_name == f"{PREFIX}1"
        assert host.ends_at is not None
        assert timedelta(minutes=58) < host.ends_at - clock.now() < timedelta(minutes=61)
        said = until(lambda: slurm.run(f"cat /tmp/{number}.log | grep -A9 words"))
        options = "-m hostworker.pilot https://gpu.example.org --notice 600 --grace 30"
        assert said.splitlines()[:3] == [f"words {options}", "token '; touch /tmp/stolen; '", "setting $(id)"]
        assert slurm.run("ls /tmp/stolen 2>/dev/null || echo none") == "none"
        made.delete(number)
        assert wait_for(number, ProvidedState.FAILED).reason == "Its Slurm job was cancelled."

    def test_the_job_asks_for_the_shape(self, slurm: SlurmCluster) -> None:
        number = provider(account="nlp").create(request(cpus=2, gpus=2, minutes=20))
        wait_for(number, ProvidedState.RUNNING)
        job = slurm.run(f"scontrol show job {number}")
        for part in (
            "Account=nlp",
            "NumNodes=1",
            "cpu=2,mem=100M",
            "TresPerNode=gres:gpu:2",
            "TimeLimit=00:20:00",
            "Requeue=0",
        ):
            assert part in job

    def test_two_requests_of_one_name_make_one_job(self, slurm: SlurmCluster) -> None:
        assert provider().create(request()) == provider().create(request())
        assert len(slurm.run("squeue --me --noheader").splitlines()) == 1

    def test_a_pilot_that_waits_says_why(self, slurm: SlurmCluster) -> None:
        wait_for(provider().create(request("1", cpus=2)), ProvidedState.RUNNING)
        wait_for(provider().create(request("2", cpus=2)), ProvidedState.RUNNING)
        number = provider().create(request("3", cpus=2))
        until(lambda: found(number).reason == "Waits in Slurm for a node with enough free resources.")
        assert found(number).state is ProvidedState.PENDING

    def test_jobs_of_others_are_not_listed(self, slurm: SlurmCluster) -> None:
        slurm.run("sbatch --job-name=gp-other-1 --wrap 'sleep 60'")
        assert [host for host in provider().list() if not (host.host_name or "").startswith(PREFIX)] == []

    @pytest.mark.parametrize("identifier", ["999999", "", "--me", "1; id"])
    def test_deleting_what_is_unknown_is_fine(self, slurm: SlurmCluster, identifier: str) -> None:
        number = provider().create(request())
        provider().delete(identifier)
        assert found(number).state in (ProvidedState.PENDING, ProvidedState.RUNNING)

    def test_words_that_a_shell_would_read_are_refused(self, slurm: SlurmCluster) -> None:
        with pytest.raises(ProviderError, match="a shell would read more"):
            provider().create(request("$(id)"))

    def test_a_stopped_controller_is_said_and_nothing_lost(self, slurm: SlurmCluster) -> None:
        number = provider().create(request())
        wait_for(number, ProvidedState.RUNNING)
        slurm.run("sed -i 's/^MessageTimeout.*//' /etc/slurm/slurm.conf; echo MessageTimeout=2 >>/etc/slurm/slurm.conf")
        slurm.stop_controller()
        try:
            for call in (lambda: provider().create(request("2")), provider().list, lambda: provider().delete(number)):
                with pytest.raises(ProviderError, match=r"^Slurm's controller does not answer\.$"):
                    call()
        finally:
            slurm.start_controller()
        assert found(number).state is ProvidedState.RUNNING

    @pytest.mark.parametrize(
        ("configuration", "gpus", "words"),
        [
            ({"account": "chemistry"}, 1, "Slurm lets the platform's user book nothing on account chemistry in "),
            ({"partition": "night"}, 1, "Slurm has no partition night for the platform's user."),
            ({"qos": "gold"}, 1, "Slurm does not give the platform's user the QOS gold."),
            ({"constraint": "a100"}, 1, "No node of Slurm has the feature a100."),
            ({}, 3, "No node of partition gpu has 1 CPUs, 100 MiB of memory and 3 gpu."),
        ],
    )
    def test_what_slurm_refuses_is_said_in_words(
        self, slurm: SlurmCluster, configuration: dict[str, str], gpus: int, words: str
    ) -> None:
        with pytest.raises(ProviderError) as refused:
            provider(**configuration).create(request(gpus=gpus))
        assert str(refused.value).startswith(words)

    def test_a_full_queue_is_said_in_words(self, slurm: SlurmCluster) -> None:
        provider(qos="one").create(request("1"))
        with pytest.raises(ProviderError, match="too many are submitted"):
            provider(qos="one").create(request("2"))

    def test_a_time_limit_beyond_the_partition_is_said(self, slurm: SlurmCluster) -> None:
        number = provider(partition="short").create(request())
        until(lambda: found(number).reason == "Its time limit is longer than its Slurm partition allows.")


def test_commands_that_cannot_run_are_said(settings: Settings) -> None:
    settings.COMPUTE_SLURM_PREFIX = "/nowhere/ssh login1"
    with pytest.raises(ProviderError, match="ssh cannot be run: No such file"):
        provider().list()


def test_what_slurm_writes_is_bounded(settings: Settings) -> None:
    settings.COMPUTE_SLURM_PREFIX = "sh -c yes"
    with pytest.raises(ProviderError, match="sh wrote more than 1 MiB"):
        provider().list()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("partition", "gpu;id"),
        ("partition", "--uid=0"),
        ("partition", ""),
        ("account", "a b"),
        ("qos", "$(id)"),
        ("constraint", "a&b"),
        ("gres", "gpu:1"),
        ("checkout", "/opt/a b"),
        ("checkout", "relative"),
        ("log", "`id`"),
        ("time_limit_minutes", 5),
        ("notice_seconds", 1801),
        ("grace_seconds", 0),
        ("settings", {"PATH": "/tmp"}),
        ("settings", {"COMPUTE_LOG_LEVEL": "a\nid"}),
        ("unknown", "1"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError) as refused:
        provider(**{field: value})
    assert field in str(refused.value)
