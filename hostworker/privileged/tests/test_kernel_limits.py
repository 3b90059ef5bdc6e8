"""Limits of the kernel that sessions share are raised, and never lowered; what cannot be written is named."""

import configparser
from pathlib import Path

import pytest

from hostworker.privileged import kernel_limits
from hostworker.privileged.kernel_limits import LIMITS, MAX_INT, limit, low_limits, raise_limits
from tests.platform import ROOT

INSTANCES = "fs.inotify.max_user_instances"


@pytest.fixture
def sysctls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel's /proc/sys with 10 everywhere."""
    monkeypatch.setattr(kernel_limits, "SYSCTLS", tmp_path)
    for name in LIMITS:
        (path := tmp_path / name.replace(".", "/")).parent.mkdir(parents=True, exist_ok=True)
        path.write_text("10\n")
    return tmp_path


def test_low_limits_are_raised_and_others_stay(sysctls: Path) -> None:
    (sysctls / "fs/file-max").write_text(f"{2**63}\n")
    (sysctls / "fs/pipe-user-pages-soft").write_text("0\n")
    assert set(low_limits()) == set(LIMITS) - {"fs.file-max", "fs.pipe-user-pages-soft"}
    raise_limits()
    assert low_limits() == {}
    assert limit(INSTANCES) == MAX_INT
    assert (sysctls / "fs/file-max").read_text() == f"{2**63}\n"
    assert (sysctls / "fs/pipe-user-pages-soft").read_text() == "0\n", "that is no limit"


def test_what_the_kernel_lacks_or_refuses_stops_nothing(sysctls: Path) -> None:
    (sysctls / "kernel/pty/max").unlink()
    (path := sysctls / "fs/inotify/max_user_instances").unlink()
    path.mkdir()
    raise_limits()
    assert limit("kernel.pty.max") is limit(INSTANCES) is None
    assert limit("fs.aio-max-nr") == MAX_INT


def test_the_file_for_operators_has_the_same_limits() -> None:
    parser = configparser.ConfigParser(allow_no_value=False, comment_prefixes=("#",))
    parser.read_string("[all]\n" + (ROOT / "deploy/sysctl.d/60-gpuplatform.conf").read_text())
    assert {name: int(number) for name, number in parser["all"].items()} == {
        name: 0 if name in kernel_limits.UNLIMITED_AT_ZERO else number for name, number in LIMITS.items()
    }
