"""Which devices the engine is asked for: those of the lease by UUID, whatever the session's environment says."""

from pathlib import Path

from hostworker.runtime.base import ContainerSpec, FolderMount, GpuGrant
from hostworker.runtime.container_config import container_config
from hostworker.runtime.tests.runtime_worlds import make_spec
from resources.tiers import Tier
from resources.units import GIB


def grant(number: int, is_simulated: bool) -> GpuGrant:
    uuid = f"GPU-00000000-0000-4000-8000-00000000000{number}"
    return GpuGrant(
        uuid=uuid, share_milli=500, gpu_milli=2000, memory_bytes=8 * GIB, is_simulated=is_simulated, tier=Tier.HOOK
    )


def asked_of_the_engine(spec: ContainerSpec) -> tuple[object, set[str]]:
    """Return the device requests and the environment of the container."""
    config = container_config(spec, {}, "gpuplatform")
    host, environment = config["HostConfig"], config["Env"]
    assert isinstance(host, dict)
    assert isinstance(environment, list)
    return host["DeviceRequests"], set(environment)


def test_only_granted_real_devices_are_visible() -> None:
    one, other = grant(1, is_simulated=False), grant(2, is_simulated=False)
    spec = make_spec("any", gpus=(one, other), environment={"NVIDIA_VISIBLE_DEVICES": "all"})
    requests, environment = asked_of_the_engine(spec)
    assert requests == [
        {"Driver": "nvidia", "DeviceIDs": [one.uuid, other.uuid], "Capabilities": [["gpu", "compute", "utility"]]}
    ]
    assert f"NVIDIA_VISIBLE_DEVICES={one.uuid},{other.uuid}" in environment


def test_nothing_is_preloaded_into_the_hooks_of_the_engine() -> None:
    """An image may set these; the engine's hooks on the host would obey them, as root."""
    _, environment = asked_of_the_engine(make_spec("any", environment={"LD_PRELOAD": "/x.so", "LD_AUDIT": "/y.so"}))
    assert {"LD_PRELOAD=", "LD_AUDIT="} <= environment
    assert not [each for each in environment if each.endswith(".so")]


def test_folders_are_private_mounts() -> None:
    folders = (FolderMount(source=Path("/roots/1/a/files"), target="/home/work/data", is_read_only=True),)
    host = container_config(make_spec("any", folders=folders), {}, "gpuplatform")["HostConfig"]
    assert isinstance(host, dict)
    assert host["Mounts"] == [
        {
            "Type": "bind",
            "Source": "/roots/1/a/files",
            "Target": "/home/work/data",
            "ReadOnly": True,
            "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
        }
    ]


def test_no_device_request_without_real_devices() -> None:
    for gpus in ((grant(1, is_simulated=True),), ()):
        spec = make_spec("any", gpus=gpus, environment={"NVIDIA_VISIBLE_DEVICES": "all"})
        requests, environment = asked_of_the_engine(spec)
        assert requests == []
        assert "NVIDIA_VISIBLE_DEVICES=void" in environment
