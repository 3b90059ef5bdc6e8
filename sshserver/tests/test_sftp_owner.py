"""Whose files SFTP clients see: the owners that files have in sessions, whoever the platform runs as."""

import os
from pathlib import Path

import pytest

from sshserver.sftp_server import _attributes


@pytest.mark.parametrize(
    ("platform", "on_disk", "shown"), [(1234, 1234, 1000), (1234, 0, 0), (1234, 1000, 1000), (0, 1000, 1000), (0, 0, 0)]
)
def test_files_have_the_owner_that_sessions_see(
    platform: int, on_disk: int, shown: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(tmp_path, on_disk, on_disk)
    monkeypatch.setattr(os, "geteuid", lambda: platform)
    monkeypatch.setattr(os, "getegid", lambda: platform)
    attributes = _attributes(tmp_path.stat())
    assert (attributes.uid, attributes.gid) == (shown, shown)
