"""Which devices the engine is asked for: those of the lease by UUID, whatever the session's environment says."""

from pathlib import Path
from typing import Any

from hostworker.runtime.container_config import NO_ENFORCEMENT, container_config, without_quota
from hostworker.runtime.gpu_access import LEGACY, GpuAccess, runs_hooks
from hostworker.runtime.tests.runtime_worlds import make_spec
from hostworker.runtime_protocol import ContainerSpec, EnforcementSetup, FolderMount, GpuGrant
from resources.accelerators.devices import ContainerEdits
from resources.amounts.units import GIB
from resources.gpus.tiers import Tier


def grant(number: int, is_simulated: bool) -> GpuGrant:
    uuid = f"GPU-00000000-0000-4000-8000-00000000000{number}"
    return GpuGrant(
        uuid=uuid, share_milli=500, gpu_milli=2000, memory_bytes=8 * GIB, is_simulated=is_simulated, tier=Tier.HOOK
    )


def asked_of_the_engine(
    spec: ContainerSpec, setup: EnforcementSetup = NO_ENFORCEMENT, access: GpuAccess = LEGACY
) -> tuple[object, set[str]]:
    """Return the device requests and the environment of the container."""
    config = container_config(spec, {}, "gpuplatform", setup, access)
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


def test_with_cdi_the_engine_alone_adds_devices() -> None:
    one = grant(1, is_simulated=False)
    requests, environment = asked_of_the_engine(make_spec("any", gpus=(one,)), access=GpuAccess(uses_cdi=True))
    assert requests == [{"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={one.uuid}"]}]
    assert "NVIDIA_VISIBLE_DEVICES=void" in environment


def test_nodes_are_named_to_the_engine_beside_a_legacy_request() -> None:
    spec = make_spec("any", gpus=(grant(1, is_simulated=False),))
    access = GpuAccess(device_nodes=("/dev/nvidiactl", "/dev/nvidia3"))
    host = container_config(spec, {}, "gpuplatform", access=access)["HostConfig"]
    assert isinstance(host, dict)
    assert [(node["PathOnHost"], node["CgroupPermissions"]) for node in host["Devices"]] == [
        ("/dev/nvidiactl", "rw"),
        ("/dev/nvidia3", "rw"),
    ]
    assert host["DeviceRequests"][0]["Driver"] == "nvidia"


def test_variables_set_by_file_never_reach_engine_hooks() -> None:
    """A hook, run as root on the host, loads what LD_LIBRARY_PATH or XDG_CONFIG_HOME name."""
    spec = make_spec("any", environment={"OMP_NUM_THREADS": "2"}, variables={"XDG_CONFIG_HOME": "/proc/self/cwd"})
    _, environment = asked_of_the_engine(spec, EnforcementSetup(sets_variables=True, withheld=("LD_LIBRARY_PATH",)))
    assert {"OMP_NUM_THREADS=2", "LD_LIBRARY_PATH="} <= environment
    assert not [each for each in environment if "XDG_CONFIG_HOME" in each]
    _, environment = asked_of_the_engine(spec)  # where the engine is on another machine
    assert "XDG_CONFIG_HOME=/proc/self/cwd" in environment


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


def test_no_vendors_runtime_is_asked_for_devices() -> None:
    """Whatever image or user say: "void" and nothing are all devices to Habana's."""
    asked = {"NVIDIA_VISIBLE_DEVICES": "all", "AMD_VISIBLE_DEVICES": "all", "HABANA_VISIBLE_DEVICES": "void"}
    access = GpuAccess(edits=ContainerEdits(environment=("HABANA_VISIBLE_DEVICES=all",)))
    _, environment = asked_of_the_engine(make_spec("any", environment=asked, variables=asked), access=access)
    assert {each for each in environment if "_VISIBLE_DEVICES=" in each} == {
        "NVIDIA_VISIBLE_DEVICES=void",
        "AMD_VISIBLE_DEVICES=none",
        "HABANA_VISIBLE_DEVICES=none",
    }


def test_images_are_inspected_where_hooks_may_run() -> None:
    assert not any(map(runs_hooks, ({}, {"DefaultRuntime": "runc"}, {"DefaultRuntime": "io.containerd.runc.v2"})))
    assert all(runs_hooks({"DefaultRuntime": name}) for name in ("nvidia", "amd", "habana"))


def test_the_engine_bounds_what_is_written_where_it_can() -> None:
    spec = make_spec("any", disk_bytes=5 * GIB)
    bounded = container_config(spec, {}, "gpuplatform", has_quotas=True)
    assert bounded["HostConfig"]["StorageOpt"] == {"size": str(5 * GIB)}  # type: ignore[index]  # of a JSON object
    watched = container_config(spec, {}, "gpuplatform")
    assert watched == without_quota(bounded)
    assert "StorageOpt" not in watched["HostConfig"]  # type: ignore[operator]  # of a JSON object
    unlimited = container_config(make_spec("any"), {}, "gpuplatform", has_quotas=True)
    assert "StorageOpt" not in unlimited["HostConfig"]  # type: ignore[operator]  # of a JSON object


def test_limits_of_the_user_are_lifted_where_the_engine_can() -> None:
    core = {"Name": "core", "Soft": 0, "Hard": 0}
    for lifts in (False, True):
        config: dict[str, Any] = container_config(make_spec("image"), {}, "net", lifts_limits=lifts)
        signals = {"Name": "sigpending", "Soft": -1, "Hard": -1}
        assert core in config["HostConfig"]["Ulimits"]
        assert (signals in config["HostConfig"]["Ulimits"]) == lifts
