"""References of images: what is one, and its parts."""

import pytest

from resources.registries.references import (
    ImageReference,
    parse_reference,
    reference_problem,
    registry_address_problem,
    registry_of,
)


@pytest.mark.parametrize(
    "reference",
    [
        "debian:12",
        "lab/team/image:1.0",
        "registry.example.com/image:1",
        "registry.example.com:5000/a/b:x_Y.z",
        "localhost/image:1",
        "myhost:5000/image:1",
        "10.0.0.1:5000/image:1",
        f"debian@sha256:{'a' * 64}",
        f"debian:12@sha256:{'a' * 64}",
    ],
)
def test_references_as_the_engine_takes_them_are_accepted(reference: str) -> None:
    assert reference_problem(reference) is None


@pytest.mark.parametrize("reference", ["", "a b:1", "UPPER:1", "x:", "/x:1", "x//y:1", "https://x/y:1", "x:1\n", "x:é"])
def test_other_text_is_no_reference(reference: str) -> None:
    assert "is not an image reference" in str(reference_problem(reference))


@pytest.mark.parametrize(
    ("reference", "registry"),
    [
        ("debian:12", "docker.io"),
        ("pytorch/pytorch:2.7", "docker.io"),
        ("localhost/x:1", "localhost"),
        ("host:5000/x:1", "host:5000"),
        ("registry.example.com/x:1", "registry.example.com"),
        ("index.docker.io/library/x:1", "docker.io"),
    ],
)
def test_the_registry_is_the_references_host_part(reference: str, registry: str) -> None:
    assert registry_of(reference) == registry


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("debian:12", ("docker.io", "library/debian", "12", "")),
        ("docker.io/library/debian:12", ("docker.io", "library/debian", "12", "")),
        ("pytorch/pytorch:2.7", ("docker.io", "pytorch/pytorch", "2.7", "")),
        ("host:5000/team/x:1", ("host:5000", "team/x", "1", "")),
        (f"host:5000/x@sha256:{'a' * 64}", ("host:5000", "x", "", f"sha256:{'a' * 64}")),
        (f"x:1@sha256:{'a' * 64}", ("docker.io", "library/x", "1", f"sha256:{'a' * 64}")),
    ],
)
def test_a_reference_has_registry_repository_tag_and_digest(reference: str, parts: tuple[str, str, str, str]) -> None:
    registry, repository, tag, digest = parts
    assert parse_reference(reference) == ImageReference(
        registry=registry, repository=repository, tag=tag, digest=digest
    )


@pytest.mark.parametrize(
    "address", ["docker.io", "localhost:5000", "10.0.0.1:5000", "registry.example.com", "box:5000"]
)
def test_a_registry_address_is_host_and_port(address: str) -> None:
    assert registry_address_problem(address) is None


@pytest.mark.parametrize(
    "address", ["", "box", "https://x.org", "x.org/team", "x.org:99999999", "x.org ", "index.docker.io", "x.org:5000\n"]
)
def test_other_text_is_no_registry_address(address: str) -> None:
    assert registry_address_problem(address)
