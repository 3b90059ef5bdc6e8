"""References of container images, as `registry/repository:tag@digest`. Pure."""

import re
from dataclasses import dataclass
from typing import Final

DOCKER_HUB: Final = "docker.io"
_DOCKER_HUB_NAMES: Final = (DOCKER_HUB, "index.docker.io", "registry-1.docker.io")
_HOST: Final = r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:\d))(?::\d{1,5})?"
_COMPONENT: Final = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_REFERENCE: Final = re.compile(  # as the distribution project's reference grammar has it
    rf"(?:{_HOST}/)?{_COMPONENT}(?:/{_COMPONENT})*(?P<tag>:\w[\w.-]{{0,127}})?(?P<digest>@sha256:[0-9a-f]{{64}})?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageReference:
    """The parts of a reference, with the defaults of Docker Hub filled in; the digest wins over the tag."""

    registry: str  # host, with its port where there is one
    repository: str
    tag: str = ""
    digest: str = ""


def reference_problem(reference: str) -> str | None:
    """Return what is wrong with an image reference, or None. It must have a tag or a digest."""
    match = _REFERENCE.fullmatch(reference)
    if not match:
        return f"{reference!r} is not an image reference; write for example registry.example.com/team/image:1.0"
    if not match["tag"] and not match["digest"]:
        return f"{reference!r} names no tag; write for example {reference}:1.0"
    return None


def registry_of(reference: str) -> str:
    """Return the host of an image's registry, with its port: Docker Hub's where the reference names none."""
    first, slash, _ = reference.partition("/")
    if not (slash and (first == "localhost" or set(first) & set(".:"))):
        return DOCKER_HUB
    return DOCKER_HUB if first in _DOCKER_HUB_NAMES else first


def parse_reference(reference: str) -> ImageReference:
    """Return the parts of a reference. Raise ValueError where `reference_problem` finds one."""
    if problem := reference_problem(reference):
        raise ValueError(problem)
    registry = registry_of(reference)
    name, _, digest = reference.partition("@")
    first, slash, rest = name.partition("/")
    if slash and (first == registry or first in _DOCKER_HUB_NAMES):
        name = rest
    repository, _, tag = name.partition(":")
    if registry == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    return ImageReference(registry=registry, repository=repository, tag=tag, digest=digest)


def familiar_reference(reference: str) -> str:
    """Return the shortest spelling of a reference, as engines list it: without Docker Hub's own names."""
    first, slash, rest = reference.partition("/")
    if slash and first in _DOCKER_HUB_NAMES:
        reference = rest
    return reference.removeprefix("library/") if registry_of(reference) == DOCKER_HUB else reference


def spellings(reference: str) -> set[str]:
    """Return every spelling of a reference that names the same image."""
    familiar = familiar_reference(reference)
    if registry_of(familiar) != DOCKER_HUB:
        return {familiar}
    full = familiar if "/" in familiar else f"library/{familiar}"
    return {familiar, full, *(f"{name}/{path}" for name in _DOCKER_HUB_NAMES for path in (familiar, full))}


def registry_address_problem(address: str) -> str | None:
    """Return what is wrong with the address of a registry, or None: a host as references begin with it."""
    if re.fullmatch(_HOST, address, re.ASCII) and registry_of(f"{address}/x") == address:
        return None
    if address in _DOCKER_HUB_NAMES:
        return f"Docker Hub is written {DOCKER_HUB}"
    return f"{address!r} is not the address of a registry; write host and port alone, such as registry.example.com:5000"
