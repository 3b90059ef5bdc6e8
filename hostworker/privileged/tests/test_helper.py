"""The helper container: what it does, and that it ends with the worker whose it is. Real containers."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from secrets import token_hex

import pytest
from docker.api import APIClient

from hostworker.enforcement.folders import SessionFolders
from hostworker.privileged import helper, helper_container
from hostworker.privileged.base import ContainerFiles, PrivilegesError
from hostworker.privileged.cluster_network.network import MEMBER_DEVICE, ClusterNetwork
from hostworker.privileged.firewall import FirewallError
from hostworker.privileged.helper import HelperPrivileges
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.privileged.hostnames import SANDBOX_HOSTNAME
from hostworker.privileged.kernel_limits import TERMINALS, low_limits
from hostworker.privileged.tests.test_firewall import run, tear_down
from hostworker.runtime.tests.runtime_worlds import ENGINE_URL, DockerWorld, make_spec, tiny_world
from hostworker.runtime_protocol import FolderMount
from tests.platform import ROOT
from tests.wait import SECONDS, until

pytestmark = pytest.mark.docker

CLUSTER = "100.79.255.0/24"  # the last of the range
TEST_LABEL = "gpuplatform-test.helper"
IS_ASLEEP = "until grep -q sleep /proc/$!/comm; do sleep 0.05; done"  # no shell any more


@pytest.fixture
def mark() -> str:
    """What tells this test's helpers from others on the engine."""
    return token_hex(8)


@pytest.fixture
def helped(mark: str, tmp_path: Path) -> Iterator[HelperPrivileges]:
    privileges = HelperPrivileges(ENGINE_URL, {TEST_LABEL: mark}, tmp_path)
    yield privileges
    privileges.end()
    until(lambda: not containers(mark))


world = pytest.fixture(tiny_world)


def containers(mark: str) -> list[str]:
    """Return the ids of this test's helpers, in any state."""
    with closing(APIClient(ENGINE_URL, version="auto")) as client:
        return [each["Id"] for each in client.containers(all=True, filters={"label": [f"{TEST_LABEL}={mark}"]})]


def test_no_operation_is_left_to_the_worker_itself() -> None:
    assert {name for name in vars(HostPrivileges) if not name.startswith("_")} <= vars(HelperPrivileges).keys()


def test_the_helper_sees_and_does_what_root_does(helped: HelperPrivileges, world: DockerWorld, tmp_path: Path) -> None:
    direct = HostPrivileges()
    source = tmp_path / "7" / "abcdefghijklmnop" / "files"
    source.mkdir(parents=True, mode=0o777)
    source.chmod(0o777)
    spec = make_spec(world.image, folders=(FolderMount(source=source, target="/mnt/data"),))
    runtime = world.runtime()
    runtime.create(spec)
    runtime.start(spec.session, 1)
    inspected = world.client.inspect_container(f"gp-{spec.session}-1")
    files = ContainerFiles.of(inspected)
    assert helped.problem() == ""
    assert helped.container_of(files.pid) == direct.container_of(files.pid) == inspected["Id"]
    assert helped.hook_inodes(os.getpid()) == direct.hook_inodes(os.getpid()) == frozenset()
    assert helped.hook_inodes(2**22 - 1) is None
    assert helped.starts_hooked(files.pid, [1, 2]) is False
    helped.raise_kernel_limits()
    assert low_limits() == {}
    helped.bound_terminals(files.pid)
    assert f"max={TERMINALS} " in world.execute(spec.session, 1, "grep devpts /proc/mounts")[1]
    assert set(helped.kernel_use([inspected["Id"]]).held) == {inspected["Id"]}
    assert helped.kernel_use([inspected["Id"]]).limits == direct.kernel_use([inspected["Id"]]).limits
    assert helped.firewall_problem() == direct.firewall_problem() == ""
    assert helped.can_name(files)
    helped.give_name(files, "given")
    assert world.execute(spec.session, 1, "cat /proc/sys/kernel/hostname /etc/hostname")[1] == "given\ngiven\n"
    assert SANDBOX_HOSTNAME not in world.execute(spec.session, 1, "cat /etc/hosts")[1]
    world.execute(spec.session, 1, f"sleep 1000 >/mnt/data/log & {IS_ASLEEP}")
    assert not helped.set_mount_read_only(files.pid, source, read_only=True)
    assert helped.end_mount_writers(files.pid, source) == ["sleep"]
    until(lambda: helped.set_mount_read_only(files.pid, source, read_only=True))
    world.execute(spec.session, 1, f"cd /mnt/data; sleep 1000 & {IS_ASLEEP}")
    assert helped.take_mount_away(files.pid, source) == ["sleep"]
    assert "log" not in world.execute(spec.session, 1, "ls /mnt/data")[1]


