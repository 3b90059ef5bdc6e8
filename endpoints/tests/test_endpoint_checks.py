"""Bad settings of what leads to apps are named before anything starts."""

import pytest
from django.core.checks import CheckMessage, run_checks
from pytest_django import Settings


def found() -> list[CheckMessage]:
    return [message for message in run_checks() if (message.id or "").startswith("compute.")]


def test_the_settings_of_a_test_run_pass() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("name", "value", "identifier"),
    [
        *[
            ("COMPUTE_APP_PORTS", value, "compute.E001")
            for value in ("x", "10299-10200", "0-10", "1-65536", "-5", "1-2-3", "1 2")
        ],
        *[("COMPUTE_SESSION_SUBNETS", value, "compute.E002") for value in (["x"], ["10.0.0.1/8"], ["10.0.0.0/40"])],
        ("COMPUTE_TRUSTED_PROXIES", ["nginx"], "compute.E005"),
        *[("COMPUTE_APPS_KEYS", value, "compute.E003") for value in ([], ["x"], ["a:short"], [":" + "k" * 32])],
        *[
            ("COMPUTE_PUBLIC_URL", value, "compute.E004")
            for value in ("", "gpu.example.org", "ftp://a", "http://", "http://a/b", "http://a:x", "http://a?b", "//a")
        ],
    ],
)
def test_a_bad_value_is_named_with_a_hint(settings: Settings, name: str, value: object, identifier: str) -> None:
    setattr(settings, name, value)
    [message] = found()
    assert (message.id, name in message.msg, bool(message.hint)) == (identifier, True, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COMPUTE_APP_PORTS", "10200-10299, 10400"),
        ("COMPUTE_SESSION_SUBNETS", ["172.17.0.0/16", "fd00::/8"]),
        ("COMPUTE_TRUSTED_PROXIES", ["127.0.0.1/32"]),
        ("COMPUTE_APPS_KEYS", ["new:" + "k" * 32, "old:" + "j" * 32]),
        ("COMPUTE_PUBLIC_URL", "https://gpu.example.org/"),
        ("COMPUTE_PUBLIC_URL", "http://[::1]:8000"),
    ],
)
def test_a_good_value_passes(settings: Settings, name: str, value: object) -> None:
    setattr(settings, name, value)
    assert found() == []


def test_an_https_site_needs_an_https_url(settings: Settings) -> None:
    settings.COMPUTE_HTTPS, settings.COMPUTE_PUBLIC_URL = True, "http://gpu.example.org"
    assert [message.id for message in found()] == ["compute.E004"]
