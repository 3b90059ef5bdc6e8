"""What doctor says of real GPUs; driver, engine and /dev are played by stand-ins."""

import fcntl
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from pytest_django import Settings

from hostworker.enforcement.arbiter import Arbiter
from hostworker.enforcement.arbiter_folder import ArbiterFolder
from hostworker.enforcement.enforcer import Enforcer
from hostworker.enforcement.programs import Programs
from hostworker.runtime import gpu_access
from operations.doctor import driver_gpus as gpus
from operations.doctor import gpus as doctor_gpus
from operations.doctor.driver_gpus import FoundGpu
from operations.doctor.findings import Verdict
from resources.accelerators.devices import Accelerator
from resources.accelerators.discovery import NOTHING, Found
from tests.factories import make_gpu, make_group, make_host

UUID = "GPU-00000000-0000-4000-8000-000000000001"
CDI = {"DiscoveredDevices": [{"Source": "cdi", "ID": f"nvidia.com/gpu={UUID}"}]}


class Engine:
    """An engine that says this of itself."""

    def __init__(self, info: dict[str, Any]) -> None:
        self._info = info

    def info(self) -> dict[str, Any]:
        return self._info

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """One NVIDIA GPU, and the folder that stands for /dev."""
    monkeypatch.setattr(gpus, "find", lambda: [FoundGpu(UUID, "NVIDIA H100", 0, True)])
    monkeypatch.setattr(doctor_gpus, "DEV", tmp_path)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    return tmp_path


class Nvml:
    """NVIDIA's library with one GPU; `broken` is the call that fails, and with which error."""

    def __init__(self, broken: str = "", error: int = pynvml.NVML_ERROR_GPU_IS_LOST) -> None:
        self._broken, self._error = broken, error
        self.is_open = False

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answers = {
            "nvmlInit": lambda: setattr(self, "is_open", True),
            "nvmlShutdown": lambda: setattr(self, "is_open", False),
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
            "nvmlDeviceGetName": lambda handle: f"NVIDIA H{handle}00",
            "nvmlDeviceGetMinorNumber": lambda handle: handle + 3,
            "nvmlDeviceGetPersistenceMode": lambda handle: handle,
        }
        for name, answer in answers.items():
            monkeypatch.setattr(pynvml, name, self._fail if name == self._broken else answer)

    def _fail(self, *asked: object) -> None:
        raise pynvml.NVMLError(self._error)


def test_doctor_names_what_the_driver_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    (nvml := Nvml()).install(monkeypatch)
    assert gpus.find() == [
        FoundGpu("GPU-0", "NVIDIA H000", 3, is_persistent=False),
        FoundGpu("GPU-1", "NVIDIA H100", 4, is_persistent=True),
    ]
    assert not nvml.is_open
    assert gpus.problem() == ""
    finding = doctor_gpus.models()
    assert (finding.verdict, finding.text) == (Verdict.OK, "2 by NVML: NVIDIA H000, NVIDIA H100")


@pytest.mark.parametrize(
    ("broken", "error", "words"),
    [
        ("nvmlInit", pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "does not answer: RM has detected"),
        ("nvmlInit", pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "does not answer: Driver Not Loaded"),
        ("nvmlDeviceGetUUID", pynvml.NVML_ERROR_GPU_IS_LOST, "does not answer: GPU is lost"),
        ("nvmlInit", pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA GPU here"),
    ],
)
def test_a_broken_driver_is_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, broken: str, error: int, words: str
) -> None:
    settings.COMPUTE_SIMULATED_GPUS = ""
    monkeypatch.setattr(doctor_gpus, "find_accelerators", lambda: NOTHING)
    (nvml := Nvml(broken, error)).install(monkeypatch)
    finding = doctor_gpus.models()
    assert (finding.verdict, words in finding.text) == (Verdict.WARN, True), finding
    assert (finding.hint == doctor_gpus.RELOAD) == ("answer" in words)
    assert (gpus.find(), nvml.is_open) == ([], False)


@pytest.mark.parametrize(
    ("simulated", "text"),
    [
        ("2x8GiB nvlink=4 numa=0,1x8GiB numa=1", "1 x NV4, 2 x SYS; NUMA nodes 0, 1"),
        ("2x8GiB", "not available: a session with several GPUs gets the first ones that are free"),
        ("1x8GiB", "fewer than two GPUs"),
        ("garbage", "fewer than two GPUs"),
    ],
)
def test_doctor_says_how_gpus_are_connected(settings: Settings, simulated: str, text: str) -> None:
    settings.COMPUTE_SIMULATED_GPUS = simulated
    finding = doctor_gpus.connections()
    assert (finding.verdict, finding.text) == (Verdict.OK, text)


@pytest.mark.parametrize(
    ("info", "has_toolkit", "verdict", "words"),
    [
        (CDI, False, Verdict.OK, "by CDI"),
        ({"CgroupDriver": "cgroupfs"}, True, Verdict.OK, "legacy request; the engine does not know them by CDI"),
        ({"CgroupDriver": "cgroupfs", "Runtimes": {"nvidia": {}}}, False, Verdict.OK, "legacy request"),
        ({"CgroupDriver": "cgroupfs", "Runtimes": {"runc": {}}}, False, Verdict.FAIL, "toolkit is not found"),
        ({"CgroupDriver": "systemd"}, True, Verdict.WARN, "daemon-reload takes them away"),
    ],
)
def test_doctor_says_how_containers_get_gpus(
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    info: dict[str, Any],
    has_toolkit: bool,
    verdict: Verdict,
    words: str,
) -> None:
    monkeypatch.setattr(doctor_gpus, "docker_client", lambda: Engine(info))
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/it" if has_toolkit else None)
    monkeypatch.setattr(gpu_access, "_nodes", lambda uuids: ["null"])  # there on every machine, for a device node
    finding = doctor_gpus.access()
    assert (finding.verdict, words in finding.text) == (verdict, True), finding


