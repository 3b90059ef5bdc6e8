"""However a program looks the driver's functions up, it gets the hook's, and never an allocator unknown to the hook."""

from __future__ import annotations

import pytest

from fgpu.functions import read_table
from fgpu.mounts import BUILD
from fgpu.tests.host import GIB, OUT_OF_MEMORY, Host

NOT_FOUND = "500"
PER_THREAD_STREAM = 2
VERSIONS = (2000, 3020, 4000, 7000, 10000, 11020, 11040, 12000, 12080, 13000, 13050)  # of CUDA, that brought others


@pytest.mark.parametrize("how", ["dlsym", "default", "next", "dlsym_of_dlsym"])
@pytest.mark.parametrize(
    "name", ["cuMemAlloc_v2", "cuMemAllocAsync_ptsz", "cuInit", "cuGetProcAddress_v2", "cuGraphLaunch"]
)
def test_a_looked_up_function_is_the_hooks(host: Host, how: str, name: str) -> None:
    with host.session().probe() as probe:
        assert probe.ask(f"lookup {how} {name}")[0] == "hook"


def test_functions_that_need_no_wrapper_are_the_drivers_own(host: Host) -> None:
    with host.session().probe() as probe:
        assert probe.ask("lookup dlsym cuDeviceGetName")[0] == "driver"
        assert probe.ask("lookup dlsym cuMemAllocHost_v2")[0] == "hook"
        assert probe.ask("lookup nvml nvmlDeviceGetName")[0] == "driver"


@pytest.mark.parametrize("how", ["dlsym", "default", "next", "dlsym_of_dlsym"])
def test_an_allocator_of_a_future_driver_is_refused(host: Host, how: str) -> None:
    with host.session().probe() as probe:
        assert probe.ask(f"lookup {how} cuMemAlloc_v9")[0] == "none"


def test_a_memory_query_of_a_future_nvml_is_refused(host: Host) -> None:
    with host.session().probe() as probe, host.bare().probe() as bare:
        for name in ("nvmlDeviceGetMemoryInfo_v3", "nvmlDeviceQueryProcessLoad_v9"):
            assert probe.ask(f"lookup nvml {name}")[0] == "none"
            assert bare.ask(f"lookup nvml {name}")[0] == "driver"


def test_a_function_the_driver_lacks_is_not_offered(host: Host) -> None:
    with host.session().probe() as probe:
        assert probe.ask("lookup dlsym cuVDPAUCtxCreate")[0] == "none"


def test_versioned_lookups_are_intercepted(host: Host) -> None:
    with host.session().probe() as probe, host.bare().probe() as bare:
        assert bare.ask("lookup dlvsym cuMemAlloc_v2")[0] == "driver"
        assert bare.ask("lookup dlvsym cuMemAlloc_v9")[0] == "driver"
        assert probe.ask("lookup dlvsym cuMemAlloc_v2")[0] == "hook"
        assert probe.ask("lookup dlvsym cuMemAlloc_v9")[0] == "none"


@pytest.mark.parametrize("how", ["gpa1", "gpa2"])
@pytest.mark.parametrize(
    ("name", "version", "flags"),
    [
        ("cuMemAlloc", 3020, 0),
        ("cuMemAlloc", 2000, 0),
        ("cuMemAlloc", 12080, PER_THREAD_STREAM),
        ("cuMemAllocAsync", 11020, 0),
        ("cuMemAllocAsync", 11020, PER_THREAD_STREAM),
        ("cuLaunchKernel", 4000, PER_THREAD_STREAM),
        ("cuGraphLaunch", 10000, PER_THREAD_STREAM),
        ("cuCtxCreate", 13000, 0),
        ("cuGetProcAddress", 12000, 0),
        ("cuMemGetInfo", 3020, 0),
        ("cuMemAllocHost", 12080, 0),
        ("cuMemHostAlloc", 12080, 0),
    ],
)
def test_get_proc_address_gives_the_hooks_variant(host: Host, how: str, name: str, version: int, flags: int) -> None:
    with host.session().probe() as probe, host.bare().probe() as bare:
        assert bare.ask(f"lookup {how} {name} {version} {flags}") == ["driver", "0"]
        assert probe.ask(f"lookup {how} {name} {version} {flags}") == ["hook", "0"]


@pytest.mark.parametrize("how", ["gpa1", "gpa2"])
def test_no_version_and_no_flag_leads_past_the_hook(host: Host, how: str) -> None:
    """By each name of a wrapped function, with and without its suffixes."""
    wrapped = [f for f in read_table() if f.kind != "passed" and f.name.startswith("cu")]
    names = sorted({f.name for f in wrapped} | {f.stem for f in wrapped})
    asked = [(name, version, flags) for name in names for version in VERSIONS for flags in (0, 1, PER_THREAD_STREAM)]
    with host.session().probe() as probe, host.bare().probe() as bare:
        given = {each: bare.ask("lookup {} {} {} {}".format(how, *each))[0] for each in asked}
        there = [each for each, whose in given.items() if whose == "driver"]
        assert len(there) > 1500
        passed = [each for each in there if probe.ask("lookup {} {} {} {}".format(how, *each))[0] == "driver"]
    assert passed == []


@pytest.mark.parametrize(
    ("name", "whose"),
    [
        ("cuCtxGetCurrent", "driver"),
        ("cuDeviceGetName", "driver"),
        ("cuMemcpyHtoD", "driver"),
        ("cuCtxGetStreamPriorityRange", "driver"),
        ("cuStreamCreateWithPriority", "driver"),
        ("cuMemMap", "hook"),
        ("cuMemPoolCreate", "hook"),
        ("cuStreamBeginCapture", "hook"),
        ("cuIpcOpenMemHandle", "hook"),
    ],
)
def test_get_proc_address_knows_all_that_is_exported(host: Host, name: str, whose: str) -> None:
    """So numba and cuda-python, which look everything up in that way, run on simulated GPUs."""
    with host.session().probe() as probe, host.bare().probe() as bare:
        assert bare.ask(f"lookup gpa2 {name} 13000 0") == ["driver", "0"]
        assert probe.ask(f"lookup gpa2 {name} 13000 0") == [whose, "0"]
        assert bare.ask("lookup gpa2 cuNoSuchFunction 13000 0") == ["none", NOT_FOUND]


@pytest.mark.parametrize("name", ["nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetDriverModel"])
def test_the_simulated_nvml_has_what_viewers_ask(host: Host, name: str) -> None:
    with host.session().probe() as probe:
        assert probe.ask(f"lookup nvml {name}")[0] == "driver"


@pytest.mark.parametrize("how", ["gpa1", "gpa2"])
def test_get_proc_address_refuses_a_future_allocator(host: Host, how: str) -> None:
    with host.session().probe() as probe, host.bare().probe() as bare:
        assert bare.ask(f"lookup {how} cuMemAlloc 99000 0") == ["driver", "0"]
        assert probe.ask(f"lookup {how} cuMemAlloc 99000 0") == ["none", NOT_FOUND]


def test_a_directly_linked_program_is_held_to_its_share(host: Host) -> None:
    assert host.session().run("test/direct").split() == ["0", str(OUT_OF_MEMORY), "0", str(GIB), str(2 * GIB)]
    assert host.bare().run("test/direct").split()[:3] == ["0", "0", "0"]


def test_rtld_next_still_means_after_the_caller(host: Host) -> None:
    session = host.session()
    preload = f"{BUILD / session.hook}:{BUILD / 'test/libnext.so'}"
    parent = int(session.run("test/parent"))
    assert int(session.run("test/parent", LD_PRELOAD=preload)) == -parent
