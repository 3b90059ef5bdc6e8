"""Accelerators that a CDI file tells of, in real containers: each has its own devices, and none of its neighbour's.

The devices are nodes of the kernel's that no container may open by default, and that do nothing when opened.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hostworker.enforcement.enforcer import Enforcer
from hostworker.enforcement.programs import Programs
from hostworker.runtime.docker.runtime import DockerRuntime
from hostworker.runtime.tests.runtime_worlds import ENGINE_URL, MIB, DockerWorld, launch, make_spec, tiny_world
from hostworker.runtime_protocol import ContainerSpec, FolderMount, GpuGrant, StartError
from resources.accelerators.discovery import AcceleratorSource
from resources.accelerators.tests.trees import GIB, device, node, spec
from resources.gpus.tiers import Tier

pytestmark = pytest.mark.docker
FUSE, AUTOFS = (10, 229), (10, 235)
world = pytest.fixture(scope="module")(tiny_world)


@pytest.fixture
def source(tmp_path: Path) -> AcceleratorSource:
    """Two devices of example.com/npu, whose nodes are in a folder of their own."""
    nodes = tmp_path / "nodes"
    nodes.mkdir()
    library = tmp_path / "libnpu.so"
    library.write_text("library")
    devices = [
        device(str(number), node(nodes, f"npu{number}", major=major, minor=minor), env=[f"NPU_DEVICE={number}"])
        for number, (major, minor) in enumerate((FUSE, AUTOFS))
    ]
    mount = {"hostPath": str(library), "containerPath": "/usr/lib/libnpu.so", "options": ["ro"]}
    spec(tmp_path / "cdi", devices, containerEdits={"mounts": [mount], "additionalGids": [4242]})
    return AcceleratorSource(host_name="here", cdi_folders=(tmp_path / "cdi",), root=tmp_path / "none")


@pytest.fixture
def runtime(world: DockerWorld, source: AcceleratorSource, tmp_path: Path) -> Iterator[DockerRuntime]:
    enforcer = Enforcer(Programs(build=tmp_path, store=tmp_path), tmp_path / "host", accelerators=source)
    yield DockerRuntime(world.installation, "here", ENGINE_URL, network=world.network, enforcer=enforcer)
    world.empty()


def holding(source: AcceleratorSource, world: DockerWorld, tmp_path: Path, number: int) -> ContainerSpec:
    """Return a container that holds the device with this number, and sees the nodes of all in a folder."""
    uid = source.find().accelerators[number].uid
    grant = GpuGrant(
        uuid=uid,
        share_milli=1000,
        gpu_milli=1000,
        memory_bytes=16 * GIB,
        is_simulated=False,
        tier=Tier.WHOLE,
        kind="example.com/npu",
    )
    return make_spec(world.image, gpus=(grant,), folders=(FolderMount(source=tmp_path / "nodes", target="/nodes"),))


def opened(world: DockerWorld, container: ContainerSpec) -> list[str]:
    """Return which of the nodes the container can open, its own and those of the folder."""
    command = "for each in /dev/npu* /nodes/*; do (: < $each) 2>/dev/null && echo $each; done"
    return world.execute(container.session, container.attempt, command)[1].split()


def test_each_container_has_its_own_device_alone(
    runtime: DockerRuntime, world: DockerWorld, source: AcceleratorSource, tmp_path: Path
) -> None:
    for number in (0, 1):
        mine = launch(runtime, holding(source, world, tmp_path, number))
        own = [f"/dev/npu{number}", f"/nodes/npu{number}"]
        assert opened(world, mine) == own, "the engine gives its node, and the kernel refuses the other one"
        said = world.execute(
            mine.session, 1, "cat /usr/lib/libnpu.so; echo; echo $NPU_DEVICE; id -G; touch /usr/lib/libnpu.so"
        )
        library, variable, groups, error = said[1].splitlines()
        assert (library, variable, error.rpartition(" ")[2]) == ("library", str(number), "system")
        assert "4242" in groups.split()
        runtime.resizer.resize(replace(mine, cpu=2, memory_bytes=128 * MIB), mine)
        assert opened(world, mine) == own, "after a resize"
        runtime.stop(mine.session, 1, 0)
        runtime.saved_containers.save(mine.session, 1)
        image = runtime.saved_containers.reference(mine.session, 1)
        assert image
        again = launch(runtime, replace(mine, attempt=2, image=image))
        assert opened(world, again) == own, "after it was parked"
        runtime.remove(mine.session, 2)
        runtime.saved_containers.discard(mine.session, 1)


def test_a_container_without_a_device_opens_none(
    runtime: DockerRuntime, world: DockerWorld, source: AcceleratorSource, tmp_path: Path
) -> None:
    none = launch(runtime, replace(holding(source, world, tmp_path, 0), gpus=()))
    assert opened(world, none) == []


def test_a_device_that_is_gone_is_said(
    runtime: DockerRuntime, world: DockerWorld, source: AcceleratorSource, tmp_path: Path
) -> None:
    lost = holding(source, world, tmp_path, 0)
    (tmp_path / "nodes/npu0").unlink()
    with pytest.raises(StartError, match=r"does not have the device NPU-[0-9a-f-]+ any more\.$"):
        runtime.create(lost)
