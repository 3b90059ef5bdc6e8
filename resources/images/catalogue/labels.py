"""What an image says of itself, by its labels and its configuration. Pure.

Our labels are `gpuplatform.*`; where one is missing, that of the OCI image specification counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from resources.amounts.units import bytes_from, milli_fgpu_from

PREFIX: Final = "gpuplatform."
OCI_PREFIX: Final = "org.opencontainers.image."
OCI_NAMES: Final = {"environment": "title", "version": "version", "description": "description"}
NAME_LENGTH: Final = 64  # of environments and versions
DESCRIPTION_LENGTH: Final = 200
ACCELERATORS_LENGTH: Final = 64
_TOOLKIT_VARIABLES: Final = {  # of images that are made for one
    "cuda": ("NVIDIA_REQUIRE_CUDA=", "CUDA_VERSION="),
    "rocm": ("ROCM_PATH=", "ROCM_VERSION="),
    "oneapi": ("ONEAPI_ROOT=",),
    "gaudi": ("HABANA_LOGS=",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLabels:
    """What an image says of itself; "" or None where it says nothing. `problems` are the labels that say nonsense."""

    environment: str
    version: str
    description: str
    apps: tuple[str, ...]  # names of the catalogue's apps
    min_cpu: int | None  # cores
    min_memory: int | None  # bytes
    min_fgpu: int | None  # milli-fGPU
    min_gpu_memory: int | None  # bytes on one GPU
    accelerators: str
    architecture: str
    problems: tuple[str, ...] = ()


def read_labels(config: Mapping[str, Any]) -> ImageLabels:
    """Return what the OCI configuration of an image, or an engine's view of one, says."""
    inner = config.get("config") or config.get("Config") or {}
    labels = {str(name): str(value) for name, value in (inner.get("Labels") or {}).items()}
    variables = [str(variable) for variable in inner.get("Env") or ()]
    problems: list[str] = []
    cpu = _number(labels, "min-cpu", _cores, problems)
    return ImageLabels(
        environment=_text(labels, "environment", NAME_LENGTH),
        version=_text(labels, "version", NAME_LENGTH),
        description=_text(labels, "description", DESCRIPTION_LENGTH),
        apps=_words(labels, "apps"),
        min_cpu=cpu,
        min_memory=_number(labels, "min-memory", bytes_from, problems),
        min_fgpu=_number(labels, "min-fgpu", milli_fgpu_from, problems),
        min_gpu_memory=_number(labels, "min-gpu-memory", bytes_from, problems),
        accelerators=", ".join(_words(labels, "accelerators"))[:ACCELERATORS_LENGTH] or _accelerators(variables),
        architecture=str(config.get("architecture") or config.get("Architecture") or "")[:16],
        problems=tuple(problems),
    )


def _text(labels: Mapping[str, str], name: str, length: int) -> str:
    text = labels.get(PREFIX + name) or labels.get(OCI_PREFIX + OCI_NAMES[name]) or ""
    return " ".join(text.replace(":", " ").split() if name != "description" else text.split())[:length].strip()


def _words(labels: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(labels.get(PREFIX + name, "").replace(",", " ").split())


def _number(labels: Mapping[str, str], name: str, parse: Any, problems: list[str]) -> int | None:
    text = labels.get(PREFIX + name)
    if text is None:
        return None
    try:
        return int(parse(text))
    except ValueError as error:
        problems.append(f"label {PREFIX}{name}: {error}")
        return None


def _cores(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 4096:
        raise ValueError(f"{text!r} is not a number of CPU cores")
    return int(text)


def _accelerators(variables: list[str]) -> str:
    found = (name for name, own in _TOOLKIT_VARIABLES.items() if any(each.startswith(own) for each in variables))
    return ", ".join(found)
