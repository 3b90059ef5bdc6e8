"""A Slurm cluster for tests: one container with Debian's slurmctld, slurmdbd and two nodes, which have fake GPUs.

The nodes are UTS namespaces: each slurmd finds its own name. All of it shares this machine's network and processes, so
that a pilot reaches the platform and its engine as on a node of a lab. The accounts are part of the image.
"""

import io
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import docker
from docker.api import APIClient

from resources.images.base import Bases, has_image
from resources.images.catalogue.inputs import network_arguments
from tests.containers import ENGINE_URL
from tests.exclusive import exclusive
from tests.execs import output_of
from tests.ports import free_port
from tests.wait import until

ROOT: Final = Path(__file__).resolve().parent.parent
IMAGE: Final = "gptest/slurm:2"  # raise the tag when the content changes
# vision is the default account of root and gpu, who may use nlp as well; QOS `one` takes one job of a user at a time.
DOCKERFILE: Final = rb"""
ARG BASE
FROM ${BASE}
RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
        curl iproute2 iptables kmod mariadb-server munge openssh-server procps python3 python3-venv \
        slurm-client slurmctld slurmd slurmdbd && rm -rf /var/lib/apt/lists
RUN useradd --create-home --uid 2000 --shell /bin/sh gpu && mkdir -p /run/sshd
RUN printf '%s\n' AuthType=auth/munge DbdHost=localhost SlurmUser=root StorageType=accounting_storage/mysql \
        StorageUser=slurm StoragePass=slurm StorageLoc=slurm PidFile=/run/slurmdbd.pid LogFile=/var/log/slurmdbd.log \
        >/etc/slurm/slurmdbd.conf && chmod 600 /etc/slurm/slurmdbd.conf && \
    printf '%s\n' ClusterName=lab SlurmctldHost=localhost AccountingStorageType=accounting_storage/slurmdbd \
        >/etc/slurm/slurm.conf && \
    printf '%s\n' 'set -e' 'mkdir -p /run/munge /run/mysqld' 'chown munge /run/munge' 'chown mysql /run/mysqld' \
        'runuser -u munge -- /usr/sbin/munged' 'mariadbd-safe --skip-networking >/var/log/mariadb.log 2>&1 &' \
        'until mariadb-admin ping >/dev/null 2>&1; do sleep 0.1; done' >/usr/local/bin/begin && \
    sh -c '. /usr/local/bin/begin; mariadb -e "create database slurm; \
        create user slurm@localhost identified by \"slurm\"; grant all on slurm.* to slurm@localhost" && slurmdbd && \
        until sacctmgr -n show cluster >/dev/null 2>&1; do sleep 0.1; done; \
        sacctmgr -i add cluster lab && sacctmgr -i add account vision,nlp Cluster=lab && \
        sacctmgr -i add user root,gpu Account=vision DefaultAccount=vision && \
        sacctmgr -i add user root,gpu Account=nlp && \
        sacctmgr -i add qos one MaxSubmitJobsPerUser=1 && sacctmgr -i modify user root,gpu set qos+=one && \
        kill $(cat /run/slurmdbd.pid) && mariadb-admin shutdown'
RUN python3 -m venv --without-pip /opt/venv && echo /packages >/opt/venv/lib/python3.11/site-packages/packages.pth
"""
CONFIGURATION: Final = """ClusterName=lab
SlurmctldHost=ctl(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd-%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
KillWait={kill_wait}
Epilog=/etc/slurm/epilog
AccountingStorageType=accounting_storage/slurmdbd
AccountingStoragePort={database}
AccountingStorageEnforce=associations,limits,qos
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
NodeName=n1 NodeAddr=127.0.0.1 Port={first} CPUs={cpus} RealMemory=2000 Gres=gpu:2
NodeName=n2 NodeAddr=127.0.0.1 Port={second} CPUs={cpus} RealMemory=2000 Gres=gpu:2
PartitionName=gpu Nodes=n1,n2 MaxTime=120 State=UP Default=YES GraceTime={kill_wait}
PartitionName=urgent Nodes=n1,n2 MaxTime=120 State=UP PriorityTier=2
PartitionName=short Nodes=n1,n2 MaxTime=10 State=UP
"""
BEGIN: Final = """
. /usr/local/bin/begin
for number in 0 1; do mknod /dev/fakegpu$number c 1 3; done
echo 'NodeName=n[1-2] Name=gpu File=/dev/fakegpu[0-1]' >/etc/slurm/gres.conf
echo DbdPort={database} >>/etc/slurm/slurmdbd.conf
mkdir -p /var/spool/slurmctld /opt/gpuplatform
ln -s /src/* /opt/gpuplatform && ln -s /opt/venv /opt/gpuplatform/.venv
slurmdbd
until sacctmgr -n show cluster >/dev/null 2>&1; do sleep 0.1; done
unshare --uts sh -c 'hostname ctl && exec slurmctld'
for node in n1 n2; do unshare --uts sh -c "hostname $node && exec slurmd"; done
until [ "$(sinfo -h -p gpu -o %T)" = idle ]; do sleep 0.1; done
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmCluster:
    """A running cluster of two nodes, each with 2 CPUs unless said, 2000 MiB and 2 GPUs, for the user root.

    Jobs of the partition `urgent` preempt those of `gpu`; those of `short` may last 10 minutes.
    """

    prefix: str  # words before a command that run it there
    container: str
    client: APIClient
    folder: Path  # COMPUTE_VAR_DIR of pilots

    def run(self, command: str) -> str:
        """Return the output of a shell command there. Raises AssertionError where it fails."""
        code, output = output_of(self.client, self.container, command)
        assert code == 0, output[-3000:]
        return output.strip()

    def stop_controller(self) -> None:
        """End slurmctld, as its machine's restart would; jobs run on."""
        self.run("pid=$(cat /run/slurmctld.pid); kill $pid; while kill -0 $pid 2>/dev/null; do sleep 0.05; done")

    def kill_node(self, name: str) -> None:
        """Kill slurmd and the jobs of the only node that has some, and have slurmctld take it for lost."""
        parts = (
            f"[s]lurmstepd|[h]ostworker|[m]anage.py|[{self.folder.name[0]}]{self.folder.name[1:]}"  # not of this shell
        )
        is_here = '[ "$(readlink $process/ns/mnt)" = "$(readlink /proc/self/ns/mnt)" ]'
        self.run(
            f"kill -9 $(cat /run/slurmd-{name}.pid)\nfor process in /proc/[0-9]*; do\n"
            f"if {is_here} && grep -qsaE '{parts}' $process/cmdline; then kill -9 ${{process#/proc/}}; fi\ndone\n"
            f"scontrol update nodename={name} state=down reason=dead"
        )

    def start_node(self, name: str) -> None:
        """Start slurmd of a node again."""
        self.run(f"unshare --uts sh -c 'hostname {name} && exec slurmd'; scontrol update nodename={name} state=resume")

    def start_controller(self) -> None:
        """Start it again, and return once it answers."""
        self.run(
            "unshare --uts sh -c 'hostname ctl && exec slurmctld'; until scontrol ping | grep -q UP; do sleep 0.1; done"
        )

    def cancel_all(self) -> None:
        """Cancel all jobs, and return once the nodes are free of them."""
        self.run("squeue --noheader --format=%A | xargs --no-run-if-empty scancel")
        until(lambda: not self.run("squeue --noheader"))

    def serve_ssh(self) -> str:
        """Start sshd; return the words before a command that run it as the user `gpu`, who may use the engine."""
        port, key = free_port(), self.folder / "key"
        self.run(
            f"set -e\nssh-keygen -q -t ed25519 -N '' -f {key}\n"
            f"install -d -o gpu /home/gpu/.ssh {self.folder}/gpu\n"
            f"install -o gpu {key}.pub /home/gpu/.ssh/authorized_keys\n"
            "socket=$(stat -c %g /var/run/docker.sock)\ngetent group $socket || groupadd --gid $socket engine\n"
            f"usermod -aG $socket gpu\n/usr/sbin/sshd -p {port} -o ListenAddress=127.0.0.1"
        )
        options = "BatchMode=yes ConnectTimeout=10 StrictHostKeyChecking=no UserKnownHostsFile=/dev/null LogLevel=ERROR"
        return f"ssh {' '.join(f'-o{option}' for option in options.split())} -i {key} -p {port} gpu@127.0.0.1"


