"""The inputs of a build: context, arguments, and the digest by which an image is known to be up to date."""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, Final
from urllib.parse import urlsplit

from resources.images.catalogue.recipes import Recipe

INPUTS_LABEL: Final = "gpuplatform.inputs"
CERTIFICATES_FILE: Final = "files/host-ca.crt"
WHEELS_FOLDER: Final = "wheels"
_INDEXES: Final = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "NPM_CONFIG_REGISTRY")
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


def context_files(folder: Path, certificates: str) -> dict[str, bytes]:
    """Return {path in the build context: content}: the Dockerfile, its files, and the host's certificates."""
    paths = [folder / "Dockerfile", *(folder / "files").iterdir()]
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(paths)}
    return {**files, CERTIFICATES_FILE: certificates.encode()}


@contextmanager
def context_archive(files: Mapping[str, bytes], wheels: Iterable[Path] = ()) -> Iterator[BinaryIO]:
    """Yield the context as a tar archive, on disk since wheels are large, with the wheels in the folder `wheels`.

    It is the same wherever and whenever it is made: modes 0644, no times.
    """
    with TemporaryFile(dir="/var/tmp") as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name, content in files.items():
                _add(archive, name, io.BytesIO(content), len(content))
            folder = tarfile.TarInfo(WHEELS_FOLDER)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
            for wheel in wheels:
                with wheel.open("rb") as content_of_wheel:
                    _add(archive, f"{WHEELS_FOLDER}/{wheel.name}", content_of_wheel, wheel.stat().st_size)
        file.seek(0)
        yield file


def _add(archive: tarfile.TarFile, name: str, content: BinaryIO, length_bytes: int) -> None:
    member = tarfile.TarInfo(name)  # mode 0644, owner root, time 0
    member.size = length_bytes
    archive.addfile(member, content)


def inputs_digest(files: Mapping[str, bytes], recipe: Recipe) -> str:
    """Return a digest of everything that decides what the image contains.

    Not of the ways there (package index, proxies), nor of what Debian publishes from day to day: `--force` is for that.
    """
    hashed = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    text = json.dumps([hashed, recipe.suite, recipe.arguments()], sort_keys=True)
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
