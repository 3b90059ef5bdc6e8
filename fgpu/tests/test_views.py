"""Programs and nvidia-smi are shown the share, its use, and the session's own processes."""

from __future__ import annotations

import pytest

from fgpu.tests.host import GIB, MIB, UUIDS, Host, limit

NOT_SUPPORTED = "3"  # NVML's code


def test_cuda_shows_the_share_as_the_total(host: Host) -> None:
    with host.session().probe() as probe:
        assert probe.ask("total 0") == ["0", str(2 * GIB)]
        assert probe.ask("info") == ["0", str(2 * GIB), str(2 * GIB)]


def test_a_limit_larger_than_the_card_shows_the_card(host: Host) -> None:
    with host.session(limit(memory=80 * GIB)).probe() as probe:
        assert probe.ask("total 0") == ["0", str(8 * GIB)]
        assert probe.ask("info") == ["0", str(8 * GIB), str(8 * GIB)]


def test_nvml_shows_the_share_and_the_sessions_processes(host: Host) -> None:
    session = host.session()
    with host.session().probe() as stranger, session.probe() as first, session.probe() as second:
        assert stranger.alloc(GIB) == 0
        assert first.alloc(512 * MIB) == 0
        assert second.alloc(256 * MIB) == 0
        words = first.ask("nvml")
        assert words[:6] == ["0", str(2 * GIB), str(768 * MIB)] * 2
        assert words[6] == "0"
        assert set(words[7:]) == {f"{first.pid}:{512 * MIB}", f"{second.pid}:{256 * MIB}"}


@pytest.mark.parametrize(("version", "form"), [("", 1), ("_v2", 2), ("_v3", 2)])
def test_every_list_of_processes_has_the_sessions_own_alone(host: Host, version: str, form: int) -> None:
    with host.session().probe() as stranger, host.session().probe() as probe:
        assert stranger.alloc(GIB) == 0
        assert probe.alloc(MIB) == 0
        assert probe.ask(f"listed nvmlDeviceGetComputeRunningProcesses{version} {form}") == [
            "0",
            "1",
            f"{probe.pid}:{MIB}",
        ]
        for kind in ("Graphics", "MPSCompute"):
            name = f"nvmlDeviceGet{kind}RunningProcesses{version}"
            assert probe.ask(f"lookup nvml {name}")[0] == "hook"
            assert probe.ask(f"listed {name} {form}")[:2] == ["0", "0"]


@pytest.mark.parametrize(
    "name", ["ProcessUtilization", "ProcessesUtilizationInfo", "RunningProcessDetailList", "Samples"]
)
def test_what_the_driver_knows_of_other_tenants_is_withheld(host: Host, name: str) -> None:
    with host.session().probe() as probe:
        assert probe.ask(f"lookup nvml nvmlDeviceGet{name}")[0] == "hook"
        assert probe.ask(f"listed nvmlDeviceGet{name} 2")[0] == NOT_SUPPORTED


def test_a_gpu_that_is_not_gated_shows_the_drivers_utilisation(host: Host) -> None:
    clock = {"FGPU_SIM_CLOCK": "virtual"}
    session = host.session(limit(sm="100"))
    session.run("test/load", "async", "1000", "2000", **clock)
    query = ("sim/nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
    assert int(session.run(*query, **clock)) == int(host.bare().run(*query, **clock)) > 90


def test_nvidia_smi_shows_the_share(host: Host) -> None:
    session = host.session()
    with session.probe() as probe:
        assert probe.alloc(512 * MIB) == 0
        table = session.run("sim/nvidia-smi")
        assert "512MiB / 2048MiB" in table
        assert str(probe.pid) in table
        assert "SIMULATED" in table
    assert "0MiB / 8192MiB" in host.bare().run("sim/nvidia-smi")


def test_nvidia_smi_answers_queries(host: Host) -> None:
    host.configure(gpus=2)
    session = host.session(limit(UUIDS[0]), limit(UUIDS[1], memory=GIB))
    query = "--query-gpu=index,uuid,name,memory.total,memory.used,utilization.gpu"
    assert session.run("sim/nvidia-smi", query, "--format=csv,noheader,nounits").splitlines() == [
        f"0, {UUIDS[0]}, Simulated GPU 8 GiB, 2048, 0, 0",
        f"1, {UUIDS[1]}, Simulated GPU 8 GiB, 1024, 0, 0",
    ]
    header = session.run("sim/nvidia-smi", "--query-gpu=memory.total,driver_version", "--format=csv").splitlines()
    assert header[:2] == ["memory.total [MiB], driver_version", "2048 MiB, 570.00-simulated"]
    assert session.run("sim/nvidia-smi", "-L").splitlines()[1] == f"GPU 1: Simulated GPU 8 GiB (UUID: {UUIDS[1]})"


def test_nvidia_smi_shows_no_figures_without_limits(host: Host) -> None:
    session = host.session()
    session.limits.unlink()
    table = session.run("sim/nvidia-smi")
    assert "Insufficient Permissions" in table
    assert "MiB /" not in table
