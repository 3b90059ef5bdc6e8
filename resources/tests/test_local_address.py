"""The address by which other hosts reach this one for the networks of clusters."""

import socket
from contextlib import closing

import pytest
from pytest_django import Settings

from resources.hosts import local_address

pytestmark = [pytest.mark.django_db, pytest.mark.enable_socket]


def test_the_setting_goes_before_what_is_found(settings: Settings) -> None:
    settings.COMPUTE_CLUSTER_ADDRESS = "10.0.0.7"
    assert local_address.for_clusters() == "10.0.0.7"


def test_what_is_found_is_an_address_of_this_machine(settings: Settings) -> None:
    settings.COMPUTE_CLUSTER_ADDRESS = ""
    address = local_address.for_clusters()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_DGRAM)) as probe:
        probe.bind((address, 0))


def test_the_device_of_an_address_is_found() -> None:
    assert local_address.device_of("127.0.0.1") == "lo"
    assert local_address.device_of("192.0.2.1") == ""
