"""Networks of clusters between namespaces that stand for hosts and members: real devices, a real packet filter."""

import errno
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import pytest

from hostworker.privileged.base import ContainerFiles, PrivilegesError
from hostworker.privileged.cluster_network import devices, reachability
from hostworker.privileged.cluster_network.network import MEMBER_DEVICE, PORT, ClusterNetwork, hardware_address
from hostworker.runtime.container_config import SUDO_CAPABILITIES
from tests.namespaces import Namespace, namespaces
from tests.wait import SECONDS

pytestmark = pytest.mark.enable_socket

OWN: Final = ClusterNetwork.of("100.64.1.0/24")
OTHER: Final = ClusterNetwork.of("100.64.2.0/24")
OWNER: Final = "ours"  # installation
NAMES: Final = ("main1", "sub1", "sub2")
HOSTS: Final = ("198.18.0.1", "198.18.0.2", "198.18.0.3")
SERVED: Final = 7000
LAST: Final = b"last"


@dataclass(frozen=True)
class Site:
    """Hosts, each on one cable, and the members' namespaces."""

    hosts: Sequence[Namespace]
    members: Sequence[Namespace]
    stranger: Namespace  # a machine of nobody's on the same cable
    session: Namespace  # whose packets leave the first host with that one's address
    names: Path  # stands for each member's /etc/hosts

    def hold(self, host: int, network: ClusterNetwork, elsewhere: Mapping[int, int]) -> None:
        """Have the network on a host; `elsewhere` is {member's index: number of its host}."""
        table = {network.member(index): ip_address(HOSTS[number]) for index, number in elsewhere.items()}
        self.hosts[host].do(devices.hold, network, ip_address(HOSTS[host]), table, OWNER)

    def files(self, member: int) -> ContainerFiles:
        holder = self.members[member].pid
        return ContainerFiles(container_id="", pid=holder, hostname_path=self.names, hosts_path=self.names)

    def join(self, host: int, member: int, network: ClusterNetwork, index: int) -> None:
        self.hosts[host].do(devices.join, self.files(member), network, NAMES, index)

    def hears(self, member: int, by: int, network: ClusterNetwork, index: int, other: Callable[[], object]) -> bytes:
        """Return all that the member, which has this index, hears until what the other sends it after `other`."""

        def listen() -> socket.socket:
            listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            listening.bind(("", SERVED))
            listening.settimeout(SECONDS)
            return listening

        with self.members[member].do(listen) as listening:
            other()
            self.members[by].do(send, str(network.member(index)), SERVED, LAST)
            return b"".join(iter(lambda: listening.recv(10_000), LAST))

    def is_reached(self, by: int, member: int, index: int) -> bool:
        """Return whether a member of the first cluster reaches another."""
        return self.hears(member, by, OWN, index, lambda: None) == b""


