"""Nobody reaches the platform's own network through a webhook."""

import ipaddress

import pytest

from webhooks.destinations import InvalidUrlError, check_url, is_allowed, networks_of

LAB = networks_of(["10.20.0.0/16"])


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::5db8:d70e"])
def test_public_addresses_are_allowed_with_tls_alone(address: str) -> None:
    assert is_allowed(ipaddress.ip_address(address), (), is_encrypted=True)
    assert not is_allowed(ipaddress.ip_address(address), (), is_encrypted=False)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "0.0.0.0", "10.20.0.1", "172.17.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
        *("224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "fec0::1", "ff02::1", "::127.0.0.1"),
        *("::ffff:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:a9fe:a9fe::1"),
    ],
)
def test_no_other_address_is_allowed(address: str) -> None:
    assert not is_allowed(ipaddress.ip_address(address), (), is_encrypted=True)


def test_networks_of_the_operator_are_allowed_without_tls() -> None:
    assert is_allowed(ipaddress.ip_address("10.20.3.4"), LAB, is_encrypted=False)
    assert is_allowed(ipaddress.ip_address("::ffff:10.20.3.4"), LAB, is_encrypted=False)
    assert not is_allowed(ipaddress.ip_address("10.21.3.4"), LAB, is_encrypted=True)
    check_url("http://10.20.3.4/hook", LAB)
    check_url("http://ci.lab/hook", LAB)


@pytest.mark.parametrize("url", ["https://ci.example.org/hook?x=1", "https://ci.example.org:8443", "https://1.1.1.1/"])
def test_urls_are_accepted(url: str) -> None:
    check_url(url, ())


@pytest.mark.parametrize(
    "url",
    [
        *("", "ci.example.org", "http://ci.example.org/", "ftp://ci.example.org/", "file:///etc/passwd", "https://"),
        *("https://user:secret@ci.example.org/", "https://ci.example.org:0/", "https://ci.example.org:99999/"),
        *("https://127.0.0.1/", "https://[::1]/", "https://169.254.169.254/latest/", "https://ci.example.org/a b"),
        *("https://ci.example.org/\r\nx: y", "https://[::1", "https://cí.example.org/"),
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidUrlError):
        check_url(url, ())
