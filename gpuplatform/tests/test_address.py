"""The address of the web process."""

import socket

import pytest

from operations.machine.address import Address, address_from, health
from operations.machine.progress import SetupError
from tests.ports import free_port

pytestmark = pytest.mark.loopback


@pytest.mark.parametrize(
    ("text", "address", "url"),
    [
        ("127.0.0.1:8000", Address("127.0.0.1", 8000), "http://127.0.0.1:8000/"),
        ("localhost:80", Address("localhost", 80), "http://localhost:80/"),
        ("0.0.0.0:8000", Address("0.0.0.0", 8000), "http://127.0.0.1:8000/"),
        ("[::]:8000", Address("::", 8000), "http://[::1]:8000/"),
    ],
)
def test_an_address_is_parsed_and_shown_as_url(text: str, address: Address, url: str) -> None:
    assert address_from(text) == address
    assert address.url == url


@pytest.mark.parametrize("text", ["", "8000", "localhost", "localhost:", "localhost:0", "localhost:65536", "::1:80"])
def test_a_malformed_address_is_refused_with_the_settings_name(text: str) -> None:
    with pytest.raises(SetupError, match="COMPUTE_HTTP_ADDRESS"):
        address_from(text)


def test_a_port_in_use_is_not_free() -> None:
    address = Address("127.0.0.1", free_port())
    with socket.create_server(("127.0.0.1", address.port)):
        assert not address.is_free()
    assert address.is_free()
    assert health(address, ["*"]) is None


def test_a_name_that_is_no_address_is_explained() -> None:
    with pytest.raises(SetupError, match=r"nowhere\.invalid"):
        Address("nowhere.invalid", 8000).is_free()
