"""Clusters of real containers on one engine: who reaches whom, what members find inside, and what is left of it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from typing import Any, Final
from uuid import uuid4

import pytest
from docker.api import APIClient

from engine.containers import HOST_LABEL, INSTALLATION_LABEL
from hostworker.privileged.cluster_network import devices
from resources.amounts.units import MIB
from resources.models import Installation, ResourceGroup
from scheduler.cycle.passes import run_pass
from sessions.clusters import settling
from sessions.lifecycle import Status
from sessions.models import ClusterMode, Session
from sessions.parking import services as parking
from tests import factories
from tests.clusters import SERVE, Member, end_cluster, network_of, start_cluster
from tests.containers import ENGINE_URL, remove_containers
from tests.fgpu_sessions import PYTHON_IMAGE, ensure_python_image, submit, wait_for
from tests.tiny_image import ensure_tiny_image
from tests.wait import until
from tests.workers import host_worker, wait_until_ready

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]

ROOT_IMAGE: Final = "gptest/root:1"
COMMAND = f"echo begun as $RANK of $WORLD_SIZE; {SERVE}"


@pytest.fixture
def group() -> Iterator[ResourceGroup]:
    """The group of this machine alone, which has a host worker."""
    made = factories.make_group(cpu_overcommit=16)
    name = f"clusters-{uuid4().hex[:8]}"
    owner = f"{INSTALLATION_LABEL}={Installation.current_key()}", f"{HOST_LABEL}={name}"
    options = {"COMPUTE_HOST_GROUP": made.name, "COMPUTE_SIMULATED_GPUS": "", "COMPUTE_SANDBOX_POOL": "1"}
    try:
        with host_worker(name, **options):
            wait_until_ready(name)
            yield made
    finally:
        remove_containers(*owner)
        devices.keep([], Installation.current_key())


def has_device(name: str) -> bool:
    return not subprocess.run(["ip", "link", "show", name], capture_output=True, check=False).returncode


def test_members_reach_each_other_and_nobody_else(group: ResourceGroup) -> None:
    tiny: dict[str, Any] = {"image": ensure_tiny_image(), "memory": 64 * MIB, "command": COMMAND}
    mine, other = start_cluster(group, 4, **tiny), start_cluster(group, 2, **tiny)
    alone = Member(submit(group, "0", **tiny))
    wait_for(alone.session, Status.RUNNING)

    names = ["main1", "sub1", "sub2", "sub3"]
    for rank, (member, name) in enumerate(zip(mine, names, strict=True)):
        until(lambda member=member, rank=rank: f"begun as {rank} of 4" in member.log())  # type: ignore[misc]
        until(lambda member=member: member.reaches(names))  # type: ignore[misc]
        assert member.run("busybox hostname") == (0, f"{name}\n")

    own = [str(network_of(mine).member(index)) for index in range(1, 5)]
    targets = [*own, *(member.address for member in mine)]
    assert other[1].hears(*targets) == alone.hears(*targets) == []
    assert mine[1].hears(*(member.address for member in (*other, alone))) == []
    assert other[1].reaches(["main1", "sub1"])

    made = [network_of(members).device for members in (mine, other)]
    assert all(map(has_device, made))
    end_cluster(mine)
    until(lambda: not has_device(made[0]))
    assert has_device(made[1])
    assert other[1].reaches(["main1", "sub1"])


def test_members_log_in_to_each_other_without_a_question(group: ResourceGroup) -> None:
    ensure_python_image()
    main, sub = start_cluster(group, 2, environment={"GREETING": "it's me"})
    found = main.run("ssh sub1 'hostname; id -un; echo $RANK; echo $GREETING'")
    assert found == (0, "sub1\nwork\n1\nit's me\n")
    assert sub.run("ssh main1 hostname </dev/null") == (0, "main1\n")
    assert main.run("cp /etc/passwd /tmp/x; scp -q /tmp/x sub1:/tmp/y; ssh sub1 wc -l /tmp/y")[0] == 0
    assert main.run("ssh sub1 false")[0] == 1
    assert main.run("ls -A ~/.ssh")[0] == 2  # a home that is a folder of the user's gets nothing of this

    assert sub.run("echo kept >~/file")[0] == 0
    parking.park(sub.session, actor=sub.session.owner)
    for member in (main, sub):
        wait_for(member.session, Status.PARKED)
    settling.settle_all()
    parking.resume(main.session, actor=main.session.owner)
    assert run_pass() == 2
    for member in (main, sub):
        wait_for(member.session, Status.RUNNING)
    resumed = Member(Session.objects.get(pk=main.session.pk))
    assert resumed.run("ssh sub1 'cat ~/file; hostname'") == (0, "kept\nsub1\n")


def test_members_whose_user_is_root_log_in_to_each_other(group: ResourceGroup) -> None:
    ensure_python_image()
    with closing(APIClient(ENGINE_URL, version="auto")) as engine:
        list(engine.build(fileobj=BytesIO(f"FROM {PYTHON_IMAGE}\nUSER root\n".encode()), tag=ROOT_IMAGE, rm=True))
    owner = factories.make_user(policy=factories.make_policy(allow_sudo=False))
    main, sub = start_cluster(group, 2, image=ROOT_IMAGE, owner=owner)
    assert main.run("ssh sub1 'hostname; id -un; echo $RANK $LD_PRELOAD'") == (0, "sub1\nroot\n1\n")
    assert sub.run("ssh main1 hostname </dev/null") == (0, "main1\n")
    assert main.run("cp /etc/passwd /tmp/x; scp -q /tmp/x sub1:/tmp/y; ssh sub1 wc -l /tmp/y")[0] == 0
    assert "/dev/pts/" in main.run("ssh -tt sub1 tty </dev/null")[1]
    assert main.run("ssh sub1 'grep CapEff /proc/self/status'") == (0, f"CapEff:\t{0:016x}\n")


def test_a_group_may_give_members_the_network_of_their_hosts(group: ResourceGroup) -> None:
    ensure_python_image()
    ResourceGroup.objects.filter(pk=group.pk).update(cluster_host_network=True)
    command = "echo begun as $RANK; sleep 1000"
    clusters = [start_cluster(group, 2, command=command) for _ in range(2)]
    for main, sub in clusters:
        assert not any(f"begun as {rank}" in member.log() for rank, member in enumerate((main, sub)))
        settling.settle(main.session.pk)
        for rank, member in enumerate((main, sub)):
            until(lambda member=member, rank=rank: f"begun as {rank}" in member.log())  # type: ignore[misc]
        assert main.run("ssh sub1 'hostname; echo $RANK'") == (0, "sub1\n1\n")
        assert sub.run("ssh main1 hostname </dev/null") == (0, "main1\n")
        assert main.run("readlink /proc/self/ns/net") == (0, f"{os.readlink('/proc/self/ns/net')}\n")
        assert Session.objects.get(pk=main.session.pk).address is None
    first, second = (main.run("echo $MASTER_PORT")[1] for main, _ in clusters)
    assert first != second
    single_host = start_cluster(group, 2, mode=ClusterMode.SINGLE_HOST)
    assert single_host[0].run("ssh sub1 hostname") == (0, "sub1\n")
    assert single_host[0].session.main.address
