"""Sessions are kept from their host's own services: real containers, a real packet filter, a real world outside."""

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread

import pytest
from django.conf import settings
from docker.api import APIClient
from docker.types import IPAMConfig, IPAMPool
from pytest_django import Settings

from hostworker.privileged.firewall import Firewall
from hostworker.runtime.container_config import bridge_device, network_options
from hostworker.runtime.docker.runtime import DockerRuntime
from hostworker.runtime.factory import firewall_problem
from hostworker.runtime.tests.runtime_worlds import ENGINE_URL, DockerWorld, make_spec
from hostworker.runtime_protocol import ContainerSpec
from operations import embedded
from operations.doctor import machine as doctor
from operations.doctor.findings import Verdict
from tests.tiny_image import ensure_tiny_image
from tests.wait import SECONDS, until

pytestmark = pytest.mark.docker

NETWORK = "gp-walled"
OUTSIDE = "203.0.113.2"  # of TEST-NET-3: nobody's
METADATA = ("169.254.169.254", "168.63.129.16", "100.100.100.200")  # of Amazon and others, Azure, Alibaba
SUBNET = "10.83.77.0/24"  # of NETWORK: what Docker would choose may have one of those below in it
GATEWAY = "10.83.77.1"
# One of each private network.
PRIVATE = ("10.255.77.2", "172.16.77.2", "192.168.255.2", "100.127.77.2")
PORT = 8099
DNS_PORT = 53


@dataclass(frozen=True)
class Walled:
    """A session's container on a network of its own, whose bridge has GATEWAY on the host."""

    world: DockerWorld
    spec: ContainerSpec
    wall: Firewall

    def answer(self, address: str, port: int, said: str = "hello", seconds: int = 60) -> str:
        """Return what the container hears from there within so long, "" where nothing answers."""
        command = f"printf '{said}' | nc -w {seconds} {address} {port} 2>/dev/null"
        return self.world.execute(self.spec.session, 1, command)[1].strip()

    def is_cut_off(self, address: str, port: int, said: str = "hello") -> bool:
        """Return whether nothing answers the container there."""
        return self.answer(address, port, said, seconds=1) == ""

    def reached(self, addresses: Sequence[str], port: int = PORT, seconds: int = 60) -> list[str]:
        """Return those of the addresses that answer the container within so long, asked all at once."""
        asked = [
            f"(printf hello | nc -w {seconds} {each} {port} | grep -q heard && echo {each}) &" for each in addresses
        ]
        answered = self.world.execute(self.spec.session, 1, f"({' '.join(asked)} wait) 2>/dev/null")[1].split()
        return [address for address in addresses if address in answered]


@pytest.fixture
def walled() -> Iterator[Walled]:
    """A container without rules around it as yet; in the end there are none again."""
    world = DockerWorld(ensure_tiny_image())
    runtime = DockerRuntime(world.installation, "here", ENGINE_URL, network=NETWORK)
    subnet = IPAMConfig(pool_configs=[IPAMPool(SUBNET, gateway=GATEWAY)])
    world.client.create_network(NETWORK, driver="bridge", options=network_options(NETWORK), ipam=subnet)
    spec = launch(runtime, world)
    device = bridge_device(NETWORK)
    try:
        yield Walled(world, spec, Firewall(device, list))
    finally:
        world.clean_up()
        with closing(APIClient(ENGINE_URL, version="auto")) as client:
            client.remove_network(NETWORK)
        tear_down(device)


def launch(runtime: DockerRuntime, world: DockerWorld) -> ContainerSpec:
    spec = make_spec(world.image)
    runtime.create(spec)
    runtime.start(spec.session, 1)
    return spec


def tear_down(device: str) -> None:
    """Remove the rules, which the platform itself never does."""
    for tool in ("iptables", "ip6tables"):
        rules = run(tool, "-w", "-S").splitlines()
        own = {rule.split()[1] for rule in rules if rule.startswith("-N GP-") and rule.endswith(f"-{device}")}
        for rule in rules:
            if rule.split()[-1] in own and rule.startswith("-A"):
                run(tool, "-w", "-D", *rule.split()[1:])
        for chain in own:
            run(tool, "-w", "-F", chain)
            run(tool, "-w", "-X", chain)


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Echo(BaseRequestHandler):
    """Answers a line with itself."""

    def handle(self) -> None:
        self.request.sendall(b"heard " + self.request.recv(1000))


@contextmanager
def serving(address: str = "0.0.0.0", port: int = 0, handler: type[BaseRequestHandler] = Echo) -> Iterator[int]:
    """Serve on this machine; return the port."""
    ThreadingTCPServer.allow_reuse_address = True
    with ThreadingTCPServer((address, port), handler) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@contextmanager
