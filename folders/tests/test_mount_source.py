"""The directory that the engine is given: no component below the root is a link."""

import os
from pathlib import Path

import pytest

from folders.files.mount_source import mount_source


@pytest.fixture
def files(tmp_path: Path) -> Path:
    made = tmp_path / "7" / "abc" / "files"
    made.mkdir(parents=True)
    return made


def test_the_source_is_the_files_directory(tmp_path: Path, files: Path) -> None:
    assert mount_source(str(tmp_path), 7, "abc") == files


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_link_on_the_way_is_refused(tmp_path: Path, files: Path, depth: int) -> None:
    replaced = [files, *files.parents][depth]
    elsewhere = tmp_path / "elsewhere"
    replaced.rename(elsewhere)
    replaced.symlink_to(elsewhere)
    assert files.is_dir()
    with pytest.raises(NotADirectoryError):
        mount_source(str(tmp_path), 7, "abc")


def test_a_missing_directory_and_a_file_are_refused(tmp_path: Path, files: Path) -> None:
    files.rmdir()
    with pytest.raises(FileNotFoundError):
        mount_source(str(tmp_path), 7, "abc")
    files.touch()
    with pytest.raises(NotADirectoryError):
        mount_source(str(tmp_path), 7, "abc")


def test_every_descriptor_is_closed(tmp_path: Path, files: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    mount_source(str(tmp_path), 7, "abc")
    with pytest.raises(FileNotFoundError):
        mount_source(str(tmp_path), 7, "none")
    assert len(os.listdir("/proc/self/fd")) == before
