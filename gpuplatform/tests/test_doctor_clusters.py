"""What doctor says of a host's networks of clusters."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from pytest_django import Settings

from hostworker.privileged.cluster_network import devices, reachability
from hostworker.privileged.cluster_network.network import PORT
from operations.doctor import clusters
from operations.doctor.clusters import networks_of_clusters
from operations.doctor.findings import Verdict
from resources.hosts import local_address
from tests.factories import make_host

pytestmark = [pytest.mark.django_db, pytest.mark.enable_socket]


@pytest.fixture(autouse=True)
def _possible(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.COMPUTE_CLUSTER_ADDRESS = "127.0.0.1"
    monkeypatch.setattr(clusters, "cluster_problem", lambda: "")


def test_address_size_of_packets_and_answers_are_said(settings: Settings) -> None:
    size = local_address.mtu_of("lo") - 50
    words = f"possible; other hosts reach this one at 127.0.0.1, with packets of {size} bytes between members"
    assert networks_of_clusters().text == f"{words} (MTU of lo less 50)"
    settings.COMPUTE_CLUSTER_PEERS = ["127.0.0.2"]
    found = networks_of_clusters()
    assert found.verdict is Verdict.OK
    assert found.text.endswith("; 127.0.0.2 answers")


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address that answers nobody: it has a listener whose queue is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.3", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket(type=socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            waiting.connect_ex(listener.getsockname())
        monkeypatch.setattr(reachability, "DISCARD", listener.getsockname()[1])
        yield "127.0.0.3"


def test_other_hosts_that_do_not_answer_are_named(settings: Settings, silent: str) -> None:
    settings.COMPUTE_CLUSTER_PEERS = ["127.0.0.2"]
    make_host(cluster_address=silent)
    found = networks_of_clusters()
    assert found.verdict is Verdict.WARN
    assert found.text.endswith(f"; {silent} does not answer")
    assert f"UDP port {PORT}" in found.hint


def test_an_address_of_another_machine_is_named(settings: Settings) -> None:
    settings.COMPUTE_CLUSTER_ADDRESS = "192.0.2.1"  # of documentation: nobody's
    found = networks_of_clusters()
    assert (found.verdict, found.hint) == (Verdict.WARN, "set COMPUTE_CLUSTER_ADDRESS")
    assert found.text.endswith("but no network device has that address")


def test_a_port_of_another_program_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as other:
        other.bind(("127.0.0.1", 0))
        monkeypatch.setattr(devices, "PORT", other.getsockname()[1])  # others on this machine may have the real one
        monkeypatch.setattr(devices, "_devices", dict)
        assert devices.problem() == f"another program on this machine has UDP port {other.getsockname()[1]}"
        monkeypatch.setattr(devices, "_devices", lambda: {"gpc644003": {}})
        assert devices.problem() == ""


def test_one_check_is_asked_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("doctor", "Python", "user")
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["user", "Python"]
    with pytest.raises(CommandError, match="no check 'pythn'"):
        call_command("doctor", "pythn")
