"""Collects the static files, unless none has changed since the last time."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from django.apps import apps
from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command


def collect(report: Callable[[str], None]) -> None:
    """Collect and compress into STATIC_ROOT, which takes some seconds; nothing is done when it is up to date."""
    stamp = Path(settings.STATIC_ROOT) / ".fingerprint"
    current = fingerprint()
    if stamp.exists() and stamp.read_text() == current:
        report("nothing has changed")
        return
    report("collecting and compressing (some seconds the first time)")
    call_command("collectstatic", interactive=False, clear=True, verbosity=0)
    stamp.write_text(current)


def fingerprint() -> str:
    """Return a digest of the names, sizes and times of all source files, and of how they are stored."""
    ignored = apps.get_app_config("staticfiles").ignore_patterns  # type: ignore[attr-defined]
    digest = hashlib.sha256(str(settings.STORAGES["staticfiles"]).encode())
    for finder in get_finders():
        for path, storage in sorted(finder.list(ignored), key=lambda found: found[0]):
            status = Path(storage.path(path)).stat()
            digest.update(f"{path}:{status.st_size}:{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
