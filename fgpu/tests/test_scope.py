"""Whatever comes before the hook in the order in which names are looked up, and in whatever scope or namespace."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fgpu.mounts import BUILD
from fgpu.tests.host import GIB, OUT_OF_MEMORY, Host, Session
from fgpu.tests.wheels import extract

BEFORE = ["libc.so.6", "libdl.so.2", "libcuda.so.1", "libnvidia-ml.so.1", "libc.so.6:libcuda.so.1:libnvidia-ml.so.1"]
PLUGINS = ["libplugin.so", "libplugin-linked.so"]
FITS, TOO_LARGE = str(GIB), str(3 * GIB)


def behind(session: Session, *names: str) -> dict[str, str]:
    """What a user would set: these libraries come before the one that /etc/ld.so.preload names."""
    return {"LD_PRELOAD": ":".join([*names, str(BUILD / session.hook)])}


def opened(session: Session, how: str, plugin: str, **environment: str) -> list[str]:
    return session.run("test/opener", how, str(BUILD / "test" / plugin), TOO_LARGE, FITS, **environment).split()


@pytest.mark.parametrize("names", BEFORE)
def test_a_library_preloaded_before_the_hook_changes_nothing(host: Host, names: str) -> None:
    session = host.session()
    with session.probe(True, **behind(session, names)) as probe:
        assert probe.alloc(3 * GIB) == OUT_OF_MEMORY
        assert probe.alloc(GIB) == 0
        assert probe.ask("info") == ["0", str(GIB), str(2 * GIB)]
        assert probe.ask("nvml")[:3] == ["0", str(2 * GIB), str(GIB)]


@pytest.mark.parametrize("how", ["dlsym", "default", "next", "dlsym_of_dlsym", "dlvsym"])
@pytest.mark.parametrize(("name", "whose"), [("cuMemAlloc_v2", "hook"), ("cuMemAlloc_v9", "none")])
def test_names_are_found_the_same_behind_libc(host: Host, how: str, name: str, whose: str) -> None:
    session = host.session()
    with session.probe(True, **behind(session, "libc.so.6")) as probe:
        assert probe.ask(f"lookup {how} {name}")[0] == whose


@pytest.mark.parametrize("names", BEFORE)
def test_a_linked_program_is_held_behind_other_libraries(host: Host, names: str) -> None:
    session = host.session()
    words = session.run("test/direct", **behind(session, names)).split()
    assert words == ["0", str(OUT_OF_MEMORY), "0", str(GIB), str(2 * GIB)]


@pytest.mark.parametrize("names", BEFORE)
def test_nvidia_smi_shows_the_share_behind_other_libraries(host: Host, names: str) -> None:
    session = host.session()
    assert "/ 2048MiB" in session.run("sim/nvidia-smi", **behind(session, names))


def test_libc_by_another_name_changes_nothing(host: Host, tmp_path: Path) -> None:
    session = host.session()
    loaded = subprocess.run(["ldd", BUILD / "test/probe"], check=True, capture_output=True, text=True).stdout
    [libc] = [line.split()[2] for line in loaded.splitlines() if "libc.so.6" in line]
    (tmp_path / "libwork_around.so").symlink_to(libc)
    with session.probe(True, **behind(session, str(tmp_path / "libwork_around.so"))) as probe:
        assert probe.alloc(3 * GIB) == OUT_OF_MEMORY


@pytest.mark.parametrize("names", ["", *BEFORE])
@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("how", ["plain", "deep", "new"])
def test_a_library_is_held_however_it_is_opened(host: Host, how: str, plugin: str, names: str) -> None:
    session = host.session()
    assert opened(session, how, plugin, **behind(session, *names.split())) == [str(OUT_OF_MEMORY), "0"]
    assert opened(host.bare(), how, plugin) == ["0", "0"]


def test_the_installed_library_is_held_to_no_other_order(host: Host) -> None:
    """As it is linked for production, where names are bound at the start."""
    session = host.session()
    session.hook = "libfgpu.so"
    with session.probe(enter=False, **behind(session, "libc.so.6")) as probe:
        assert probe.ask("lookup dlsym cuMemAlloc_v2")[0] == "hook"


def test_an_interposer_of_the_users_own_still_works(host: Host) -> None:
    session = host.session()
    parent = int(session.run("test/parent"))
    assert int(session.run("test/parent", **behind(session, str(BUILD / "test/libnext.so"), "libc.so.6"))) == -parent


def test_a_caller_finds_libraries_by_its_own_run_path(host: Host, tmp_path: Path) -> None:
    """The loader tells by the return address who opens a library: the hook must not stand in between."""
    (tmp_path / "beside").mkdir()
    shutil.copy(BUILD / "test/libplugin.so", tmp_path / "beside/libbeside.so")
    source = (BUILD.parent / "tests/c/opener.c").as_posix()
    program = tmp_path / "opener"
    run_path = ["-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN/beside"]
    subprocess.run(["gcc", "-D_GNU_SOURCE", "-o", program, source, "-ldl", *run_path], check=True)
    session = host.session()
    for how in ("plain", "deep"):
        done = subprocess.run(
            [program, how, "libbeside.so", TOO_LARGE],
            check=False,
            capture_output=True,
            text=True,
            env=session.environment(),
        )
        assert done.stdout.split() == [str(OUT_OF_MEMORY)]


@pytest.mark.parametrize("names", BEFORE)
def test_programs_without_a_gpu_run_behind_other_libraries(host: Host, names: str) -> None:
    session = host.session()
    words = "import ctypes, json, sqlite3, ssl, subprocess; subprocess.run(['true'], check=True); print('ran')"
    done = subprocess.run(
        [sys.executable, "-c", words],
        check=False,
        capture_output=True,
        text=True,
        env=session.environment() | behind(session, names),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


@pytest.mark.parametrize("more", [[], ["libc.so.6"], ["libcuda.so.1"]])
@pytest.mark.parametrize("runtime", ["libasan.so", "libtsan.so"])
def test_a_sanitizers_runtime_before_the_hook_still_works(host: Host, runtime: str, more: list[str]) -> None:
    """It interposes dlopen itself, and demands to be the first."""
    command = ["gcc", f"-print-file-name={runtime}"]
    library = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    session = host.session()
    environment = behind(session, library, *more) | {"ASAN_OPTIONS": "detect_leaks=0"}
    assert opened(session, "plain", "libplugin.so", **environment) == [str(OUT_OF_MEMORY), "0"]


STATIC_RUNTIME = """
int cudaGetDeviceCount(int *count);
int main(void) { int count; return cudaGetDeviceCount(&count) == 0; }
"""


@pytest.mark.long
def test_a_statically_linked_runtime_asks_the_hook(host: Host, tmp_path: Path) -> None:
    """NVIDIA's own: it opens the driver and looks its functions up, as everybody does. (On the simulated driver it ends
    there, for want of tables that are not published.)"""
    [library] = extract("nvidia-cuda-runtime-cu12==12.9.79", ["libcudart_static.a"], tmp_path)
    (tmp_path / "main.c").write_text(STATIC_RUNTIME)
    program = tmp_path / "program"
    subprocess.run(["gcc", "-o", program, tmp_path / "main.c", library, "-lstdc++", "-lrt", "-ldl"], check=True)
    environment = host.session().environment() | {"LD_DEBUG": "bindings"}
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=False)
    bound = re.findall(rf"binding file {program} \[0\] to (\S+) \[0\]: normal symbol `(dl\w+)'", done.stderr)
    assert {(Path(where).name, name) for where, name in bound if name in ("dlopen", "dlsym", "dlvsym")} == {
        (Path(host.session().hook).name, name) for name in ("dlopen", "dlsym")
    }
