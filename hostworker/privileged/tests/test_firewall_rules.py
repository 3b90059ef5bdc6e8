"""The rules that keep sessions from private networks, and what is left within reach."""

from ipaddress import ip_address, ip_network

import pytest

from hostworker.privileged.firewall import Firewall

NAME_SERVERS = ("10.1.2.3", "8.8.8.8", "127.0.0.53", "100.100.2.136", "fd00::53", "2001:db8::53")
ANSWERS = "-m conntrack --ctdir REPLY -j RETURN"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have none of the name servers on this machine."""
    monkeypatch.setattr("hostworker.privileged.firewall._is_of_host", lambda address: False)


def forwarded(*, deny_private: bool) -> tuple[list[str], list[str]]:
    """Return the rules for what a bridge passes on, of IPv4 and of IPv6."""
    wall = Firewall("gp0", lambda: NAME_SERVERS, deny_private=deny_private)
    chains = wall._chains("FORWARD")[1:], wall._chains_ipv6()[1:]
    return [rule for each in chains[0] for rule in each.rules], [rule for each in chains[1] for rule in each.rules]


def dropped(rules: list[str], text: str) -> bool:
    """Return whether a connection to the address, to no port that is named, is dropped."""
    address = ip_address(text)
    targets = [rule.split()[1] for rule in rules if rule.startswith("-d ") and rule.endswith(" -j DROP")]
    return any(address in ip_network(target) for target in targets)


def asked(address: str) -> list[str]:
    return [f"-d {address} -p {kind} -m {kind} --dport 53 -j RETURN" for kind in ("udp", "tcp")]


@pytest.mark.parametrize(
    "address",
    [
        *("10.0.0.1", "10.255.255.254", "172.16.0.1", "172.31.255.254", "192.168.0.1", "192.168.255.254"),
        *("100.64.0.1", "100.127.255.254", "fc00::1", "fd12:3456::1"),
    ],
)
def test_private_addresses_are_dropped_where_denied_alone(address: str) -> None:
    family = ip_address(address).version == 6
    assert dropped(forwarded(deny_private=True)[family], address)
    assert not dropped(forwarded(deny_private=False)[family], address)


@pytest.mark.parametrize(
    "address", ["9.255.255.255", "11.0.0.1", "172.15.0.1", "172.32.0.1", "192.167.0.1", "100.128.0.1"]
)
def test_public_addresses_beside_private_networks_pass(address: str) -> None:
    assert not dropped(forwarded(deny_private=True)[False], address)


@pytest.mark.parametrize("address", ["169.254.1.1", "fe80::1"])
def test_link_local_addresses_are_dropped_in_any_case(address: str) -> None:
    family = ip_address(address).version == 6
    assert all(dropped(forwarded(deny_private=denied)[family], address) for denied in (False, True))


def test_private_name_servers_are_accepted_before_the_drops() -> None:
    four, six = forwarded(deny_private=True)
    assert four[3:7] == [*asked("10.1.2.3/32"), *asked("100.100.2.136/32")]
    assert six[3:5] == asked("fd00::53/128")
    for rules in (four, six):
        assert not [rule for rule in rules if "8.8.8.8" in rule or "127.0.0.53" in rule or "2001:db8" in rule]


def test_only_answers_to_what_others_began_pass_before_private_networks() -> None:
    for rules, first, drops in zip(forwarded(deny_private=True), ("10.0.0.0/8", "fc00::/7"), (4, 1), strict=True):
        at = rules.index(ANSWERS)
        assert rules[at + 1] == f"-d {first} -j DROP"
        assert len(rules) == at + 1 + drops
    assert all(ANSWERS not in rules for rules in forwarded(deny_private=False))