@contextmanager
def slurm_cluster(*, kill_wait: int = 30, cpus: int = 2) -> Iterator[SlurmCluster]:
    """Start a cluster, which takes 5 seconds, with the image built first where it is missing, which takes minutes."""
    _ensure_image()
    name = f"gptest-slurm-{secrets.token_hex(4)}"
    ports = {each: free_port() for each in ("controller", "database", "first", "second")}
    configuration = CONFIGURATION.format(kill_wait=kill_wait, cpus=cpus, **ports)
    with closing(APIClient(ENGINE_URL, version="auto", timeout=120)) as client:
        cluster = _start(client, name)
        try:
            cluster.run(f"cat >/etc/slurm/slurm.conf <<'END'\n{configuration}END")
            epilog = f"sed '2i export COMPUTE_VAR_DIR={cluster.folder}' /src/deploy/slurm/epilog.sh >/etc/slurm/epilog"
            cluster.run(f"set -e\n{epilog}\nchmod +x /etc/slurm/epilog\n{BEGIN.format(**ports)}")
            yield cluster
        finally:
            client.remove_container(name, force=True, v=True)
            shutil.rmtree(cluster.folder, ignore_errors=True)


def _start(client: APIClient, name: str) -> SlurmCluster:
    packages, var = Path(docker.__file__).resolve().parents[1], ROOT / "var"
    config = client.create_host_config(
        network_mode="host",
        pid_mode="host",
        cap_add=["MKNOD", "NET_ADMIN", "SYS_ADMIN", "SYS_PTRACE"],
        security_opt=["seccomp=unconfined", "apparmor=unconfined"],
        binds=[
            f"{ROOT}:/src:ro",
            f"{packages}:/packages:ro",
            f"{var}:{var}",
            "/var/run/docker.sock:/var/run/docker.sock",
        ],
    )
    client.create_container(IMAGE, ["sleep", "infinity"], name=name, host_config=config)
    (var / name).mkdir()
    client.start(name)
    process = client.inspect_container(name)["State"]["Pid"]
    prefix = f"nsenter --target {process} --mount --uts --ipc"
    return SlurmCluster(prefix=prefix, container=name, client=client, folder=var / name)


def _ensure_image() -> None:
    with exclusive("slurm-image"), closing(docker.DockerClient(ENGINE_URL, timeout=1200)) as engine:
        if not has_image(engine, IMAGE):
            base = Bases(engine, refresh=False, report=lambda _: None).reference("bookworm")
            arguments = {"BASE": base} | network_arguments(os.environ)
            file = io.BytesIO(DOCKERFILE)
            engine.images.build(fileobj=file, tag=IMAGE, buildargs=arguments, network_mode="host", rm=True)
