"""The command line (client/) as one file that Python runs, with all that it needs and the address of its platform.

What it needs, `make` has fetched (client/zipapp.txt); each process makes the file once, with equal bytes.
"""

import hashlib
import threading
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Final

from django.conf import settings
from django.urls import reverse

from restapi.client_wheel import SOURCE, archive_of, contents

WHEELS: Final = SOURCE / "build" / "wheels"
INTERPRETER: Final = b"#!/usr/bin/env python3\n"
_making = threading.Lock()


@dataclass(frozen=True)
class Zipapp:
    """A program of one file, and the digest of what is in it."""

    content: bytes
    digest: str


def zipapp() -> Zipapp | None:
    """Return the program of this platform; None where its packages were not fetched."""
    with _making:
        return _zipapp(settings.COMPUTE_PUBLIC_URL) if _are_fetched() else None


def address() -> str:
    """Return the URL of the program; "" where there is none."""
    return settings.COMPUTE_PUBLIC_URL.rstrip("/") + reverse("cli") if _are_fetched() else ""


@cache
def _zipapp(platform_url: str) -> Zipapp:
    files = dict(_packages()) | contents(platform_url) | {"__main__.py": (SOURCE / "zipapp_main.py").read_bytes()}
    files |= dict.fromkeys(_directories(files), b"")
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
    return Zipapp(INTERPRETER + archive_of(files, comment=digest.encode()), digest)


def _are_fetched() -> bool:
    return any(WHEELS.glob("*.whl"))


def _directories(names: Iterable[str]) -> list[str]:
    """Return the directories of files: of packages without an `__init__.py`, Python looks for nothing else."""
    return sorted({f"{parent}/" for name in names for parent in PurePosixPath(name).parents if parent.name})


def _packages() -> Iterator[tuple[str, bytes]]:
    for path in sorted(WHEELS.glob("*.whl")):
        with zipfile.ZipFile(path) as wheel:
            for name in sorted(wheel.namelist()):
                if not name.endswith("/") and ".data/" not in name:
                    yield name, wheel.read(name)
