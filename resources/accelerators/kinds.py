"""Kinds of accelerators, named as the Container Device Interface names them: vendor/class. Pure."""

import re
from typing import Final

NVIDIA: Final = "nvidia.com/gpu"
AMD: Final = "amd.com/gpu"
INTEL: Final = "intel.com/gpu"
GAUDI: Final = "intel.com/gaudi"
KIND_LENGTH: Final = 64
KIND: Final = re.compile(r"[A-Za-z]([\w.-]*[A-Za-z0-9])?/[A-Za-z]([\w-]*[A-Za-z0-9])?", re.ASCII)
_NAMES: Final = {NVIDIA: "GPU", AMD: "AMD GPU", INTEL: "Intel GPU", GAUDI: "Gaudi"}
# Of variables by which vendors' container runtimes are asked for devices, or for something of them, where one of these
# runtimes is the engine's default: NVIDIA's, AMD's (container-toolkit) and Habana's (habana-container-runtime).
RUNTIME_PREFIXES: Final = ("NVIDIA_", "AMD_VISIBLE_DEVICES", "AMD_GPU_", "DOCKER_RESOURCE_", "HABANA_VISIBLE_")
_GPU: Final = re.compile(r"(?<![A-Za-z])GPU(?![A-Za-rt-z]| Platform)")
_ARTICLE: Final = re.compile(r"\b([Aa])(?= GPU\b(?! Platform))")
# What images say that they can use (`Image.accelerators`), beside kinds themselves.
_OF_TOOLKITS: Final = {
    "cuda": NVIDIA,
    "rocm": AMD,
    "hip": AMD,
    "oneapi": INTEL,
    "level-zero": INTEL,
    "xpu": INTEL,
    "hpu": GAUDI,
    "gaudi": GAUDI,
    "synapse": GAUDI,
}


def kind_problem(kind: str) -> str:
    """Return why this is no kind, as a sentence; "" where it is one."""
    if len(kind) <= KIND_LENGTH and KIND.fullmatch(kind):
        return ""
    return f"Write vendor/class such as amd.com/gpu, in {KIND_LENGTH} characters at most."


def kind_name(kind: str) -> str:
    """Return what people call a device of this kind: "GPU", "AMD GPU", or its class, such as "NPU"."""
    return _NAMES.get(kind) or kind.rpartition("/")[2].upper()


def named_for(name: str, text: str) -> str:
    """Return a text about GPUs, English or Korean, as one about devices of this name: "No NPU is free."

    GPUs of any vendor are GPUs. Korean particles after the names of the others are those of GPU.
    """
    if not name or "GPU" in name:
        return text
    if name[0] in ("AEFHILMNORSX" if name.isupper() else "AEIO"):  # letters, or words, that begin with a vowel
        text = _ARTICLE.sub(r"\1n", text)
    return _GPU.sub(name, text)


def kinds_of_image(accelerators: str) -> frozenset[str]:
    """Return the kinds that an image says that it can use; none where it does not say, or in words unknown here."""
    words = accelerators.lower().replace(",", " ").split()
    return frozenset(kind for word in words if (kind := _OF_TOOLKITS.get(word, word)) and not kind_problem(kind))
