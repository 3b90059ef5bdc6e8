"""What the built library is made of: loadable in old images, silent, and small."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fgpu.mounts import BUILD
from fgpu.tests.host import Host

LIBRARIES = ["libfgpu.so", "sim/libcuda.so.1", "sim/libnvidia-ml.so.1", "sim/nvidia-smi"]
OLDEST_GLIBC = (2, 17)
MAX_LINES = 3190  # of code: what a reader who distrusts it has to go through
MAX_ARBITER_LINES = 900
SOURCES = sorted((BUILD.parent / "src").glob("*.[ch]"))


def readelf(*arguments: str) -> str:
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", LIBRARIES)
def test_nothing_newer_than_glibc_2_17_is_needed(built: Path, name: str) -> None:
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([\d.]+)", readelf("-V", str(built / name)))}
    assert versions
    assert max(versions) <= OLDEST_GLIBC


@pytest.mark.long
@pytest.mark.parametrize(("architecture", "machine"), [("x86_64", "X86-64"), ("aarch64", "AArch64")])
def test_all_parts_are_built_for_both_architectures(tmp_path: Path, architecture: str, machine: str) -> None:
    variables = [f"PYTHON={sys.executable}", f"ARCH={architecture}", f"OUT={tmp_path}"]
    subprocess.run(["make", "-s", "-C", str(BUILD.parent), *variables, "hook", "sim", "arbiter"], check=True)
    for name in (*LIBRARIES, f"arbiter-{architecture}"):
        assert machine in readelf("-h", str(tmp_path / name))
    names = readelf("--dyn-syms", str(tmp_path / "libfgpu.so"))
    assert {"dlsym", "dlvsym", "cuGetProcAddress_v2"} <= set(names.split())


def test_the_hook_depends_on_libc_alone(built: Path) -> None:
    needed = set(re.findall(r"NEEDED.*\[(.+)\]", readelf("-d", str(built / "libfgpu.so"))))
    assert needed <= {"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def test_the_hook_has_one_constructor_and_no_destructor(built: Path) -> None:
    """It is loaded into every process of the session, most of which never use a GPU: it looks at the order alone."""
    dynamic = readelf("-d", str(built / "libfgpu.so"))
    assert not re.search(r"\((INIT|FINI|FINI_ARRAY|PREINIT_ARRAY)\)", dynamic)
    assert re.search(r"\(INIT_ARRAYSZ\) +8 \(bytes\)", dynamic)


def test_the_hook_exports_the_drivers_names_and_the_lookups_alone(built: Path) -> None:
    table = readelf("--dyn-syms", str(built / "libfgpu.so")).splitlines()
    exported = {fields[7] for line in table if len(fields := line.split()) == 8 and fields[6] not in ("UND", "Ndx")}
    assert {name for name in exported if not name.startswith(("cu", "nvml"))} == {
        *("dlsym", "dlvsym", "dlopen", "dlmopen")
    }
    assert len(exported) > 80


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_the_hook_uses_no_signals_or_output(source: Path) -> None:
    forbidden = r"\b(sigaction|signal|printf|fprintf|puts|perror|exit|abort|setenv|putenv|constructor)\s*\("
    assert not re.search(forbidden, source.read_text())


def test_hook_starts_one_thread_in_gated_processes_only() -> None:
    text = "\n".join(source.read_text() for source in SOURCES)
    assert len(re.findall(r"\bpthread_create\s*\(", text)) == 1
    assert len(re.findall(r"\bsystem_thread\(help\)", text)) == 1


@pytest.mark.parametrize(("folder", "most"), [("src", MAX_LINES), ("arbiter", MAX_ARBITER_LINES)])
def test_hook_and_arbiter_stay_small(folder: str, most: int) -> None:
    text = "\n".join(source.read_text() for source in sorted((BUILD.parent / folder).glob("*.[ch]")))
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) < most
    assert max(map(len, text.splitlines())) <= 120


def test_a_program_without_gpu_is_untouched_by_the_hook(host: Host) -> None:
    session = host.session()
    maps = subprocess.run(
        ["cat", "/proc/self/maps"],
        check=True,
        capture_output=True,
        text=True,
        env=session.environment() | {"LD_LIBRARY_PATH": ""},
    )
    assert "libfgpu.so" in maps.stdout
    assert "region" not in maps.stdout
    assert maps.stderr == ""
