"""Resizer of hostworker/runtime_protocol.py, for each implementation alike; and what the kernel then holds."""

from dataclasses import replace

import pytest

from hostworker.runtime.tests.runtime_worlds import (
    MIB,
    DockerWorld,
    World,
    cgroup_value,
    launch,
    make_spec,
    new_session,
)
from hostworker.runtime_protocol import ContainerSpec, ResizeError


def kernel_limits(world: DockerWorld, spec: ContainerSpec) -> tuple[int, float]:
    """Return the bytes and cores that the container's cgroup allows."""

    def read(v1: str, v2: str) -> str:
        return world.execute(spec.session, spec.attempt, cgroup_value(v1, v2))[1].strip()

    memory = int(read("memory/memory.limit_in_bytes", "memory.max"))
    quota = read("cpu/cpu.cfs_quota_us", "cpu.max").split()[0]
    return memory, int(quota) / 100_000


def test_a_running_container_grows_and_shrinks(world: World) -> None:
    runtime = world.runtime()
    spec = launch(runtime, make_spec(world.image))
    for cpu, memory in ((2, 256 * MIB), (2, 256 * MIB), (1, 96 * MIB)):
        wanted = replace(spec, cpu=cpu, memory_bytes=memory)
        runtime.resizer.resize(wanted, spec)
        if isinstance(world, DockerWorld):
            assert kernel_limits(world, spec) == (memory, cpu)
            assert world.inspect(spec.session, 1)["HostConfig"]["CpuShares"] == 1024 * cpu
    assert runtime.uses()[spec.session, 1].memory_bytes < 96 * MIB
    if isinstance(world, DockerWorld):
        held = replace(spec, memory_bytes=96 * MIB)
        filled = "dd if=/dev/zero of=/dev/shm/full bs=1M count=14"
        assert world.execute(spec.session, spec.attempt, filled)[0] == 0
        runtime.resizer.resize(replace(spec, memory_bytes=128 * MIB), held)  # by a worker that then dies
        with pytest.raises(ResizeError, match="of memory, too much for 24 MiB"):
            runtime.resizer.resize(replace(spec, memory_bytes=24 * MIB), held)
        with pytest.raises(ResizeError, match="refused"):
            runtime.resizer.resize(replace(spec, cpu=10_000, memory_bytes=128 * MIB), held)
        assert kernel_limits(world, spec) == (96 * MIB, 1)
    runtime.stop(spec.session, spec.attempt, 0)
    with pytest.raises(ResizeError, match="does not run"):
        runtime.resizer.resize(spec, spec)


def test_a_container_that_is_not_there_is_refused(world: World) -> None:
    with pytest.raises(ResizeError, match="does not run"):
        world.runtime().resizer.resize(*[make_spec(world.image, session=new_session())] * 2)
