"""The inputs of a build: context, arguments, and the digest by which an image is known to be up to date."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from resources.images.catalog import Recipe

INPUTS_LABEL: Final = "gpuplatform.inputs"
CERTIFICATES_FILE: Final = "files/host-ca.crt"
_INDEXES: Final = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


def context_files(folder: Path, certificates: str) -> dict[str, bytes]:
    """Return {path in the build context: content}: the Dockerfile, its files, and the host's certificates."""
    paths = [folder / "Dockerfile", *(folder / "files").iterdir()]
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(paths)}
    return {**files, CERTIFICATES_FILE: certificates.encode()}


def context_archive(files: Mapping[str, bytes]) -> bytes:
    """Return the context as a tar archive that is the same wherever and whenever it is made: modes 0644, no times."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)  # mode 0644, owner root, time 0
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def inputs_digest(files: Mapping[str, bytes], recipe: Recipe) -> str:
    """Return a digest of everything that decides what the image contains.

    Not of the ways there (package index, proxies), nor of what Debian publishes from day to day: `--force` is for that.
    """
    hashed = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    text = json.dumps([hashed, recipe.suite, recipe.packages], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def network_arguments(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the build arguments that lead to the packages from here: proxies, and package indexes reached by HTTP.

    An index whose URL carries a password is left out, since build arguments stay readable in the image's history;
    see `indexes_with_passwords`.
    """
    proxies = {name: environ[name] for name in _PROXIES if environ.get(name)}
    indexes = {name: " ".join(_public_urls(environ.get(name, ""))) for name in _INDEXES}
    return proxies | {name: urls for name, urls in indexes.items() if urls}


def indexes_with_passwords(environ: Mapping[str, str]) -> list[str]:
    """Return the names of the index variables from which `network_arguments` leaves an URL with a password out."""
    return [name for name in _INDEXES if any(urlsplit(url).password for url in environ.get(name, "").split())]


def _public_urls(text: str) -> list[str]:
    urls = [(url, urlsplit(url)) for url in text.split()]
    return [url for url, parts in urls if parts.scheme in ("http", "https") and not parts.password]