def test_links_by_which_systemd_finds_devices_are_enough(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Path("/dev/null").stat().st_rdev
    (machine / "char").mkdir()
    (machine / "char" / f"{os.major(device)}:{os.minor(device)}").touch()
    monkeypatch.setattr(doctor_gpus, "docker_client", lambda: Engine({"CgroupDriver": "systemd"}))
    monkeypatch.setattr(gpu_access, "_nodes", lambda uuids: ["null"])
    assert doctor_gpus.access().verdict is Verdict.OK
    assert not doctor_gpus._has_link(machine / "gone")


def test_missing_nodes_and_an_unloaded_driver_are_reported(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "nvidiactl is missing" in doctor_gpus.nodes().text
    for name in ("nvidiactl", "nvidia-uvm", "nvidia0"):
        (machine / name).touch()
    assert doctor_gpus.nodes().verdict is Verdict.OK
    monkeypatch.setattr(gpus, "find", lambda: [FoundGpu(UUID, "NVIDIA H100", 0, False)])
    assert "nvidia-persistenced" in doctor_gpus.nodes().hint


def test_real_gpus_are_asked_how_they_are_connected(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    settings.COMPUTE_SIMULATED_GPUS = "4x8GiB nvlink=4"
    monkeypatch.setattr(gpus, "names", lambda: ["one", "two"])
    monkeypatch.setattr(doctor_gpus, "nvml_topology", lambda indexes: {range(2): None}[indexes])
    assert "not available" in doctor_gpus.connections().text


@pytest.mark.django_db
def test_doctor_names_the_tiers_of_this_host_alone(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr(doctor_gpus, "get_enforcer", lambda: SimpleNamespace(problem=lambda: ""))
    host = make_host(name="test-host")
    assert doctor_gpus.division(is_database_there=False).text == "the hook is built"
    assert doctor_gpus.division(is_database_there=True).text.endswith("tiers: no GPU registered yet")
    for tier in ("whole", "hook", "hook"):
        make_gpu(host=host, tier=tier)
    make_gpu(host=host, tier="mig", is_present=False)
    make_gpu(tier="mig")
    assert doctor_gpus.division(is_database_there=True).text.endswith("tiers: hook, whole")


def test_without_nvidia_gpus_there_is_nothing_to_find_fault_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "find", list)
    assert doctor_gpus.access().verdict is doctor_gpus.nodes().verdict is Verdict.OK


def test_doctor_knows_whether_an_arbiter_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    programs = Programs(build=tmp_path, store=tmp_path)
    arbiter = Arbiter(programs, ArbiterFolder(tmp_path / "arbiter"))
    monkeypatch.setattr(doctor_gpus, "get_enforcer", lambda: Enforcer(programs, tmp_path, arbiter=arbiter))
    assert doctor_gpus.turns().verdict is Verdict.OK
    arbiter.folder.prepare(("session", 1), "")
    assert "the arbiter does not run" in doctor_gpus.turns().text
    assert doctor_gpus.turns().hint.endswith(f"{tmp_path}/arbiter/log")
    with (arbiter.folder.root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("pid=7 build=x\n")
        lock.flush()
        assert "by the arbiter, pid 7" in doctor_gpus.turns().text


@pytest.mark.django_db
def test_doctor_names_accelerators_and_why_some_are_not_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    npu = Accelerator(kind="example.com/npu", name="0", model="Example NPU", uid="NPU-1")
    found = Found((npu,), ("example.com/npu=1 is not lent: its driver says no.",))
    monkeypatch.setattr(doctor_gpus, "find_accelerators", lambda: found)
    told = doctor_gpus.accelerators(is_database_there=False)
    assert told.text == "1 x example.com/npu (Example NPU). example.com/npu=1 is not lent: its driver says no."
    make_host(name="test-host", group=make_group(name="lab"))
    assert "its group lab lends nvidia.com/gpu" in doctor_gpus.accelerators(is_database_there=True).text
    monkeypatch.setattr(doctor_gpus, "find_accelerators", lambda: NOTHING)
    assert doctor_gpus.accelerators(is_database_there=True).verdict is Verdict.OK


def test_doctor_misses_no_nvidia_gpu_beside_other_accelerators(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.COMPUTE_SIMULATED_GPUS = ""
    Nvml("nvmlInit", pynvml.NVML_ERROR_LIBRARY_NOT_FOUND).install(monkeypatch)
    amd = Accelerator(kind="amd.com/gpu", name="0", model="AMD Instinct MI300X", uid="AMD-1")
    monkeypatch.setattr(doctor_gpus, "find_accelerators", lambda: Found((amd,), ()))
    finding = doctor_gpus.models()
    assert (finding.verdict, finding.text, finding.hint) == (Verdict.OK, doctor_gpus.NO_GPU, "")
