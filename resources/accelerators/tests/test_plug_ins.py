"""Plug-ins: the example of docs/hosts.md, installed as packages are, and one that misbehaves."""

import re
import sys
from pathlib import Path

import pytest

from resources.accelerators.discovery import PROBLEM_LENGTH, AcceleratorSource
from resources.accelerators.kinds import kind_name, kind_problem, kinds_of_image
from resources.accelerators.tests.trees import GIB, write

PAGE = Path(__file__).parents[3] / "docs/hosts.md"
CARELESS = """
from resources.accelerators.devices import Accelerator

def find(root):
    return [Accelerator(kind="a/b", name=None, model=7)]
"""
GARBLED = """
from resources.accelerators.devices import Accelerator

def find(root):
    return [Accelerator(kind="a/b", name="0", model="x", uid="X-0", problem="it says \\0\\n\\udcff" + "!" * 5000)]
"""
HOSTILE = """
def find(root):
    raise RuntimeError("no\\nsuch card" + "!" * 500)
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: str) -> None:
    """Put a package with an entry point on the path."""
    metadata = f"{name}-1.dist-info"
    write(
        folder,
        {
            f"{name}.py": code,
            f"{metadata}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1",
            f"{metadata}/entry_points.txt": f"[gpuplatform.accelerators]\n{name} = {name}:find",
        },
    )
    if str(folder) not in sys.path:
        monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)


def test_the_example_of_the_page_finds_its_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = re.search(r"(?m)(?:^    .*\n|^\n)*^    def find\(root.*\n(?:^    .*\n|^\n)*", PAGE.read_text())
    assert example
    code = "\n".join(line.removeprefix("    ") for line in example[0].splitlines())
    install(tmp_path / "packages", monkeypatch, "lab_npu", code)
    root = write(tmp_path / "root", {"sys/class/npu/npu0/serial": "A17", "sys/class/npu/npu0/memory_bytes": 8 * GIB})
    write(root, {"sys/class/npu/npu0/health": "ok", "sys/class/npu/npu1/health": "over temperature"})
    result = AcceleratorSource(host_name="h", root=root).find()
    assert [(each.uid, each.memory_bytes) for each in result.accelerators] == [("NPU-A17", 8 * GIB)]
    assert result.problems == ("example.com/npu=npu1 is not lent: its driver says over temperature.",)


def test_a_plug_in_that_fails_takes_no_other_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "hostile", HOSTILE)
    install(tmp_path, monkeypatch, "missing", "")
    install(tmp_path, monkeypatch, "careless", CARELESS)
    result = AcceleratorSource(host_name="h", root=tmp_path / "none").find()
    assert not result.accelerators
    careless, failed, missing = sorted(result.problems)
    assert careless == "An accelerator is left out: its finder gives it values of other types."
    assert failed.startswith("The finder hostile fails: RuntimeError: no such card!")
    assert len(failed) < 200
    assert missing.startswith("The plug-in missing cannot be loaded: ")


def test_a_problem_can_be_stored_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "garbled", GARBLED)
    result = AcceleratorSource(host_name="h", root=tmp_path / "none").find()
    assert result.faults["X-0"].startswith("it says    !!!")
    assert result.problems == (f"a/b=0 is not lent: {result.faults['X-0']}.",)
    assert len(result.faults["X-0"]) == PROBLEM_LENGTH


def test_kinds_have_names_that_people_know() -> None:
    kinds = ("nvidia.com/gpu", "amd.com/gpu", "intel.com/gpu", "intel.com/gaudi", "example.com/npu")
    assert [kind_name(kind) for kind in kinds] == ["GPU", "AMD GPU", "Intel GPU", "Gaudi", "NPU"]


@pytest.mark.parametrize(
    "kind", ["gpu", "a/b/c", "/gpu", "amd.com/", "-a/b", "amd.com/g pu", f"{'a' * 62}/gpu", "a/b\n"]
)
def test_malformed_kinds(kind: str) -> None:
    assert kind_problem(kind).startswith("Write vendor/class")


def test_images_name_kinds_by_their_toolkits() -> None:
    assert kinds_of_image("cuda, ROCm") == {"nvidia.com/gpu", "amd.com/gpu"}
    assert kinds_of_image("example.com/npu") == {"example.com/npu"}
    assert kinds_of_image("tensor cores") == frozenset()
