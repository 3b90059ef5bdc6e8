"""An image archive, as `docker save` writes and `docker load` reads it, of a base image and one layer on top. Pure.

The base's own layers are listed but left out: an engine looks for the layers that it has by their digests first.
"""

import hashlib
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, Final

from hostworker.conversion.base import BaseImage
from hostworker.conversion.layer import Layer

_CHUNK_BYTES: Final = 1 << 20
_LAYER: Final = "layer.tar"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewImage:
    """What the image on top of a base is called and says of itself."""

    reference: str
    created_at: str  # RFC 3339
    labels: Mapping[str, str]


def image_config(base: BaseImage, layer: Layer, image: NewImage) -> dict[str, Any]:
    """Return the image configuration: the base's, with one more layer and more labels, and nothing of a container's."""
    labels = {**(base.config.get("Labels") or {}), **image.labels}
    config = {
        "architecture": base.architecture,
        "os": base.os,
        "created": image.created_at,
        "config": {**base.config, "Labels": labels, "Hostname": "", "Domainname": "", "Image": ""},
        "rootfs": {"type": "layers", "diff_ids": [*base.layers, layer.digest]},
    }
    return config | ({"variant": base.variant} if base.variant else {})


def image_archive(base: BaseImage, layer: Layer, content: IO[bytes], image: NewImage) -> Iterator[bytes]:
    """Yield the archive; `content` is the layer, read from where it stands."""
    config = json.dumps(image_config(base, layer, image)).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    lower = [f"{digest.partition(':')[2]}/{_LAYER}" for digest in base.layers]
    manifest = [{"Config": name, "RepoTags": [image.reference], "Layers": [*lower, _LAYER]}]
    yield from _file(name, config)
    yield from _file("manifest.json", json.dumps(manifest).encode())
    yield _header(_LAYER, layer.size_bytes)
    while chunk := content.read(_CHUNK_BYTES):
        yield chunk
    yield _padding(layer.size_bytes)
    yield b"\0" * 2 * tarfile.BLOCKSIZE


def _file(name: str, content: bytes) -> Iterator[bytes]:
    yield _header(name, len(content))
    yield content
    yield _padding(len(content))


def _header(name: str, size_bytes: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size = size_bytes
    return entry.tobuf(tarfile.PAX_FORMAT)


def _padding(size_bytes: int) -> bytes:
    return b"\0" * (-size_bytes % tarfile.BLOCKSIZE)
