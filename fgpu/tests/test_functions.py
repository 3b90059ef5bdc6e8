"""The table of the driver's functions is complete in itself, and the hook does what it says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fgpu.functions import SHAPES, Function, exceptions, format_names, guarded_stems, main, names_of, read_table

HEADER = """
/* CUresult CUDAAPI cuInAComment(void); */
#define cuMemAlloc cuMemAlloc_v2
#define cuMemcpy __CUDA_API_PTDS(cuMemcpy)
#define cuLaunchKernel __CUDA_API_PTSZ(cuLaunchKernel)
CUresult CUDAAPI cuMemAlloc(CUdeviceptr *out, size_t bytes);
__CUDA_DEPRECATED CUresult CUDAAPI cuOld(void);
nvmlReturn_t DECLDIR nvmlDeviceGetCount_v2(unsigned int *deviceCount);
const DECLDIR char* nvmlErrorString(nvmlReturn_t result);
nvmlReturn_t DECLDIR nvmlDeviceGetNews(nvmlDevice_t device);
#define nvmlBlacklistDeviceInfo_t nvmlExcludedDeviceInfo_t
static inline CUresult cuInit_ptsz(unsigned flags) { return cuInit(flags); }
#define cuInit cuInit_ptsz
"""


def test_what_is_wrapped_is_what_the_table_does_not_pass(built: Path) -> None:
    command = ["readelf", "-W", "--dyn-syms", str(built / "libfgpu.so")]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    rows = [fields for line in lines if len(fields := line.split()) == 8]
    exported = {row[7] for row in rows if row[6] not in ("UND", "Ndx") and row[7].startswith(("cu", "nvml"))}
    assert len(exported) > 250
    assert exported == {function.name for function in read_table() if function.kind != "passed"}


def test_everything_the_simulated_driver_offers_is_in_the_table(built: Path) -> None:
    libraries = [str(built / "sim" / name) for name in ("libcuda.so.1", "libnvidia-ml.so.1")]
    command = ["readelf", "-W", "--dyn-syms", *libraries]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    exported = {name for line in lines if len(fields := line.split()) == 8 and (name := fields[7].split("@")[0])}
    known = {function.name for function in read_table()} | {"nvmlInternalGetExportTable"}
    to_come = {"cuMemAlloc_v9", "nvmlDeviceGetMemoryInfo_v3", "nvmlDeviceQueryProcessLoad_v9"}
    assert {name for name in exported if name.startswith(("cu", "nvml"))} - known == to_come


def test_the_table_has_all_of_a_headers_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = tmp_path / "cuda.h"
    header.write_text(HEADER)
    expected = {"cuMemAlloc", "cuMemAlloc_v2", "cuMemcpy", "cuMemcpy_ptds", "cuLaunchKernel", "cuLaunchKernel_ptsz"}
    expected |= {"nvmlDeviceGetCount_v2", "nvmlErrorString"}
    assert names_of(HEADER) == expected | {"cuOld", "nvmlDeviceGetNews"}
    assert main(["check", str(header)]) == 1
    assert capsys.readouterr().out == "10 declared, 2 not in the table\n  cuOld\n  nvmlDeviceGetNews\n"
    header.write_text(HEADER.replace("cuOld", "cuInit").replace("GetNews", "GetCount"))
    assert main(["check", str(header)]) == 0


@pytest.mark.parametrize("row", ["cuA\tlimited\t ", "cuA\tkept\tfor a reason", "cuB\tpassed\tx\ncuA\tpassed\tx"])
def test_a_table_that_is_not_whole_is_refused(tmp_path: Path, row: str) -> None:
    table = tmp_path / "functions.tsv"
    table.write_text(f"name\tclass\treason\n{row}\n")
    with pytest.raises(ValueError, match=r"functions\.tsv"):
        read_table(table)


def test_unknown_relatives_of_wrapped_functions_are_withheld() -> None:
    table = [
        Function("cuLaunchHostFunc", "passed", "work of the host"),
        Function("cuLaunchKernel_v2_ptsz", "gated", "launches"),
        Function("cuLaunch", "gated", "launches"),
        Function("cuLaunchOld", "refused", "launches by an old interface"),
        Function("cuMySample", "passed", "its name has a word in it that counts for NVML alone"),
        Function("nvmlDeviceGetMemoryBusWidth", "passed", "describes"),
        Function("nvmlDeviceGetSamples", "refused", "tells"),
    ]
    assert set(guarded_stems(table)) - set(SHAPES) == {"cuLaunch"}
    assert exceptions(table) == ["cuLaunchHostFunc", "nvmlDeviceGetMemoryBusWidth"]
    assert '"cuLaunch\\0"' in format_names(table)
    assert "#define CUDA_REFUSED(OF) \\\n    OF(cuLaunchOld)\n" in format_names(table)
    assert "#define NVML_REFUSED(OF) \\\n    OF(nvmlDeviceGetSamples)\n" in format_names(table)