def outside() -> Iterator[None]:
    """Have a machine beyond this one that answers at OUTSIDE, at those of METADATA as clouds' do, and at PRIVATE."""
    name, link = "gp-outside", "gp-link"
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    run("ip", "netns", "add", name)
    try:
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "address", "add", "203.0.113.1/30", "dev", link)
        run("ip", "link", "set", link, "up")
        for address in (f"{OUTSIDE}/30", *METADATA, *PRIVATE):
            run("ip", "-n", name, "address", "add", address, "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        run("ip", "-n", name, "route", "add", "default", "via", "203.0.113.1")
        for address in (*METADATA, *PRIVATE):
            run("ip", "route", "add", address, "via", OUTSIDE)
        with subprocess.Popen(["ip", "netns", "exec", name, sys.executable, "-c", SERVER]) as process:
            try:
                until(lambda: all(can_connect(address) for address in (OUTSIDE, *METADATA, *PRIVATE)))
                yield
            finally:
                process.kill()
    finally:
        run("ip", "netns", "delete", name)


SERVER = f"""
import socketserver, threading
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"heard " + self.request.recv(1000))
class Server(socketserver.ThreadingTCPServer):
    request_queue_size = 100  # with the default of 5, connections at once wait for a second
names = Server(("", {DNS_PORT}), Echo)
threading.Thread(target=names.serve_forever, daemon=True).start()
Server(("", {PORT}), Echo).serve_forever()
"""


def can_connect(address: str) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((address, PORT)) == 0


def test_a_session_reaches_no_service_of_its_host(walled: Walled) -> None:
    with serving() as port:
        assert walled.answer(GATEWAY, port) == "heard hello", "this is what the rules are for"
        walled.wall.hold()
        assert walled.is_cut_off(GATEWAY, port)
        for address in own_addresses():
            assert walled.is_cut_off(address, port), "by no address of the host"
        assert walled.is_cut_off("127.0.0.1", port), "its loopback is its own"


def own_addresses() -> list[str]:
    """Return the addresses of this machine that others can reach."""
    words = run("ip", "-4", "-o", "address", "show", "scope", "global").split()
    return [after.partition("/")[0] for word, after in pairwise(words) if word == "inet"]


def relay_to(path: Path) -> type[BaseRequestHandler]:
    """Return a handler that binds a local socket to the network, as operators do who let other hosts in."""

    class Relay(BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as service:
                service.connect(str(path))
                service.sendall(self.request.recv(1000))
                self.request.sendall(service.recv(1000))

    return Relay


def test_a_session_reaches_neither_postgresql_nor_redis(walled: Walled) -> None:
    var_dir = Path(settings.COMPUTE_VAR_DIR)
    postgres = Path(embedded.socket_folder(var_dir), ".s.PGSQL.5432")
    asks_for_tls = r"\000\000\000\010\004\322\026\057"
    with (
        serving(handler=relay_to(postgres)) as database,
        serving(handler=relay_to(embedded.redis_socket(var_dir))) as redis,
    ):
        assert walled.answer(GATEWAY, redis, r"PING\n") == "+PONG"
        assert walled.answer(GATEWAY, database, asks_for_tls) == "N", "no TLS"
        walled.wall.hold()
        assert walled.is_cut_off(GATEWAY, redis, r"PING\n")
        assert walled.is_cut_off(GATEWAY, database, asks_for_tls)


def test_session_reaches_internet_but_no_cloud_metadata(walled: Walled) -> None:
    with outside():
        for address in METADATA:
            assert walled.answer(address, PORT) == "heard hello", "this is what the rules are for"
        walled.wall.hold()
        assert all(walled.is_cut_off(address, PORT) for address in METADATA)
        assert walled.answer(OUTSIDE, PORT) == "heard hello"


def test_private_networks_are_out_of_reach_where_denied(walled: Walled, monkeypatch: pytest.MonkeyPatch) -> None:
    device, name_server = bridge_device(NETWORK), PRIVATE[0]
    denying = Firewall(device, lambda: [name_server, "fd00::53"], deny_private=True)
    runtime = DockerRuntime(walled.world.installation, "here", ENGINE_URL, network=NETWORK)
    with outside():
        walled.wall.hold()
        assert walled.reached(PRIVATE) == [*PRIVATE], "this is what is denied"
        denying.hold()
        assert walled.reached((*PRIVATE, *METADATA), seconds=1) == []
        assert walled.answer(OUTSIDE, PORT) == "heard hello"
        assert walled.answer(name_server, DNS_PORT) == "heard hello"
        assert walled.is_cut_off(PRIVATE[1], DNS_PORT)
        address = serve_inside(walled.world, runtime, walled.spec)
        assert until(lambda: heard_from_host(address, 8000)) == b"heard\n", "the platform itself reaches its apps"
        Firewall(device, list, worker="another", deny_private=True).hold()
        walled.wall.hold()
        assert walled.reached(PRIVATE, seconds=1) == [], "another worker of the bridge still denies them"
        Firewall(device, list, worker="another").hold()
        assert walled.reached(PRIVATE) == [*PRIVATE], "the setting was taken back"
    denying.hold()
    with monkeypatch.context() as patched:
        patched.setattr("hostworker.privileged.firewall._run", lambda tool, *listed: run(tool, "-w", *listed))
        denying.hold()  # changes nothing where the rules are: it would give the lines to `run`, which takes none


def test_sessions_reach_each_other_neither_with_the_rules_nor_without(walled: Walled) -> None:
    runtime = DockerRuntime(walled.world.installation, "here", ENGINE_URL, network=NETWORK)
    address = serve_inside(walled.world, runtime, launch(runtime, walled.world))
    assert walled.is_cut_off(address, 8000)
    walled.wall.hold()
    assert walled.is_cut_off(address, 8000)
    assert until(lambda: heard_from_host(address, 8000)) == b"heard\n", "while the platform itself reaches them"


def serve_inside(world: DockerWorld, runtime: DockerRuntime, spec: ContainerSpec) -> str:
    """Have the container say a line to the first who connects to its port 8000; return its address."""
    served = world.client.exec_create(f"gp-{spec.session}-1", ["sh", "-c", "echo heard | nc -l -p 8000"])
    world.client.exec_start(served["Id"], detach=True)
    address = runtime.address(spec.session, 1)
    assert address
    return address


def heard_from_host(address: str, port: int) -> bytes:
    """Return what this machine hears from there, nothing where nobody listens."""
    with suppress(ConnectionRefusedError), socket.create_connection((address, port), timeout=SECONDS) as connection:
        return connection.recv(100)
    return b""


def test_containers_still_ask_for_names(walled: Walled) -> None:
    walled.wall.hold()
    name = f"gp-{walled.spec.session}-1"
    assert "Address" in walled.world.execute(walled.spec.session, 1, f"busybox nslookup {name} 127.0.0.11")[1]


def test_a_name_server_on_the_host_itself_stays_within_reach(walled: Walled) -> None:
    with serving(GATEWAY, 53), serving(GATEWAY) as other:
        walled.wall.hold()
        assert walled.is_cut_off(GATEWAY, 53)
        Firewall(bridge_device(NETWORK), lambda: [GATEWAY, "127.0.0.53", "2001:db8::1"]).hold()
        assert walled.answer(GATEWAY, 53) == "heard hello"
        assert walled.is_cut_off(GATEWAY, other)


def test_what_meddles_with_the_rules_is_undone(walled: Walled) -> None:
    walled.wall.hold()
    device = bridge_device(NETWORK)
    in_place = rules_of(device)
    walled.wall.hold()
    assert rules_of(device) == in_place
    run("iptables", "-w", "-I", "INPUT", "1", "-i", device, "-j", "ACCEPT")
    try:
        with serving() as port:
            assert walled.answer(GATEWAY, port) == "heard hello"
            walled.wall.hold()
            assert walled.is_cut_off(GATEWAY, port)
            run("iptables", "-w", "-F", f"GP-IN-{device}")
            walled.wall.hold()
            assert walled.is_cut_off(GATEWAY, port)
    finally:
        run("iptables", "-w", "-D", "INPUT", "-i", device, "-j", "ACCEPT")
    walled.wall.hold()
    assert run("iptables", "-w", "-S").splitlines().count(f"-A INPUT -i {device} -j GP-IN-{device}") == 1


def rules_of(device: str) -> list[str]:
    """Return the rules that name the device, in order; the others are none of ours and may change meanwhile."""
    return [rule for rule in run("iptables", "-w", "-S").splitlines() if device in rule]


def test_where_rules_cannot_be_kept_doctor_says_what_that_means(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor.CHECKS["firewall"]().verdict is Verdict.OK
    settings.COMPUTE_DOCKER_URL = "tcp://10.0.0.1:2375"
    assert firewall_problem() == "the container engine is on another machine"
    settings.COMPUTE_DOCKER_URL = ENGINE_URL
    settings.COMPUTE_FIREWALL = False
    assert doctor.CHECKS["firewall"]().text == f"off: {doctor.UNWALLED}"
    settings.COMPUTE_FIREWALL = True
    settings.COMPUTE_PRIVILEGED_HELPER = False
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    finding = doctor.CHECKS["firewall"]()
    assert finding.verdict is Verdict.WARN
    assert "the worker does not run as root" in finding.text
