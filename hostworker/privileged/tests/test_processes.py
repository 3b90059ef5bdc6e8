"""What /proc says about a container's processes, whatever names they choose."""

from pathlib import Path

import pytest

from fgpu.mounts import HOOK_PATH
from hostworker.privileged import processes
from resources import procfs

HOOK = "7f00-7f01 r-xp 00000000 00:2a {inode} {path}\n"


@pytest.mark.parametrize("end", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_no_file_name_is_taken_for_a_mapped_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """The kernel escapes line feeds in the names of mapped files, and no other character."""
    monkeypatch.setattr(procfs, "PROC", tmp_path)
    maps = tmp_path / "7/maps"
    maps.parent.mkdir()
    forged = HOOK.format(inode=42, path=HOOK_PATH)
    maps.write_bytes(HOOK.format(inode=5, path=f"/home/x{end}{forged}").encode())
    assert processes.hook_inodes(7) == frozenset()
    maps.write_bytes(forged.encode())
    assert processes.hook_inodes(7) == frozenset({42})