def test_the_helper_puts_a_container_into_a_clusters_network(helped: HelperPrivileges, world: DockerWorld) -> None:
    spec = make_spec(world.image)
    runtime = world.runtime()
    runtime.create(spec)
    runtime.start(spec.session, 1)
    files = ContainerFiles.of(world.client.inspect_container(f"gp-{spec.session}-1"))
    assert helped.clusters_problem() == ""
    try:
        helped.hold_cluster(CLUSTER, "127.0.0.1", {}, "helped")
        helped.join_cluster(files, CLUSTER, ["main1", "sub1"], 2)
        assert "100.79.255.2\tsub1" in world.execute(spec.session, 1, "cat /etc/hosts")[1]
        assert "cluster0" in world.execute(spec.session, 1, "cat /proc/net/dev")[1]
    finally:
        helped.keep_clusters([], "helped")
        tear_down("clusters")
        tear_down("stray")
    assert "cluster0" not in world.execute(spec.session, 1, "cat /proc/net/dev")[1]


def test_what_a_killed_helper_began_the_next_one_ends(helped: HelperPrivileges, mark: str, world: DockerWorld) -> None:
    """Each is killed as soon as the first thing that it does for the cluster shows, and has more to do by then."""
    spec = make_spec(world.image)
    runtime = world.runtime()
    runtime.create(spec)
    runtime.start(spec.session, 1)
    files = ContainerFiles.of(world.client.inspect_container(f"gp-{spec.session}-1"))
    network, elsewhere = ClusterNetwork.of(CLUSTER), {"100.79.255.3": "192.0.2.99"}
    steps: list[tuple[Callable[[], object], Callable[[], bool]]] = [
        (
            lambda: helped.hold_cluster(CLUSTER, "127.0.0.1", elsewhere, mark),
            lambda: network.device in devices_of("self"),
        ),
        (
            lambda: helped.join_cluster(files, CLUSTER, ["main1", "sub1", "sub2"], 2),
            lambda: MEMBER_DEVICE in devices_of(files.pid),
        ),
        (lambda: helped.keep_clusters([], mark), lambda: network.device not in devices_of("self")),
    ]
    try:
        for number, (ask, shows) in enumerate(steps):
            assert helped.problem() == ""
            with killed_once(containers(mark)[0], shows), suppress(PrivilegesError):
                ask()
            until(lambda: not helped._link or not helped._link.is_open)
            ask()
            if number == 1:
                assert "100.79.255.3\tsub2" in world.execute(spec.session, 1, "cat /etc/hosts")[1]
                assert "100.79.255.2" in world.execute(spec.session, 1, "cat /proc/net/fib_trie")[1]
                assert "-s 192.0.2.99/32" in run("iptables", "-w", "-S")
        assert MEMBER_DEVICE not in devices_of(files.pid)
        assert "192.0.2.99" not in run("iptables", "-w", "-S")
    finally:
        helped.keep_clusters([], mark)
        tear_down("clusters")
        tear_down("stray")


def devices_of(process: object) -> set[str]:
    """Return the names of the network devices that the process sees."""
    lines = Path(f"/proc/{process}/net/dev").read_text().splitlines()
    return {line.split(":")[0].strip() for line in lines}


