"""Collects the static files, unless none has changed since the last time, while processes serve those of before."""

import fcntl
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from django.apps import apps
from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.contrib.staticfiles.management.commands import collectstatic
from django.core.management import call_command
from django.utils.module_loading import import_string

STAMP: Final = ".fingerprint"
MANIFEST: Final = "staticfiles.json"  # ManifestFilesMixin.manifest_name


def collect(report: Callable[[str], None]) -> None:
    """Collect and compress into STATIC_ROOT, which takes some seconds; nothing is done when it is up to date.

    One process does at a time, others wait for it.
    """
    root = Path(settings.STATIC_ROOT)
    root.parent.mkdir(parents=True, exist_ok=True)
    with root.with_name(f"{root.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed, or the process ends
        _collect(root, report)


def _collect(root: Path, report: Callable[[str], None]) -> None:
    stamp, draft = root / STAMP, root.with_name(f"{root.name}.new")
    current = fingerprint()
    if stamp.exists() and stamp.read_text() == current:
        report("nothing has changed")
        return
    report("collecting and compressing (some seconds the first time)")
    shutil.rmtree(draft, ignore_errors=True)
    command = collectstatic.Command()
    command.storage = import_string(settings.STORAGES["staticfiles"]["BACKEND"])(location=draft)
    call_command(command, interactive=False, verbosity=0)
    (draft / STAMP).write_text(current)
    _move(draft, root)


def _move(draft: Path, root: Path) -> None:
    """Move all files to `root`, where those of the version before stay, for which its pages go on asking.

    The manifest comes when what it names is there, and the stamp last: then nothing is collected again.
    """
    before, new = _hashed(root), _hashed(draft)
    collected = _files(draft)
    for name in [*sorted(collected - {MANIFEST, STAMP}), *(each for each in (MANIFEST, STAMP) if each in collected)]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (draft / name).replace(root / name)
    if new != before or not new:
        for name in _files(root) - collected - before:
            (root / name).unlink()
    shutil.rmtree(draft)


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def _hashed(root: Path) -> set[str]:
    """Return the names of the files whose names have a digest of their content, compressed ones too."""
    manifest = root / MANIFEST
    names = set(json.loads(manifest.read_text())["paths"].values()) if manifest.exists() else set()
    return names | {f"{name}.gz" for name in names}


def fingerprint() -> str:
    """Return a digest of the names, sizes and times of all source files, and of how they are stored."""
    ignored = apps.get_app_config("staticfiles").ignore_patterns  # type: ignore[attr-defined]
    digest = hashlib.sha256(str(settings.STORAGES["staticfiles"]).encode())
    for finder in get_finders():
        for path, storage in sorted(finder.list(ignored), key=lambda found: found[0]):
            status = Path(storage.path(path)).stat()
            digest.update(f"{path}:{status.st_size}:{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
