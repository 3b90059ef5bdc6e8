"""Bad settings are named before anything starts."""

import pytest
from django.core.checks import run_checks
from pytest_django import Settings

BAD_ADDRESSES = ("", "8000", "localhost", "localhost:0", "localhost:70000", "::1:8000", "http://a:80", "a b:80")


def ids() -> list[str | None]:
    return [message.id for message in run_checks() if (message.id or "").startswith("resources.")]


def test_the_settings_of_a_test_run_are_good() -> None:
    assert ids() == []


@pytest.mark.parametrize(
    ("name", "value", "identifier"),
    [
        *[("COMPUTE_SIMULATED_GPUS", value, "resources.E001") for value in ("8GiB", "0x8GiB", "1x", "1xlots", "x8GiB")],
        ("COMPUTE_HOST_CPU", -1, "resources.E002"),
        ("COMPUTE_HOST_MEMORY", "lots", "resources.E003"),
        ("COMPUTE_GPU_CONTEXT_MEMORY", "some", "resources.E005"),
        ("COMPUTE_INODE_RESERVE", 51, "resources.E009"),
        *[("COMPUTE_HTTP_ADDRESS", value, "resources.E004") for value in BAD_ADDRESSES],
        *[("COMPUTE_GATEWAY_ADDRESS", value, "resources.E006") for value in BAD_ADDRESSES if value],
        *[("COMPUTE_GATEWAY_URL", value, "resources.E007") for value in ("10.0.0.5:8010", "https://a:1", "http://a")],
        *[
            ("COMPUTE_CLUSTER_RANGE", value, "resources.E010")
            for value in ("100.64.0.0/25", "100.64.0.1/12", "fd00::/64")
        ],
        ("COMPUTE_CLUSTER_ADDRESS", "gpu7", "resources.E011"),
        *[("COMPUTE_GATEWAY_URL", value, "resources.E008") for value in ("http://0.0.0.0:8010", "http://[::]:8010")],
    ],
)
def test_a_bad_value_is_named_with_a_hint(settings: Settings, name: str, value: object, identifier: str) -> None:
    setattr(settings, name, value)
    [message] = [message for message in run_checks() if (message.id or "").startswith("resources.")]
    assert (message.id, name in message.msg, bool(message.hint)) == (identifier, True, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COMPUTE_SIMULATED_GPUS", "2x8GiB, 1x24g"),
        ("COMPUTE_SIMULATED_GPUS", ""),
        ("COMPUTE_HTTP_ADDRESS", "[::1]:8000"),
        ("COMPUTE_HTTP_ADDRESS", "0.0.0.0:80"),
        ("COMPUTE_HOST_MEMORY", "48g"),
        ("COMPUTE_CLUSTER_RANGE", "10.9.8.0/24"),
        ("COMPUTE_CLUSTER_ADDRESS", "fd00::7"),
        ("COMPUTE_GATEWAY_ADDRESS", "0.0.0.0:8010"),
        ("COMPUTE_GATEWAY_URL", "http://gpu7.example.org:8010"),
    ],
)
def test_a_good_value_passes(settings: Settings, name: str, value: str) -> None:
    setattr(settings, name, value)
    assert ids() == []