@contextmanager
def killed_once(container: str, shows: Callable[[], bool]) -> Iterator[None]:
    """Kill the container's main process as soon as that is so while the block runs; return once it was killed."""
    with closing(APIClient(ENGINE_URL, version="auto")) as client:
        pid = client.inspect_container(container)["State"]["Pid"]

    def kill() -> None:
        while not shows():
            pass  # what the helper does next takes milliseconds
        os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    yield
    thread.join(SECONDS)
    assert not thread.is_alive()


def test_a_limits_file_becomes_roots_and_what_is_not_stays(helped: HelperPrivileges, tmp_path: Path) -> None:
    path = tmp_path / "limits.conf"
    path.write_text("limits")
    path.chmod(0o444)
    os.chown(path, 0, 65534)
    helped.give_to_root(path)
    assert (path.stat().st_uid, path.stat().st_gid) == (0, 0)
    with pytest.raises(PrivilegesError, match="is not below"):
        helped.give_to_root(Path("/etc/passwd"))
    assert SessionFolders(tmp_path, helped).keys() == set()


def test_exceptions_arrive_as_what_they_are(helped: HelperPrivileges) -> None:
    with pytest.raises(FirewallError, match="is no bridge"):
        helped.hold_firewall("eth0", "here", deny_private=False)
    with pytest.raises(PrivilegesError, match="is no process"):
        helped.container_of(0)


def test_many_threads_share_one_helper(helped: HelperPrivileges, mark: str) -> None:
    found: list[bool] = []
    threads = [
        threading.Thread(target=lambda: found.append(helped.hook_inodes(os.getpid()) == frozenset())) for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 20
    assert len(containers(mark)) == 1


def test_a_helper_that_was_removed_is_replaced(helped: HelperPrivileges, mark: str) -> None:
    assert helped.problem() == ""
    (first,) = containers(mark)
    with closing(APIClient(ENGINE_URL, version="auto")) as client:
        client.remove_container(first, force=True)
    until(lambda: helped._link is not None and not helped._link.is_open)
    assert helped.container_of(os.getpid()) == ""
    assert containers(mark) != [first]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_helper_ends_with_its_worker(mark: str, tmp_path: Path, how: signal.Signals) -> None:
    script = f"""
import time
from pathlib import Path
from hostworker.privileged.helper import HelperPrivileges
privileges = HelperPrivileges({ENGINE_URL!r}, {{{TEST_LABEL!r}: {mark!r}}}, Path({str(tmp_path)!r}))
print(privileges.problem(), flush=True)
time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout
        assert worker.stdout.readline() == "\n"
        assert len(containers(mark)) == 1
        worker.send_signal(how)
    until(lambda: not containers(mark))


def test_a_helper_that_never_ran_is_removed_by_the_next(
    helped: HelperPrivileges, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(APIClient(ENGINE_URL, version="auto")) as client:
        abandoned = helper._create(client, helper_container.config({TEST_LABEL: mark}, tmp_path))
        assert helped.problem() == ""
        assert abandoned in containers(mark), "another worker may be about to start it"
        helped.end()
        monkeypatch.setattr(helper, "ABANDONED_SECONDS", -1)
        helper._remove_abandoned(client)
    assert abandoned not in containers(mark)


def test_where_no_helper_can_run_the_problem_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far = HelperPrivileges("tcp://10.0.0.1:2375", {}, tmp_path)
    assert "the container engine is on another machine" in far.problem()
    mute = HelperPrivileges(f"unix://{tmp_path}/docker.sock", {}, tmp_path)
    assert "the container engine does not answer" in mute.problem()
    assert "has no helper" in mute.firewall_problem()
    with pytest.raises(FirewallError):
        mute.hold_firewall("gpuplatform", "here", deny_private=False)
    monkeypatch.setattr(helper_container, "NSENTER", "/usr/bin/no-such-program")
    assert "no-such-program" in HelperPrivileges(ENGINE_URL, {}, tmp_path).problem()
    monkeypatch.undo()
    monkeypatch.setattr(helper_container, "SERVER", "no_such_module")
    assert "No module named no_such_module" in HelperPrivileges(ENGINE_URL, {}, tmp_path).problem()
