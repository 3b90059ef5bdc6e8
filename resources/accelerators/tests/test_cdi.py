"""CDI specifications: what of them is lent, what containers then get, and what is refused in words."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from resources.accelerators.devices import ContainerEdits, DeviceMount, DeviceNode
from resources.accelerators.discovery import AcceleratorSource, Found
from resources.accelerators.tests.trees import GIB, device, node, spec


def found(tmp_path: Path, *, engine: frozenset[str] = frozenset()) -> Found:
    kept = tmp_path / "platform"
    kept.mkdir(exist_ok=True)
    source = AcceleratorSource(
        host_name="h", cdi_folders=(tmp_path / "cdi",), protected=(kept,), root=tmp_path / "none"
    )
    return source.find(engine)


def problem(tmp_path: Path, **edits: Any) -> str:
    """Return why a device with these edits is not lent."""
    spec(tmp_path / "cdi", [device("0", **edits)])
    result = found(tmp_path)
    assert not result.accelerators
    (only,) = result.problems
    return only


def test_devices_with_all_that_containers_get(tmp_path: Path) -> None:
    first, second, control = (node(tmp_path, name) for name in ("npu0", "npu1", "npuctl"))
    library = tmp_path / "libnpu.so"
    library.touch()
    mount = {"hostPath": str(library), "containerPath": "/usr/lib/libnpu.so", "options": ["ro", "nosuid", "bind"]}
    common = {"deviceNodes": [{"path": str(control), "permissions": "r"}], "mounts": [mount], "env": ["NPU=all"]}
    devices = [device("0", first, env=["NPU=0"], additionalGids=[109]), device("1", second)]
    spec(tmp_path / "cdi", devices, containerEdits=common)
    one, two = found(tmp_path).accelerators
    assert one.edits == ContainerEdits(
        environment=("NPU=0",),
        nodes=(DeviceNode(str(control), str(control), "r"), DeviceNode(str(first), "/dev/npu0")),
        mounts=(DeviceMount(str(library), "/usr/lib/libnpu.so", is_read_only=True),),
        groups=(109,),
    )
    assert (one.kind, one.model, one.memory_bytes) == ("example.com/npu", "Example NPU", 16 * GIB)
    assert one.uid.startswith("NPU-")
    assert one.uid != two.uid
    assert [each.uid for each in found(tmp_path).accelerators] == [one.uid, two.uid], "it is found again"


@pytest.mark.parametrize(("options", "is_read_only"), [([], True), (["rbind"], True), (["rw"], False)])
def test_mounts_are_read_only_unless_they_say(tmp_path: Path, options: list[str], *, is_read_only: bool) -> None:
    library = tmp_path / "libnpu.so"
    library.touch()
    mount = {"hostPath": str(library), "containerPath": "/usr/lib/libnpu.so", "options": options}
    spec(tmp_path / "cdi", [device("0", node(tmp_path, "npu0"))], containerEdits={"mounts": [mount]})
    (one,) = found(tmp_path).accelerators
    assert [each.is_read_only for each in one.edits.mounts] == [is_read_only]


def test_yaml_and_further_names_of_one_device(tmp_path: Path) -> None:
    first, second = node(tmp_path, "npu0"), node(tmp_path, "npu1")
    (tmp_path / "cdi").mkdir()
    devices = [device("0", first), device("npu-a1", first), device("1", second), device("pair", first, second)]
    path = tmp_path / "cdi/npu.yaml"
    path.write_text("# by hand\n" + json.dumps({"cdiVersion": "1.0.0", "kind": "a.b/npu", "devices": devices}))
    path.chmod(0o644)
    result = found(tmp_path)
    assert [each.cdi_name for each in result.accelerators] == ["a.b/npu=0", "a.b/npu=1"]
    assert "a.b/npu=pair is not lent: it has all of another device" in result.problems[0]


def test_names_of_one_device_in_two_files(tmp_path: Path) -> None:
    first, second = node(tmp_path, "npu0"), node(tmp_path, "npu1")
    spec(tmp_path / "cdi", [device("0", first), device("1", second)], name="a.json")
    spec(tmp_path / "cdi", [device("npu-a1", first), device("1", second)], name="b.json")
    assert [each.name for each in found(tmp_path).accelerators] == ["0", "1"]


def test_the_last_folder_counts_as_for_engines(tmp_path: Path) -> None:
    first, second = node(tmp_path, "npu0"), node(tmp_path, "npu1")
    spec(tmp_path / "etc", [device("0", first)])
    spec(tmp_path / "run", [device("0", second)])
    folders = (tmp_path / "etc", tmp_path / "run")
    result = AcceleratorSource(host_name="h", cdi_folders=folders, root=tmp_path / "none").find()
    assert [each.edits.nodes[0].source for each in result.accelerators] == [str(second)]
    assert "is the same device" in result.problems[0]


def test_nvidias_specification_is_left_to_nvml(tmp_path: Path) -> None:
    spec(tmp_path / "cdi", [device("0", node(tmp_path, "nvidia0"))], kind="nvidia.com/gpu")
    assert found(tmp_path) == Found()


def test_hooks_need_an_engine_that_knows_the_device(tmp_path: Path) -> None:
    hook = {"hookName": "createContainer", "path": "/usr/bin/npu-hook"}
    spec(tmp_path / "cdi", [device("0", node(tmp_path, "npu0"), hooks=[hook])])
    assert "hooks, which the container engine's API cannot apply: Docker 25" in found(tmp_path).problems[0]
    assert found(tmp_path, engine=frozenset({"example.com/npu=0"})).accelerators


@pytest.mark.parametrize(
    "mount",
    [
        *("/", "/proc/1", "/sys/fs/cgroup", "/dev", "/etc", "/run", "/root/.ssh", "/var/run/docker.sock"),
        *("PLATFORM", "PLATFORM/var", "PLATFORM/..", "LINK"),
    ],
)
def test_no_mount_of_what_is_the_hosts_own(tmp_path: Path, mount: str) -> None:
    kept = tmp_path / "platform/var"
    kept.mkdir(parents=True)
    (tmp_path / "link").symlink_to(kept)
    source = os.path.normpath(mount.replace("PLATFORM", str(kept.parent)).replace("LINK", str(tmp_path / "link")))
    mounts = [{"hostPath": source, "containerPath": "/opt/x"}]
    text = problem(tmp_path, mounts=mounts)
    assert "no session gets anything of" in text or "is not there" in text


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ({"mounts": [{"hostPath": "/usr", "containerPath": "/proc/x"}]}, "not its to give"),
        ({"mounts": [{"hostPath": "/usr", "containerPath": "/opt/../etc"}]}, "no absolute path"),
        ({"mounts": [{"hostPath": "/usr", "containerPath": "/opt", "options": ["shared"]}]}, "with the options"),
        ({"mounts": [{"hostPath": "/usr", "containerPath": "/opt", "type": "tmpfs"}]}, "with the options"),
        ({"deviceNodes": [{"path": "/dev/nowhere"}]}, "cannot be used: No such file"),
        ({"deviceNodes": [{"path": "/dev"}]}, "no character device of an accelerator"),
        ({"deviceNodes": [{"path": "/dev/zero", "type": "b"}]}, "no character device of an accelerator"),
        ({"deviceNodes": [{"path": "/dev/zero", "major": 1, "minor": 8}]}, "another minor on the host"),
        ({"deviceNodes": [{"path": "/dev/zero", "fileMode": 0o600}]}, "another fileMode on the host"),
        ({"deviceNodes": [{"path": "/dev/zero", "permissions": "rwx"}]}, "unknown permissions"),
        ({"deviceNodes": {"path": "/dev/zero"}}, "deviceNodes is no list"),
        ({"env": ["LD_PRELOAD=/evil.so"]}, "'LD_PRELOAD=/evil.so' cannot be set"),
        ({"env": ["A=1"] * 257}, "env is no list of at most 256"),
        ({"additionalGids": [0]}, "additional group '0'"),
        ({"additionalGids": [True]}, "additional group 'True'"),
        ({"intelRdt": {"closID": "x"}}, "cannot apply its intelRdt"),
    ],
)
def test_what_cannot_be_applied_is_refused_in_words(tmp_path: Path, edits: dict[str, Any], said: str) -> None:
    text = problem(tmp_path, **edits)
    assert said in text
    assert text.startswith("example.com/npu=0 is not lent: ")


def test_no_node_of_the_hosts_memory(tmp_path: Path) -> None:
    spec(tmp_path / "cdi", [device("0", node(tmp_path, "memory", minor=1, mode=0o600))])
    assert "no character device of an accelerator" in found(tmp_path).problems[0]


def test_a_folder_that_others_may_replace_is_refused(tmp_path: Path) -> None:
    spec(tmp_path / "cdi", [device("0", node(tmp_path, "npu0"))])
    assert found(tmp_path).accelerators
    tmp_path.chmod(0o777)
    (text,) = found(tmp_path).problems
    assert f"put another in its place, by {tmp_path} " in text
    tmp_path.chmod(0o1777)
    assert found(tmp_path).accelerators, "only root may rename what is root's there"
    os.chown(tmp_path, 1000, -1)
    assert not found(tmp_path).accelerators


def test_a_refused_file_lends_nothing(tmp_path: Path) -> None:
    first, second = device("0", node(tmp_path, "npu0")), device("1", node(tmp_path, "npu1"))
    spec(tmp_path / "cdi", [first, {**second, "annotations": []}])
    result = found(tmp_path)
    assert (result.accelerators, len(result.problems)) == ((), 1)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "the specification is no object"),
        ({"cdiVersion": "1.1.0"}, "versions up to 1.0 are understood"),
        ({"cdiVersion": "0.6.0", "kind": "../evil"}, "its kind is '../evil'"),
        ({"cdiVersion": "0.6.0", "kind": "a/b", "devices": [{"name": "a b"}]}, "a device has no name"),
        ({"cdiVersion": "0.6.0", "kind": "a/b", "devices": [{"name": "0"}, {"name": "0"}]}, "two of its devices"),
        ({"cdiVersion": "0.6.0", "kind": "a/b", "devices": [{"name": str(n)} for n in range(300)]}, "at most 256"),
    ],
)
def test_a_malformed_specification_is_a_sentence(tmp_path: Path, document: object, said: str) -> None:
    path = spec(tmp_path / "cdi", [])
    path.write_text(json.dumps(document))
    (only,) = found(tmp_path).problems
    assert said in only


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "a: &a [1]\nb: *a\n", "\t\0", "- " * 50_000, "x: " + "y" * 600_000, "!!python/object:os.x {}"],
)
def test_hostile_yaml_costs_nothing(tmp_path: Path, text: str) -> None:
    path = spec(tmp_path / "cdi", [], name="npu.yaml")
    path.write_text(text)
    (only,) = found(tmp_path).problems
    assert only.startswith(f"{path} is not used: ")


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = spec(tmp_path / "cdi", [device("0", node(tmp_path, "npu0"))])
    path.chmod(0o664)
    assert "others than root may change it" in found(tmp_path).problems[0]
    path.chmod(0o644)
    os.chown(path, 1000, -1)
    assert "others than root may change it" in found(tmp_path).problems[0]
    os.chown(path, 0, -1)
    assert found(tmp_path).accelerators
    path.parent.chmod(0o777)
    assert "others than root may change it" in found(tmp_path).problems[0]
    path.parent.chmod(0o755)
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    assert "Too many levels of symbolic links" in found(tmp_path).problems[0]
    path.unlink()
    os.mkfifo(path)
    assert "no regular file" in found(tmp_path).problems[0]


def test_values_of_two_devices_are_joined(tmp_path: Path) -> None:
    one = ContainerEdits(environment=("A=1", "B=1"), nodes=(DeviceNode("/x", "/x"),), groups=(5, 4))
    other = ContainerEdits(environment=("B=2",), nodes=(DeviceNode("/x", "/x"), DeviceNode("/y", "/y")), groups=(4,))
    both = one + other
    assert (both.environment, both.groups) == (("A=1", "B=2"), (4, 5))
    assert [each.target for each in both.nodes] == ["/x", "/y"]
