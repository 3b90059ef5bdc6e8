"""The code of the version that upgrades begin with, in a folder of its own, which is then upgraded in place.

tests/previous_version.txt names its commit: one with the tables of what was on `main` before the changes that are to
land, which tests/test_expand_contract.py holds it to. A clone without that commit fetches it from where it came from.
Where that cannot be had, tests are skipped in copies without history, such as a shallow clone, and fail in all others:
the file then names a commit that is not there.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.platform import ROOT

PREVIOUS = (ROOT / "tests" / "previous_version.txt").read_text().strip()


def have_previous() -> None:
    """Have the commit in this clone; skip the test where there is no history, and fail it where that lacks it."""
    if not _is_here():
        subprocess.run(["git", "fetch", "--quiet", "--depth=1", "origin", PREVIOUS], cwd=ROOT, check=False)
    if _is_here():
        return
    if not _has_history():
        pytest.skip(f"this copy has no history to take the previous version from, commit {PREVIOUS}")
    pytest.fail(f"this clone lacks commit {PREVIOUS} of tests/previous_version.txt")


def landed_before() -> str:
    """Return the commit that was on `main` before those that are to land; "" on `main`, or where none is known."""
    for main in ("refs/remotes/origin/main", "refs/heads/main"):
        base = _git("merge-base", main, "HEAD")
        if base and base != _git("rev-parse", "HEAD"):
            return base
    return ""


def is_history(commit: str) -> bool:
    """Return whether HEAD is made of the commit, and has more; also where that cannot be told, in a shallow clone."""
    return not _has_history() or _git("merge-base", commit, "HEAD") == commit != _git("rev-parse", "HEAD")


def lay_out_previous(tree: Path) -> None:
    """Write the code of the previous version to a folder, with what is built and installed beside it."""
    have_previous()
    tree.mkdir()
    archive = subprocess.run(["git", "archive", PREVIOUS], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-xC", tree], input=archive, check=True)
    _add_built(tree)


def upgrade(tree: Path) -> None:
    """Replace the code in the folder by this checkout's, as `git pull` does: file by file, what is gone included."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    wanted = {name for name in os.fsdecode(listed).split("\0") if name and (ROOT / name).is_file()}
    for name in wanted:
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f"{target.name}.new")
        shutil.copy2(ROOT / name, draft)
        draft.replace(target)
    for path in _code_of(tree):
        if str(path.relative_to(tree)) not in wanted:
            path.unlink()
    _add_built(tree)


def _code_of(tree: Path) -> list[Path]:
    kept = {"node_modules", "build", "__pycache__"}
    return [path for path in tree.rglob("*") if path.is_file() and not kept & set(path.relative_to(tree).parts)]


def _add_built(tree: Path) -> None:
    """Add what `make ready` installs and builds, which is this checkout's for both versions."""
    if not (tree / "node_modules").exists():
        (tree / "node_modules").symlink_to(ROOT / "node_modules")
    shutil.copytree(ROOT / "fgpu" / "build", tree / "fgpu" / "build", symlinks=True, dirs_exist_ok=True)


def _has_history() -> bool:
    return _git("rev-parse", "--is-shallow-repository") == "false"


def _is_here() -> bool:
    return bool(_git("rev-parse", "--verify", "--quiet", f"{PREVIOUS}^{{commit}}"))


def _git(*arguments: str) -> str:
    """Return the output of git; "" where it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
