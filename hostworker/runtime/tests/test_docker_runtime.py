"""What only the Docker runtime promises: the limits and the walls of a real container, and the races of the engine."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from docker.errors import NotFound

from hostworker.app_processes.scripts import environment, start_command
from hostworker.enforcement.enforcer import Enforcer
from hostworker.enforcement.programs import Programs
from hostworker.runtime.container_config import LOG_FILE_COUNT, LOG_FILE_SIZE, PIDS_LIMIT, SUDO_CAPABILITIES
from hostworker.runtime.docker.runtime import DockerRuntime
from hostworker.runtime.tests.runtime_worlds import (
    ENGINE_URL,
    MIB,
    DockerWorld,
    cgroup_value,
    hand_made_labels,
    make_spec,
    runtime_of,
    tiny_world,
)
from hostworker.runtime_protocol import ContainerPhase, ContainerSpec, GpuGrant, ImageUnavailableError, StartError
from resources.amounts.units import GIB
from tests.wait import SECONDS, until

pytestmark = pytest.mark.docker

# Bits of the capabilities in /proc/<pid>/status, from linux/capability.h
CAPABILITY_BITS = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "AUDIT_WRITE": 29,
}


world = pytest.fixture(tiny_world)
runtime = pytest.fixture(runtime_of)


@pytest.fixture
def own_network(world: DockerWorld) -> Iterator[str]:
    """The name of a network that does not exist yet and goes with the test."""
    name = f"gp-{world.installation[:8]}"
    yield name
    for container in world.client.containers(all=True, filters={"network": name}):
        world.client.remove_container(container["Id"], force=True)
    for network in world.client.networks(names=[name]):
        world.client.remove_network(network["Id"])


@pytest.fixture
def empty_image(world: DockerWorld) -> Iterator[str]:
    """An image without any file."""
    reference = f"gpuplatform-test/empty:{world.installation}"
    world.client.import_image_from_data(bytes(1024), repository="gpuplatform-test/empty", tag=world.installation)
    yield reference
    world.client.remove_image(reference, force=True)


def launch(runtime: DockerRuntime, spec: ContainerSpec) -> ContainerSpec:
    runtime.create(spec)
    runtime.start(spec.session, spec.attempt)
    return spec


def process_status(world: DockerWorld, spec: ContainerSpec) -> dict[str, str]:
    """Return /proc/1/status of the container by field."""
    _, text = world.execute(spec.session, spec.attempt, "cat /proc/1/status")
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def test_the_container_itself_sees_the_limits_asked_for(world: DockerWorld, runtime: DockerRuntime) -> None:
    spec = launch(runtime, make_spec(world.image, cpu=2, memory_bytes=48 * MIB, shared_memory_bytes=12 * MIB))
    commands = {
        "memory": cgroup_value("memory/memory.limit_in_bytes", "memory.max"),
        "cpu": cgroup_value("cpu/cpu.cfs_quota_us", "cpu.max"),
        "pids": cgroup_value("pids/pids.max", "pids.max"),
        "shm": "df -k /dev/shm | tail -n 1",
        "badness": "cat /proc/1/oom_score_adj",
    }
    seen = {name: world.execute(spec.session, 1, command)[1].split() for name, command in commands.items()}
    assert seen["memory"] == [str(48 * MIB)]
    assert seen["cpu"][0] == "200000"  # microseconds in each period of 100,000
    assert seen["pids"] == [str(PIDS_LIMIT)]
    assert seen["shm"][1] == str(12 * 1024)
    assert seen["badness"] == ["500"]


def test_the_engine_holds_what_was_asked_for(world: DockerWorld, runtime: DockerRuntime) -> None:
    spec = launch(runtime, make_spec(world.image, hostname="my-work", environment={"A": "x=y z"}))
    container = world.inspect(spec.session, 1)
    host, config = container["HostConfig"], container["Config"]
    assert (host["Memory"], host["MemorySwap"], host["NanoCpus"]) == (64 * MIB, 64 * MIB, 10**9)
    assert (host["ShmSize"], host["PidsLimit"], host["Init"]) == (16 * MIB, PIDS_LIMIT, True)
    assert host["LogConfig"] == {
        "Type": "json-file",
        "Config": {"max-size": LOG_FILE_SIZE, "max-file": LOG_FILE_COUNT},
    }
    assert host["RestartPolicy"]["Name"] == "no"
    assert host["PortBindings"] in (None, {})
    assert not any(container["NetworkSettings"]["Ports"].values())
    assert config["Hostname"] == "my-work"
    assert {"A=x=y z", "NVIDIA_VISIBLE_DEVICES=void"} <= set(config["Env"])


def test_weights_are_in_proportion_to_guarantees(world: DockerWorld, runtime: DockerRuntime) -> None:
    burn = "while :; do :; done"
    specs = [launch(runtime, make_spec(world.image, cpu=2, core_milli=each, command=burn)) for each in (250, 1000)]
    held = [world.inspect(spec.session, 1)["HostConfig"] for spec in specs]
    assert [(each["CpuShares"], each["NanoCpus"]) for each in held] == [(512, 2 * 10**9), (2048, 2 * 10**9)]
    weight = cgroup_value("cpu/cpu.shares", "cpu.weight")
    small, large = (int(world.execute(spec.session, 1, weight)[1]) for spec in specs)
    assert (small, large) == (512, 2048) or small < large  # version 2 of cgroups has a scale of its own


def test_without_sudo_no_capability_can_be_gained(world: DockerWorld, runtime: DockerRuntime) -> None:
    spec = launch(runtime, make_spec(world.image))
    status = process_status(world, spec)
    assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd")} == {0}
    assert status["NoNewPrivs"] == "1"
    code, output = world.execute(spec.session, 1, "/bin/su -c id", user="work")
    assert (code, output) == (1, "su: must be suid to work properly\n")


def test_sudo_gets_only_the_capabilities_it_needs(world: DockerWorld, runtime: DockerRuntime) -> None:
    spec = launch(runtime, make_spec(world.image, allow_sudo=True))
    status = process_status(world, spec)
    assert set(CAPABILITY_BITS) == set(SUDO_CAPABILITIES)
    assert int(status["CapBnd"], 16) == sum(1 << bit for bit in CAPABILITY_BITS.values())
    assert status["NoNewPrivs"] == "0"
    code, output = world.execute(spec.session, 1, "/bin/su -c 'id; touch /bin/installed'", user="work")
    assert (code, output.split()[0]) == (0, "uid=0"), output


def test_containers_cannot_reach_each_other(world: DockerWorld, runtime: DockerRuntime) -> None:
    one, other = (launch(runtime, make_spec(world.image)) for _ in range(2))
    address = runtime.address(one.session, 1)
    world.execute(one.session, 1, "nc -ll -p 8080 -e cat </dev/null >/dev/null 2>&1 &")
    request = f"echo hello | nc -w 1 {address} 8080"
    # The one itself reaches its server, as soon as that listens.
    assert world.execute(one.session, 1, f"until {request}; do sleep 0.05; done 2>/dev/null") == (0, "hello\n")
    assert "hello" not in world.execute(other.session, 1, request)[1]


def test_stop_gives_every_process_the_chance_to_end_well(world: DockerWorld, runtime: DockerRuntime) -> None:
    spec = launch(runtime, make_spec(world.image))
    process = "trap 'echo saved > /proc/1/fd/1; exit' TERM; : > /tmp/ready; while :; do sleep 0.05; done"
    world.execute(spec.session, 1, f"({process}) & until [ -e /tmp/ready ]; do sleep 0.05; done")
    runtime.stop(spec.session, 1, grace_seconds=60)
    assert "saved" in runtime.logs(spec.session, 1, 10)
    (state,) = runtime.containers()
    assert (state.phase, state.exit_code) == (ContainerPhase.EXITED, 0)


def test_stop_kills_what_is_left_after_the_grace(world: DockerWorld, runtime: DockerRuntime) -> None:
    spec = launch(runtime, make_spec(world.image))
    # Not a shell by name, so that HUP does not come into it.
    world.execute(spec.session, 1, "trap '' TERM HUP; sleep 1000 &")
    started = time.monotonic()
    runtime.stop(spec.session, 1, grace_seconds=1)
    assert time.monotonic() - started >= 1.0
    assert [state.exit_code for state in runtime.containers()] == [137]


@pytest.mark.parametrize("has_terminal", [False, True])
def test_stop_returns_before_grace_when_processes_end(
    world: DockerWorld, runtime: DockerRuntime, has_terminal: bool
) -> None:
    spec = launch(runtime, make_spec(world.image))
    until(lambda: "ready" in runtime.logs(spec.session, 1, 10))  # it is told to end only once it listens to that
    if has_terminal:  # an interactive shell ignores TERM
        terminal = world.client.exec_create(f"gp-{spec.session}-1", ["sh", "-i"], tty=True, stdin=True)
        world.client.exec_start(terminal["Id"], tty=True, detach=True)
    started = time.monotonic()
    runtime.stop(spec.session, 1, grace_seconds=int(2 * SECONDS))
    assert time.monotonic() - started < SECONDS
    assert [state.exit_code for state in runtime.containers()] == [0]


def test_stop_does_not_wait_for_the_entry_points_own_sleep(world: DockerWorld, runtime: DockerRuntime) -> None:
    """A shell's child that is told to end before it has become another program forgets that it was told."""
    spec = launch(runtime, make_spec(world.image))
    children = f"/proc/{world.entry_process(spec.session, 1)}/task/{world.entry_process(spec.session, 1)}/children"
    asleep = until(lambda: world.execute(spec.session, 1, f"cat {children}")[1].strip())
    world.execute(spec.session, 1, f"kill -STOP {asleep}")
    runtime.stop(spec.session, 1, grace_seconds=int(2 * SECONDS))
    assert [state.exit_code for state in runtime.containers()] == [0]


