"""From what a person types to an image."""

import pytest

from gpuplatform_client.models.platform import ImageVersion
from gpuplatform_client.operations.lookups import LookupFailedError, choose_image


def image(environment: str, version: str, *, is_default: bool = False, is_enabled: bool = True) -> ImageVersion:
    return ImageVersion(
        reference=f"example/{environment.lower()}:{version}",
        environment=environment,
        version=version,
        is_default=is_default,
        is_enabled=is_enabled,
    )


IMAGES = [
    image("Python", "3.9"),
    image("Python", "3.11", is_default=True),
    image("Python", "3.13"),
    image("Julia", "1.9", is_default=True, is_enabled=False),
    image("Julia", "1.10"),
    image("Julia", "1.2"),
    image("PyTorch", "2.12"),
]


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("python", "3.11"),  # the default, not the newest
        ("Python:3.9", "3.9"),
        ("example/python:3.13", "3.13"),
        ("julia", "1.10"),  # the newest by number, since the default is not enabled
    ],
)
def test_a_name_stands_for_an_image(name: str, version: str) -> None:
    chosen = choose_image(IMAGES, name)
    assert chosen
    assert chosen.version == version


def test_a_misspelt_environment_is_refused_with_those_like_it() -> None:
    with pytest.raises(LookupFailedError, match=r"'pytroch'\. Did you mean PyTorch"):
        choose_image(IMAGES, "pytroch")


@pytest.mark.parametrize("name", ["ubuntu", "registry.example.org/pytroch:1", "python:2.7"])
def test_what_may_be_listed_nowhere_is_left_to_the_server(name: str) -> None:
    assert choose_image(IMAGES, name) is None
