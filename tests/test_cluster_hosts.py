"""Clusters over two hosts, each with an engine, a network and a host worker of its own; the second one has joined."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from engine.containers import HOST_LABEL, INSTALLATION_LABEL
from hostworker.privileged.cluster_network import devices
from resources.amounts.units import GIB, MIB
from resources.models import Installation, ResourceGroup
from scheduler.cycle import passes
from sessions.clusters import settling
from sessions.launching.requests import ClusterRequest
from sessions.lifecycle import Status
from sessions.models import ClusterMode, Session
from sessions.requeueing import preemption
from tests import factories
from tests.cluster_image import ensure_cluster_image
from tests.clusters import SERVE, Member, end_cluster, network_of, start_cluster, submit_cluster
from tests.containers import ENGINE_URL, remove_containers
from tests.far_machine import FarMachine, far_machine
from tests.fgpu_sessions import submit, wait_for
from tests.joined_hosts import NOT_OF_A_HOST, hosts_may_join, joined_host
from tests.tiny_image import ensure_tiny_image
from tests.wait import until
from tests.workers import host_worker, wait_until_ready

pytestmark = [pytest.mark.long(minutes=4), pytest.mark.docker, pytest.mark.django_db(transaction=True)]

GPUS = "2x8GiB"
TRAIN = """\
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
total = torch.tensor(float(rank))
dist.all_reduce(total)
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(64, 4)
targets = inputs.sum(1, keepdim=True)
losses = []
for _ in range(100):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
weights = [torch.empty(1, 4) for _ in range(size)]
dist.all_gather(weights, model.module.weight.data)
is_one = all(torch.equal(each, weights[0]) for each in weights)
print(f"rank {rank} of {size}: sum {total.item():.0f}, learned {losses[-1] < losses[0] / 100}, one model {is_one}")
dist.destroy_process_group()
"""
ELASTIC = """\
import time, torch, torch.distributed as dist

dist.init_process_group("gloo")
print(f"rank {dist.get_rank()} of {dist.get_world_size()}", flush=True)
while True:
    dist.all_reduce(torch.ones(1))
    time.sleep(0.05)
"""
SUM = "from mpi4py import MPI; c = MPI.COMM_WORLD; print(c.allreduce(c.rank), MPI.Get_processor_name())"
TASKS = """\
import os, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as OnNode
ray.init("auto")
@ray.remote(num_cpus=0.1)
def where(number):
    return number, os.environ["CLUSTER_HOST"]
numbers = {number for number, _ in ray.get([where.remote(number) for number in range(1000)])}
nodes = [OnNode(node["NodeID"], soft=False) for node in ray.nodes()]
hosts = {host for _, host in ray.get([where.options(scheduling_strategy=node).remote(0) for node in nodes])}
print(len(numbers), *sorted(hosts))
"""
RAY = "ray start --num-cpus=1 --node-ip-address=$(hostname -i) --object-store-memory=80000000 --disable-usage-stats"


@dataclass(frozen=True)
class Hosts:
    """Two hosts of one group."""

    group: ResourceGroup
    machine: FarMachine
    engines: dict[str, str]

    def start(self, size: int, fgpu: str = "0", **request: Any) -> list[Member]:
        """Return the running members of a cluster, half of which are on each host."""
        members = start_cluster(self.group, size, fgpu, engines=self.engines, **request)
        assert Session.objects.filter(cluster=members[0].session.cluster_id).values("host").distinct().count() == 2
        return members

    def member(self, session: Session) -> Member:
        """Return a session once it runs."""
        wait_for(session, Status.RUNNING)
        running = Session.objects.select_related("host").get(pk=session.pk)
        return Member(running, self.engines.get(running.host.name if running.host else "", ENGINE_URL))

    def devices(self) -> int:
        """Return how many networks of the installation's clusters the hosts have together."""
        show = ["ip", "-details", "link", "show", "type", "vxlan"]
        found = [
            subprocess.run([*on, *show], capture_output=True, text=True, check=True) for on in ((), self.machine.on_it)
        ]
        return sum(each.stdout.count(f"alias {Installation.current_key()}") for each in found)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    token = uuid4().hex[:8]
    near, far = f"near-{token}", f"far-{token}"
    group = factories.make_group(cpu_overcommit=16, fgpu_per_gpu=1)
    options = {"COMPUTE_HOST_GROUP": group.name, "COMPUTE_SANDBOX_POOL": "0", "COMPUTE_SIMULATED_GPUS": GPUS}
    options["COMPUTE_DISK_RESERVE"] = "100m"  # the second engine is in memory
    with ExitStack() as stack:
        stack.callback(devices.keep, [], Installation.current_key())
        stack.callback(remove_containers, f"{INSTALLATION_LABEL}={Installation.current_key()}", f"{HOST_LABEL}={near}")
        machine = stack.enter_context(far_machine())
        stack.enter_context(host_worker(near, COMPUTE_CLUSTER_ADDRESS=machine.near_address, **options))
        stack.enter_context(hosts_may_join())
        joined = stack.enter_context(joined_host(far, group.name))
        there = options | NOT_OF_A_HOST | joined
        there |= {"COMPUTE_DOCKER_URL": machine.engine_url, "COMPUTE_CLUSTER_ADDRESS": machine.address}
        stack.enter_context(host_worker(far, on=machine.beside_engine, **there))
        for name in (near, far):
            wait_until_ready(name)
        yield Hosts(group, machine, {far: machine.engine_url})


