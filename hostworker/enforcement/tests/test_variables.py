"""Which variables the engine's hooks do not get, and the lines that set them inside."""

import subprocess

import pytest

from hostworker.enforcement.variables import script, withheld


def test_what_acts_on_hooks_is_withheld_of_an_image() -> None:
    harmful = {
        "LD_LIBRARY_PATH": "/proc/self/cwd/lib",
        "XDG_CONFIG_HOME": "/proc/self/cwd",
        "NVIDIA_IMEX_CHANNELS": "0",
        "NVIDIA_GDS": "enabled",
        "AMD_GPU_DEVICE_MODE": "0666",
        "DOCKER_RESOURCE_GPU": "all",
        "HABANA_VISIBLE_DEVICES_X": "all",
        "GODEBUG": "x=1",
        "GLIBC_TUNABLES": "glibc.malloc.check=3",
        "GCONV_PATH": "/x",
    }
    harmless = {"PATH": "/bin", "GOLANG_VERSION": "1.24", "NVIDIA_REQUIRE_CUDA": "cuda>=12.4", "LANG": "C.UTF-8"}
    harmless |= {"ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "0", "ZE_AFFINITY_MASK": "0"}
    entries = [f"{name}={value}" for name, value in (harmful | harmless).items()]
    assert withheld([*entries, "LD_bad name=x", "=x", "LD_EMPTY"]) == harmful | {"LD_EMPTY": ""}


@pytest.mark.parametrize("value", ["", "a b", "it's", "$HOME `id` \\", 'two\nlines "x"', "한국어"])
def test_a_shell_reads_each_value_as_it_was(value: str) -> None:
    lines = script({"A": value, "B": "last"}) + 'printf %s "$A"; test "$B" = last'
    assert subprocess.run(["sh", "-c", lines], capture_output=True, check=True).stdout.decode() == value


def test_what_is_no_name_never_reaches_the_shell() -> None:
    with pytest.raises(ValueError, match="not a variable's name"):
        script({"A=1; rm -rf /; B": "x"})