def test_threads_that_need_the_network_at_once_make_one(world: DockerWorld, own_network: str) -> None:
    workers = 6
    barrier = threading.Barrier(workers)

    def create(number: int) -> None:
        runtime = DockerRuntime(world.installation, "here", ENGINE_URL, network=own_network)
        spec = make_spec(world.image, attempt=number)
        barrier.wait(SECONDS)
        runtime.create(spec)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(create, range(workers)))
    (network,) = world.client.networks(names=[own_network])
    assert network["Options"]["com.docker.network.bridge.enable_icc"] == "false"


def test_a_network_that_was_removed_is_made_again(world: DockerWorld, own_network: str) -> None:
    runtime = DockerRuntime(world.installation, "here", ENGINE_URL, network=own_network)
    first, second = make_spec(world.image), make_spec(world.image)
    launch(runtime, first)
    runtime.remove(first.session, 1)
    world.client.remove_network(own_network)
    launch(runtime, second)
    assert [state.phase for state in runtime.containers()] == [ContainerPhase.RUNNING]


def test_what_the_engine_refuses_is_explained(world: DockerWorld, runtime: DockerRuntime) -> None:
    with pytest.raises(StartError, match="memory") as refused:
        runtime.create(make_spec(world.image, memory_bytes=1024))
    assert not refused.value.is_host_fault


