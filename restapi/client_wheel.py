"""The command line (client/) as a package for pip that knows where its platform is, built as it is asked for.

Its version ends with a digest of what is in it, so that the package of another version has another address, and a
program sees that its platform offers another one.
"""

import base64
import hashlib
import io
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from django.conf import settings
from django.urls import reverse

SOURCE: Final = settings.BASE_DIR / "client"
PLATFORM_FILE: Final = "gpuplatform_client/platform_url.txt"
MANUAL: Final = "gpuplatform.1"
DIGEST_LENGTH: Final = 8


@dataclass(frozen=True)
class Wheel:
    """A package in the format of PEP 427."""

    name: str
    content: bytes


@cache
def wheel(platform_url: str) -> Wheel:
    """Return the package for a platform: equal bytes in each process of the same version."""
    files, base = contents(platform_url), f"gpuplatform_client-{version(platform_url)}"
    files[f"{base}.data/data/share/man/man1/{MANUAL}"] = _manual()
    record = f"{base}.dist-info/RECORD"
    lines = [f"{name},sha256={_hash(content)},{len(content)}\n" for name, content in files.items()]
    files[record] = "".join([*lines, f"{record},,\n"]).encode()
    return Wheel(f"{base}-py3-none-any.whl", archive_of(files))


def contents(platform_url: str) -> dict[str, bytes]:
    """Return the files of the package, with what it says of itself."""
    about = _metadata(_project(), version(platform_url))
    place = f"gpuplatform_client-{version(platform_url)}.dist-info"
    return _files(platform_url) | {f"{place}/{name}": text.encode() for name, text in about.items()}


@cache
def version(platform_url: str) -> str:
    """Return the version of the package of a platform, with a digest of what is in it."""
    facts = (sorted(_files(platform_url).items()), _project(), _manual())
    return f"{_project()['version']}+{hashlib.sha256(repr(facts).encode()).hexdigest()[:DIGEST_LENGTH]}"


def address() -> str:
    """Return the URL of this platform's package, for pip."""
    name = wheel(settings.COMPUTE_PUBLIC_URL).name
    return settings.COMPUTE_PUBLIC_URL.rstrip("/") + reverse("client", args=[name])


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    return project


def _manual() -> bytes:
    return (SOURCE / MANUAL).read_bytes()


def _files(platform_url: str) -> dict[str, bytes]:
    return dict(_sources()) | {PLATFORM_FILE: platform_url.encode()}


def _sources() -> Iterator[tuple[str, bytes]]:
    """Yield the files of the package, without its tests."""
    for path in sorted((SOURCE / "gpuplatform_client").rglob("*")):
        name = path.relative_to(SOURCE)
        if path.suffix in (".py", ".typed") and "tests" not in name.parts:
            yield name.as_posix(), path.read_bytes()


def _metadata(project: dict[str, Any], version: str) -> dict[str, str]:
    about = [("Metadata-Version", "2.1"), ("Name", project["name"]), ("Version", version)]
    about.append(("Requires-Python", project["requires-python"]))
    needs = [("Requires-Dist", requirement) for requirement in project["dependencies"]]
    kind = [("Wheel-Version", "1.0"), ("Root-Is-Purelib", "true"), ("Tag", "py3-none-any")]
    return {
        "METADATA": _fields([*about, *needs]),
        "WHEEL": _fields(kind),
        "entry_points.txt": "".join(
            ["[console_scripts]\n", *(f"{key} = {to}\n" for key, to in project["scripts"].items())]
        ),
    }


def _fields(fields: list[tuple[str, str]]) -> str:
    return "".join(f"{name}: {value}\n" for name, value in fields)


def _hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def archive_of(files: dict[str, bytes], comment: bytes = b"") -> bytes:
    """Return files as an archive with equal bytes whenever it is made."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)  # of 1980, whenever it is built
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
        archive.comment = comment
    return target.getvalue()