def send(where: str, port: int, said: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending, suppress(OSError):  # as where a rule drops it
        sending.sendto(said, (where, port))


def reaches(where: str) -> bool:
    """Return whether there is a way to the address."""
    with socket.socket() as asking:
        return asking.connect_ex((where, SERVED)) != errno.ENETUNREACH


def forged(network: ClusterNetwork, index: int, said: bytes = b"forged") -> bytes:
    """Return a packet of VXLAN with a datagram for a member, as if another member had sent it."""
    source, target = network.member(1), network.member(index)
    udp = struct.pack("!HHHH", 1, SERVED, 8 + len(said), 0) + said
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0, source.packed, target.packed)
    total = sum(struct.unpack("!10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    checked = head[:10] + struct.pack("!H", ~total & 0xFFFF) + head[12:]
    frame = b"".join(bytes.fromhex(hardware_address(each).replace(":", "")) for each in (target, source))
    return struct.pack("!II", 0x08000000, network.number << 8) + frame + b"\x08\x00" + checked + udp


@contextmanager
def running_site(folder: Path) -> Iterator[Site]:
    """Three hosts; of the first cluster members 1 and 2 on the first and 3 on the second, of the other 3 and 1."""
    names = folder / "hosts"
    names.write_text("127.0.0.1\tlocalhost\nff02::1\tip6-allnodes\n172.18.0.3\tgp-sandbox\n")
    with namespaces(2 + len(HOSTS) + 6) as (cable, session, *others):
        made = Site(others[: len(HOSTS)], others[len(HOSTS) :], cable, session, names)
        cable.run("ip", "link", "add", "lan", "type", "bridge")
        cable.run("ip", "link", "set", "lan", "up")
        cable.run("ip", "address", "add", "198.18.0.9/24", "dev", "lan")
        for number, host in enumerate(made.hosts):
            end = f"host{number}"
            cable.run("ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", str(host.pid))
            cable.run("ip", "link", "set", end, "master", "lan", "up")
            host.run("ip", "address", "add", f"{HOSTS[number]}/24", "dev", "eth0")
            host.run("ip", "link", "set", "eth0", "up")
            host.do(devices.keep, [], OWNER)
        let_out(session, made.hosts[0])
        for number, network, elsewhere in (
            (0, OWN, {3: 1}),
            (1, OWN, {1: 0, 2: 0}),
            (0, OTHER, {3: 1}),
            (1, OTHER, {1: 0}),
        ):
            made.hold(number, network, elsewhere)
        for number, member, network, index in (
            (0, 0, OWN, 1),
            (0, 1, OWN, 2),
            (1, 2, OWN, 3),
            (1, 3, OTHER, 3),
            (0, 4, OTHER, 1),
        ):
            made.join(number, member, network, index)
        yield made


def let_out(session: Namespace, host: Namespace) -> None:
    """Connect a session to its host, as an engine does."""
    host.run("ip", "link", "add", "sessions", "type", "veth", "peer", "name", "eth0", "netns", str(session.pid))
    for namespace, device, address in ((host, "sessions", "172.18.0.1"), (session, "eth0", "172.18.0.2")):
        namespace.run("ip", "address", "add", f"{address}/24", "dev", device)
        namespace.run("ip", "link", "set", device, "up")
    session.run("ip", "route", "add", "default", "via", "172.18.0.1")
    host.run("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
    host.run("iptables", "-w", "-t", "nat", "-A", "POSTROUTING", "-s", "172.18.0.2", "-j", "MASQUERADE")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """What tests leave as it is."""
    with running_site(tmp_path_factory.mktemp("names")) as made:
        yield made


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[Site]:
    """What a test may change."""
    with running_site(tmp_path) as made:
        yield made


def test_this_kernel_has_what_networks_of_clusters_take() -> None:
    assert devices.problem() == ""


def test_members_reach_each_other_on_one_host_and_across_two(site: Site) -> None:
    assert site.is_reached(0, 1, 2)
    assert site.is_reached(0, 2, 3)
    assert site.is_reached(2, 1, 2)


def test_it_is_known_who_does_not_answer_to_a_member(site: Site) -> None:
    others = [OWN.member(index) for index in (2, 3, 9)]
    assert reachability.silent(site.files(0), others) == [OWN.member(9)]


def test_members_find_each_other_by_name(site: Site) -> None:
    site.join(0, 0, OWN, 1)
    assert site.names.read_text().splitlines() == [
        *("127.0.0.1\tlocalhost", "ff02::1\tip6-allnodes"),
        *("100.64.1.1\tmain1", "100.64.1.2\tsub1", "100.64.1.3\tsub2"),
    ]


def test_members_reach_neither_other_clusters_nor_hosts(site: Site) -> None:
    for by in (0, 2):
        target = str(OTHER.member(3))
        assert site.hears(3, 4, OTHER, 3, partial(site.members[by].do, send, target, SERVED, b"stranger")) == b""
        for address in HOSTS:
            assert not site.members[by].do(reaches, address)
    for host in site.hosts:
        assert not host.do(reaches, str(OWN.member(3)))


@pytest.mark.parametrize(("network", "member", "by"), [(OWN, 2, 0), (OTHER, 3, 4)])
def test_forged_packets_reach_no_member(site: Site, network: ClusterNetwork, member: int, by: int) -> None:
    def forge() -> None:
        for source in (*site.hosts, *site.members, site.stranger, site.session):
            for size in (6, 3000):
                source.do(send, HOSTS[1], PORT, forged(network, 3, bytes(size)))

    assert site.hears(member, by, network, 3, forge) == b""


@pytest.mark.parametrize(
    "words",
    [
        f"link set {MEMBER_DEVICE} address 02:00:64:40:01:02",
        f"address add 100.64.1.2/24 dev {MEMBER_DEVICE}",
        f"neighbour replace 100.64.1.2 lladdr 02:00:64:40:01:03 dev {MEMBER_DEVICE}",
        f"link add link {MEMBER_DEVICE} name another type macvlan",
        "route add 100.64.2.0/24 via 100.64.1.3",
    ],
)
def test_root_of_a_session_changes_nothing_of_its_network(site: Site, words: str) -> None:
    capabilities = f"-all,{','.join(f'+{each.lower()}' for each in SUDO_CAPABILITIES)}"
    with pytest.raises(subprocess.CalledProcessError) as refused:
        site.members[0].run("setpriv", "--inh-caps=-all", f"--bounding-set={capabilities}", "ip", *words.split())
    assert "not permitted" in refused.value.stderr


def test_repeating_changes_nothing(site: Site) -> None:
    member = site.members[0]
    before = member.run("ip", "link", "show", MEMBER_DEVICE), rules_of(site.hosts[0])
    site.hold(0, OWN, {3: 1})
    site.join(0, 0, OWN, 1)
    assert (member.run("ip", "link", "show", MEMBER_DEVICE), rules_of(site.hosts[0])) == before
    assert site.is_reached(0, 2, 3)


def rules_of(host: Namespace) -> str:
    return host.run("iptables", "-w", "-S")


def test_hosts_may_have_addresses_of_ipv6(own_site: Site) -> None:
    host, local = own_site.hosts[2], ip_address("fd00::3")
    host.run("ip", "address", "add", "fd00::3/64", "dev", "eth0", "nodad")
    table = {OWN.member(1): ip_address("fd00::1")}
    host.do(devices.hold, OWN, local, table, OWNER)
    made = host.run("ip", "-details", "link", "show", OWN.device)
    assert "mtu 1430" in made
    host.do(devices.hold, OWN, local, table, OWNER)
    assert host.run("ip", "-details", "link", "show", OWN.device) == made
    assert "-s fd00::1/128 -j RETURN" in host.run("ip6tables", "-w", "-S")


def test_what_died_halfway_is_finished(own_site: Site) -> None:
    device = ("link", "set", MEMBER_DEVICE)
    own_site.members[1].run("ip", *device, "down")
    own_site.hosts[0].run("ip", "link", "set", OWN.device, "down")
    own_site.hold(0, OWN, {3: 1})
    own_site.join(0, 1, OWN, 2)
    assert own_site.is_reached(2, 1, 2)


def test_a_member_that_moves_is_found_on_its_new_host(own_site: Site) -> None:
    own_site.hold(0, OTHER, {})
    own_site.hold(0, OWN, {3: 2})
    assert f"-s {HOSTS[2]}/32" in rules_of(own_site.hosts[0])
    assert f"-s {HOSTS[1]}/32" not in rules_of(own_site.hosts[0]), "a host without members is let in no more"
    own_site.hold(2, OWN, {1: 0, 2: 0})
    own_site.join(2, 5, OWN, 3)
    assert own_site.is_reached(0, 5, 3)
    assert own_site.is_reached(5, 1, 2)


def test_ended_networks_are_removed_and_others_kept(own_site: Site) -> None:
    host = own_site.hosts[1]
    foreign = ClusterNetwork.of("100.80.0.0/24")
    host.do(devices.hold, foreign, ip_address(HOSTS[1]), {}, "another")
    host.do(devices.keep, [OTHER], OWNER)
    assert set(host.do(devices._devices)) == {OTHER.device, foreign.device}
    assert MEMBER_DEVICE not in own_site.members[2].run("ip", "link"), "gone with the host's device"
    assert MEMBER_DEVICE in own_site.members[3].run("ip", "link")


def test_a_network_of_another_installation_is_left_to_it(own_site: Site) -> None:
    host = own_site.hosts[0]
    with pytest.raises(PrivilegesError, match="another installation"):
        host.do(devices.hold, OWN, ip_address(HOSTS[0]), {}, "another")
    host.do(devices.keep, [], "another")
    assert own_site.is_reached(0, 1, 2)


def test_a_network_left_half_made_is_taken_over(own_site: Site) -> None:
    host, network = own_site.hosts[2], ClusterNetwork.of("100.64.9.0/24")
    host.do(devices._create, network, ip_address(HOSTS[2]))
    host.do(devices.hold, network, ip_address(HOSTS[2]), {}, OWNER)
    assert f"alias {OWNER}" in host.run("ip", "link", "show", network.device)


def test_an_address_of_no_interface_is_an_error(site: Site) -> None:
    with pytest.raises(PrivilegesError, match="no address of this host"):
        site.hosts[0].do(devices.hold, OTHER, ip_address("203.0.113.1"), {}, OWNER)
