"""NVIDIA's own user-space tools, where they are at hand: FGPU_NVIDIA_TOOLS names a folder that holds its libcuda.so.1
and nvidia-smi (docs/fgpu.md says how to get them). Collected only then; no GPU is needed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fgpu.mounts import BUILD
from fgpu.tests.host import Host, Probe, Session

TOOLS = Path(os.environ.get("FGPU_NVIDIA_TOOLS", "/nonexistent"))
NO_DEVICE = 100


def probe(session: Session) -> Probe:
    return session.probe(enter=False, LD_LIBRARY_PATH=str(TOOLS))


def test_the_real_driver_initialises_through_the_hook(host: Host) -> None:
    with probe(host.session()) as hooked, probe(host.bare()) as plain:
        assert plain.code("init") == NO_DEVICE
        assert hooked.code("init") == NO_DEVICE


@pytest.mark.parametrize("flags", [0, 2])
@pytest.mark.parametrize(
    "name",
    [
        "cuMemAlloc",
        "cuMemAllocAsync",
        "cuMemCreate",
        "cuLaunchKernel",
        "cuGraphLaunch",
        "cuCtxCreate",
        "cuGetProcAddress",
    ],
)
def test_the_real_drivers_addresses_are_recognised(host: Host, name: str, flags: int) -> None:
    with probe(host.session()) as hooked, probe(host.bare()) as plain:
        plain.code("init")
        assert plain.ask(f"lookup gpa2 {name} 12000 {flags}") == ["driver", "0"]
        assert hooked.ask(f"lookup gpa2 {name} 12000 {flags}") == ["hook", "0"]


def test_the_real_nvidia_smi_shows_the_share(host: Host) -> None:
    version = next(TOOLS.glob("libcuda.so.[0-9]*.*")).name.removeprefix("libcuda.so.")
    conf = host.folder / "gpus.conf"
    conf.write_text(conf.read_text().replace("570.00-simulated", version).replace("cuda 12.8", "cuda 12.2"))

    def table(session: Session) -> str:
        environment = session.environment() | {"LD_LIBRARY_PATH": str(BUILD / "sim")}
        return subprocess.run(
            [TOOLS / "nvidia-smi"], capture_output=True, text=True, env=environment, check=True
        ).stdout

    assert "8192MiB" in table(host.bare())
    assert "2048MiB" in table(host.session())