def test_a_host_without_nvidia_runtime_is_to_blame(world: DockerWorld, runtime: DockerRuntime) -> None:
    gpu = GpuGrant(uuid="GPU-1", share_milli=1000, gpu_milli=1000, memory_bytes=GIB, is_simulated=False)
    spec = make_spec(world.image, gpus=(gpu,))
    with pytest.raises(StartError) as refused:
        launch(runtime, spec)
    assert refused.value.is_host_fault


def test_image_without_shell_ends_with_explaining_log(runtime: DockerRuntime, empty_image: str) -> None:
    stopped = threading.Event()
    exits = runtime.exits(stopped)
    spec = launch(runtime, make_spec(empty_image))
    assert next(exits).exit_code == 127
    stopped.set()
    assert "/bin/sh" in runtime.logs(spec.session, 1, 10)


def test_copied_labels_without_key_are_ignored(world: DockerWorld, runtime: DockerRuntime) -> None:
    world.plant("copied", 1, hand_made_labels(world))
    assert runtime.containers() == []


def test_a_log_with_broken_utf8_is_shown_with_replacements(world: DockerWorld, runtime: DockerRuntime) -> None:
    spec = launch(runtime, make_spec(world.image))
    world.execute(spec.session, 1, r"printf 'a\377b\n' > /proc/1/fd/1")
    until(lambda: "b" in runtime.logs(spec.session, 1, 1).partition("\N{REPLACEMENT CHARACTER}")[2])
    assert runtime.logs(spec.session, 1, 1) == "a\N{REPLACEMENT CHARACTER}b\n"


