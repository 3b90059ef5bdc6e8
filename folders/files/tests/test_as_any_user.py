"""The files of folders for a process that is neither root nor the user of sessions."""

import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Final

import pytest

from folders.files.layout import RootDirectory, purge

UID: Final = 1234
FOLDER: Final = (7, "a" * 16)
ROOT: Final = Path(__file__).resolve().parents[3]
HEAD: Final = """
import os, sys, uuid
from datetime import UTC, datetime
from pathlib import Path
from folders.files.layout import RootDirectory
root = RootDirectory(sys.argv[1], uuid.UUID(sys.argv[2]))
"""


def as_user(root: RootDirectory, script: str) -> str:
    """Run Python as the platform's user, with `root` and the folder `files`; return what it prints."""
    command = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", sys.executable, "-c", HEAD + script]
    done = subprocess.run(
        [*command, root.path, str(root.key)],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def root(tmp_path: Path) -> RootDirectory:
    """A root that the platform's user has made."""
    for above in (tmp_path, *tmp_path.parents):
        if above.stat().st_uid == os.geteuid() and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o711)
    (tmp_path / "mine").mkdir()
    os.chown(tmp_path / "mine", UID, UID)
    made = RootDirectory(str(tmp_path / "mine" / "root"), uuid.uuid4())
    as_user(made, f"root.prepare(); root.create(*{FOLDER})")
    return made


def files_of(root: RootDirectory) -> Path:
    return Path(root.files_path(*FOLDER))


def test_all_belongs_to_the_platforms_user(root: RootDirectory) -> None:
    as_user(root, f"root.open(*{FOLDER}).write_text('text', 'x', if_match=None)")
    assert {path.stat().st_uid for path in Path(root.path).rglob("*")} == {UID}
    with root.open(*FOLDER) as files:  # as root, such as a host worker
        files.mkdir("of-root")
        files.write_text("of-root/text", "x", if_match=None)
    assert {path.stat().st_uid for path in Path(root.path).rglob("*")} == {UID}


def test_a_shut_directory_is_moved_and_restored(root: RootDirectory) -> None:
    shut = files_of(root) / "shut"
    shut.mkdir()
    os.chown(shut, UID, UID)
    (shut / "file").touch()
    shut.chmod(0o000)
    trashed = f"""
files = root.open(*{FOLDER})
before = os.listdir("/proc/self/fd")
item = files.trash.put("shut", datetime.now(UTC))
files.trash.restore(item.id)
files.mkdir("other")
files.move("shut", "other/shut")
assert os.listdir("/proc/self/fd") == before
"""
    as_user(root, trashed)
    assert (files_of(root) / "other" / "shut").stat().st_mode & 0o777 == 0
    assert (files_of(root) / "other" / "shut" / "file").exists()
    as_user(
        root,
        f"""
files = root.open(*{FOLDER})
files.trash.expunge(files.trash.put("other", datetime.now(UTC)).id)
assert files.trash.purge()
""",
    )
    assert not any(files_of(root).parent.joinpath("trash").rglob("*/*"))


def test_moving_what_the_user_may_not_is_forbidden(root: RootDirectory) -> None:
    fixed = files_of(root) / "fixed"
    fixed.mkdir()
    (fixed / "file").touch()
    (files_of(root) / "of-root").mkdir()
    os.chown(fixed, UID, UID)
    fixed.chmod(0o555)
    script = f"""
from folders.files.errors import StorageAccessError
files = root.open(*{FOLDER})
for path in ("fixed/file", "of-root"):
    try:
        files.trash.put(path, datetime.now(UTC))
    except StorageAccessError as error:
        print(error)
"""
    assert as_user(root, script).splitlines() == [
        f"The platform has no permission for this: {path}" for path in ("fixed/file", "of-root")
    ]


@pytest.mark.parametrize("of_folder", [True, False])
def test_what_root_has_left_is_removed_by_root_alone(root: RootDirectory, *, of_folder: bool) -> None:
    inner = files_of(root) / "mixed" / "of-root"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    os.chown(inner.parent, UID, UID)
    moved = f"""
files = root.open(*{FOLDER})
if {of_folder}:
    files.trash.expunge(files.trash.put("mixed", datetime.now(UTC)).id)
else:
    root.expunge(*{FOLDER})
"""
    as_user(root, moved)
    area = files_of(root).parent / "trash" / "expunged" if of_folder else Path(root.path, "7", ".expunged")
    refused = f"""
from folders.files.errors import StorageAccessError
try:
    print(root.open(*{FOLDER}).trash.purge() if {of_folder} else root.purge(100))
except StorageAccessError as error:
    print(error)
"""
    said = as_user(root, refused)
    assert "The platform has no permission" in said
    assert any(area.iterdir())
    assert purge(Path(root.path), str(root.key), FOLDER[0], FOLDER[1] if of_folder else "")
    assert not any(area.iterdir())


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o100])
def test_usage_says_that_shut_directories_are_missing(root: RootDirectory, mode: int) -> None:
    shut = files_of(root) / "shut"
    (shut / "in").mkdir(parents=True)
    for path in (shut, shut / "in"):
        os.chown(path, UID, UID)
    measured = f"print(root.open(*{FOLDER}).usage().is_partial)"
    assert as_user(root, measured) == "False\n"
    shut.chmod(mode)
    assert as_user(root, measured) == "True\n"
    with root.open(*FOLDER) as files:
        assert files.usage()[1:] == (2, False)


def test_only_what_was_expunged_is_purged(root: RootDirectory) -> None:
    assert purge(Path(root.path), str(root.key), 8, "")
    assert purge(Path(root.path), str(root.key), *FOLDER)
    assert files_of(root).exists()
    with pytest.raises(FileNotFoundError, match="is not the storage root"):
        purge(Path(root.path), str(uuid.uuid4()), *FOLDER)