def test_members_reach_each_other_over_hosts(hosts: Hosts) -> None:
    hosts.machine.take_image(ensure_tiny_image())
    tiny: dict[str, Any] = {"image": ensure_tiny_image(), "memory": 64 * MIB, "mode": ClusterMode.SPREAD}
    mine = hosts.start(2, command=SERVE, **tiny)
    other = hosts.start(2, command=SERVE, **tiny)
    for member in (*mine, *other):
        until(lambda member=member: member.reaches(["main1", "sub1"]))  # type: ignore[misc]
        assert member.run("echo $CLUSTER_MODE") == (0, "multi-node\n")
    targets = [str(network_of(mine).member(index)) for index in (1, 2)]
    assert [member.hears(*targets) for member in other] == [[], []]
    assert hosts.devices() == 4
    for members in (mine, other):
        end_cluster(members)
    until(lambda: not hosts.devices())


def test_bare_programs_span_hosts(hosts: Hosts) -> None:
    image = ensure_cluster_image()
    hosts.machine.take_image(image)
    fields: dict[str, Any] = {"image": image, "memory": 3 * GIB}
    command = f"cat >/tmp/train.py <<'END'\n{TRAIN}END\ntorchrun /tmp/train.py"
    trained = submit_cluster(hosts.group, 4, "0.5", command=command, **fields)
    for session in trained:
        wait_for(session, Status.TERMINATED)
        said = f"rank {session.rank} of 4: sum 6, learned True, one model True"
        until(Session.objects.filter(pk=session.pk, log_tail__contains=said).exists)
    assert len({session.host_id for session in trained}) == 2

    members = hosts.start(4, "0.5", **fields)
    for member in members:
        code, seen = member.run("nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits")
        assert (code, seen.split()) == (0, ["4096"])
    code, output = members[0].run(f"mpirun python -c '{SUM}'")
    assert (code, sorted(output.splitlines())) == (0, ["6 main1", "6 sub1", "6 sub2", "6 sub3"])

    assert members[0].run(f"{RAY} --head")[0] == 0
    for member in members[1:]:
        code, output = member.run(f"{RAY} --address=main1:6379")
        assert code == 0, output
    code, output = members[0].run(f"python - <<'END' 2>/tmp/errors\n{TASKS}END\ntail -5 /tmp/errors")
    assert "1000 main1 sub1 sub2 sub3" in output


def test_torchrun_goes_on_while_members_come_and_go(hosts: Hosts) -> None:
    image = ensure_cluster_image()
    hosts.machine.take_image(image)
    command = f"cat >/tmp/train.py <<'END'\n{ELASTIC}END\ntorchrun /tmp/train.py"
    asked = ClusterRequest(size=1, max_size=2, mode=ClusterMode.SPREAD, runs_on_all=True)
    first = submit(hosts.group, "0", image, memory=2 * GIB, cluster=asked, command=command)
    main = hosts.member(first)
    until(lambda: "rank 0 of 1" in main.log())

    def grow() -> Member:
        settling.settle_all()
        passes.run_pass()
        return hosts.member(Session.objects.get(cluster=first.pk, rank=1))

    sub = grow()
    until(lambda: "rank 1 of 2" in sub.log())
    assert sub.session.host_id != main.session.host_id
    assert "rank 0 of 2" in main.log()
    for member in (main, sub):
        until(lambda member=member: member.run("cat /etc/cluster/hostfile")[1] == "main1 slots=1\nsub1 slots=1\n")  # type: ignore[misc]

    preemption.return_elastic([sub.session], "Another session needs its place.")
    wait_for(sub.session, Status.PENDING)
    settling.settle_all()
    until(lambda: main.log().count("rank 0 of 1") == 2)
    until(lambda: main.run("cat /etc/cluster/hostfile")[1] == "main1 slots=1\n")
    again = grow()
    until(lambda: "rank 1 of 2" in again.log())
    end_cluster([main])
