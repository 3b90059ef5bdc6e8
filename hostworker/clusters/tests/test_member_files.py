"""The files of a member, and what its entry script makes of them in a real shell."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hostworker.cluster_protocol import ClusterPlace, HostNetwork
from hostworker.clusters import member_files

PLACE = ClusterPlace(
    cluster="head",
    network="100.64.3.0/24",
    names=("main1", "sub1"),
    addresses=("100.64.3.1", "100.64.3.2"),
    hosts=("10.0.0.1", "10.0.0.1"),
    index=2,
    private_key="the private key\n",
    public_key="ssh-ed25519 AAAA",
)


def test_a_member_has_names_slots_and_keys(tmp_path: Path) -> None:
    for _ in range(2):  # a worker that dies is followed by one that writes them again
        folder, config = member_files.write(tmp_path, PLACE, 2)
    assert (folder.target, folder.read_only) == ("/etc/cluster", True)
    assert (folder.source / "hostfile").read_text() == "main1 slots=2\nsub1 slots=2\n"
    assert (folder.source / "known_hosts").read_text() == "cluster ssh-ed25519 AAAA\n"
    assert "ListenAddress 100.64.3.2\n" in (folder.source / "sshd_config").read_text()
    assert "Host main1 sub1\n" in config.source.read_text()
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_members_on_a_host_have_ports_of_their_own_there(tmp_path: Path) -> None:
    ports = HostNetwork(ssh_ports=(20000, 20001), program_ports=(20064, 20065))
    place = replace(PLACE, host_network=ports, addresses=PLACE.hosts)
    folder, config, hosts = member_files.write(tmp_path, place, 0)
    assert (hosts.target, hosts.read_only) == ("/etc/hosts", True)
    assert hosts.source.read_text().endswith("10.0.0.1\tmain1\n10.0.0.1\tsub1\n")
    assert "Port 20001\nListenAddress 10.0.0.1\n" in (folder.source / "sshd_config").read_text()
    assert config.source.read_text().endswith("Host main1\n    Port 20000\nHost sub1\n    Port 20001\n")


def test_the_hostfile_names_those_that_are_present(tmp_path: Path) -> None:
    member_files.update_hostfile(tmp_path, PLACE)  # of an attempt that has ended
    addresses = (*PLACE.addresses, "100.64.3.3")
    grown = replace(PLACE, names=("main1", "sub1", "sub2"), addresses=addresses, hosts=(*PLACE.hosts, "10.0.0.3"))
    folder, config = member_files.write(tmp_path, replace(grown, hosts=(*PLACE.hosts, "")), 2)
    hostfile = folder.source / "hostfile"
    assert hostfile.read_text() == "main1 slots=2\nsub1 slots=2\n"
    assert "Host main1 sub1 sub2\n" in config.source.read_text()
    for _ in range(2):
        member_files.update_hostfile(tmp_path, grown)
        assert hostfile.read_text() == "main1 slots=2\nsub1 slots=2\nsub2 slots=2\n"
    assert hostfile.stat().st_mode & 0o777 == 0o444


@pytest.fixture
def begin(tmp_path: Path) -> Path:
    """The script of the entry, in folders of the test."""
    folder, _ = member_files.write(tmp_path, PLACE, 0)
    script = tmp_path / "begin"
    text = member_files.BEGIN.replace(member_files.TARGET, str(folder.source))
    script.write_text(text.replace(member_files.OWN, str(tmp_path / "own")).replace("command -v sshd", "false"))
    return script


def test_a_command_waits_until_it_may_begin(begin: Path, tmp_path: Path) -> None:
    entry = ["sh", "-c", f'. {begin}; echo begun "$@"', "entry", "command"]
    with subprocess.Popen(entry, stdout=subprocess.PIPE, env={"PATH": "/bin:/usr/bin", "RANK": "it's 1"}) as waiting:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(0.3)
        member_files.let_begin(tmp_path)
        assert waiting.communicate()[0] == b"begun command\n"
    key = tmp_path / "own/key"
    assert (key.read_text(), key.stat().st_mode & 0o777) == (PLACE.private_key, 0o600)
    read = f'. {tmp_path}/own/environment; echo "$RANK"'
    assert subprocess.run(["sh", "-c", read], capture_output=True, text=True, check=True).stdout == "it's 1\n"


def test_a_session_without_a_command_waits_for_nobody(begin: Path) -> None:
    assert not subprocess.run(["sh", "-c", f". {begin}"], check=True).returncode