def test_removing_leaves_nothing_at_the_engine(world: DockerWorld, runtime: DockerRuntime) -> None:
    spec = launch(runtime, make_spec(world.image))
    runtime.remove(spec.session, 1)
    with pytest.raises(NotFound):
        world.inspect(spec.session, 1)


@pytest.mark.parametrize("reference", ["127.0.0.1:1/nothing/here:1", "Not A Name"])
def test_an_image_that_cannot_be_pulled_is_explained(runtime: DockerRuntime, reference: str) -> None:
    told: list[str] = []
    with pytest.raises(ImageUnavailableError, match=f"{reference} could not be pulled: (the registry cannot|this is)"):
        runtime.images.ensure(reference, told.append)


def test_users_variables_are_set_inside_the_container_alone(world: DockerWorld, tmp_path: Path) -> None:
    enforcer = Enforcer(Programs(build=tmp_path, store=tmp_path), tmp_path, sees_files=True)
    runtime = DockerRuntime(world.installation, "here", ENGINE_URL, network=world.network, enforcer=enforcer)
    value = 'it\'s $HOME\n`id` "x" \\'
    spec = launch(runtime, make_spec(world.image, variables={"A": value}, command='echo "$A"; sleep 100'))
    until(lambda: "\\" in runtime.logs(spec.session, 1, 10))
    assert runtime.logs(spec.session, 1, 10).strip() == value
    assert not [each for each in world.inspect(spec.session, 1)["Config"]["Env"] if each.startswith("A=")]
    started = runtime.execute(spec.session, 1, start_command(8000, 'echo "$A"'), {**environment(8000), "HOME": "/tmp"})
    assert started.exit_code == 0
    said = until(lambda: world.execute(spec.session, 1, "cat /tmp/.local/state/gpuplatform/8000.log")[1])
    assert said.strip() == value
    assert (enforcer.folders.path((spec.session, 1))).stat().st_mode & 0o777 == 0o700


def test_programs_count_the_sessions_cpus_and_memory(world: DockerWorld, tmp_path: Path) -> None:
    enforcer = Enforcer(Programs(build=tmp_path, store=tmp_path), tmp_path, sees_files=True)
    runtime = DockerRuntime(world.installation, "here", ENGINE_URL, network=world.network, enforcer=enforcer)
    spec = launch(runtime, make_spec(world.image, cpu=1, memory_bytes=128 * MIB))
    count = "busybox nproc; cat /sys/devices/system/cpu/online; grep -c ^processor /proc/cpuinfo; head -1 /proc/meminfo"
    _, said = world.execute(spec.session, spec.attempt, count)
    cpus, online, processors, memory = said.splitlines()
    assert (cpus, processors) == ("1", "1")
    assert online.isdecimal()
    assert memory.split() == ["MemTotal:", str(128 * 1024), "kB"]
    world.execute(spec.session, spec.attempt, "dd if=/dev/zero of=/dev/shm/full bs=1M count=10")
    (use,) = runtime.uses().values()
    assert use.memory_bytes > 10 * MIB
    assert use.cpu_nanoseconds > 0
    _, said = world.execute(spec.session, spec.attempt, "grep MemFree /proc/meminfo")
    assert int(said.split()[1]) * 1024 < 118 * MIB
    runtime.remove(spec.session, spec.attempt)
    assert runtime.leftover_attempts() == set()
