"""What the program does around OpenSSH and editors: their files and arguments, with the real `ssh` as their reader."""

import signal
import subprocess
from pathlib import Path

import pytest

from accounts.credentials.ssh_keys import record_ssh_host_key
from accounts.models import ApiToken, User
from gpuplatform_client.tests.program import Command, RunningProgram
from sessions.models import Session
from sshserver.tests.ssh_client import SshClient
from tests.factories import make_group, make_host, make_user, run_cluster, run_session
from tests.live import LiveServer
from tests.wait import until

pytestmark = [pytest.mark.loopback, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def user(transactional_db: None) -> User:
    return make_user(email="user@example.org")


@pytest.fixture
def session(user: User, tmp_path: Path) -> Session:
    """A session `train` of the user; the SSH server has a key."""
    record_ssh_host_key(SshClient(tmp_path, 0).new_key("host"))
    return run_session(host=make_host(group=make_group(name="lab")), owner=user, name="train")


def effective(home: Path, host: str) -> dict[str, str]:
    """Return what ssh makes of the configuration."""
    command = ["ssh", "-G", "-F", str(home / ".ssh/config"), host]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(line.partition(" ")[::2] for line in shown.splitlines())


def started(home: Path, fake: tuple[str, str], *arguments: str, server: LiveServer, user: User) -> RunningProgram:
    """Run the program, where another one of this name is this line of the shell."""
    program = home / "bin" / fake[0]
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{fake[1]}\n")
    program.chmod(0o755)
    token = ApiToken.objects.issue(user)[1]
    return RunningProgram(server.url, token, home, *arguments, path=f"{program.parent}:/usr/bin:/bin")


def calls(home: Path, name: str, *arguments: str, server: LiveServer, user: User) -> list[str]:
    """Return the arguments with which the program starts another."""
    with started(home, (name, 'printf "%s\\n" "$@"'), *arguments, server=server, user=user) as running:
        assert running.wait() == 0, running.messages
    return "".join(running.lines).splitlines()


def test_ssh_finds_sessions_by_the_written_configuration(signed_in: Command, session: Session, tmp_path: Path) -> None:
    run_session(host=session.host, owner=make_user(), name="foreign")
    config = tmp_path / ".ssh/config"
    config.parent.mkdir()
    own = b"# caf\xe9, in Latin-1\r\nHost other\n    User me\n"
    config.write_bytes(own)
    assert signed_in("ssh-config").stdout == "train.gpu\n"
    found = effective(tmp_path, "train.gpu")
    assert (found["user"], found["hostname"], found["stricthostkeychecking"]) == (session.pk, "127.0.0.1", "true")
    known = Path(found["userknownhostsfile"].strip('"'))
    assert (
        known.read_text() == f"[127.0.0.1]:{found['port']} {(tmp_path / 'host.pub').read_text().rpartition(' ')[0]}\n"
    )
    assert effective(tmp_path, "data.gpu")["user"] == "data"
    assert effective(tmp_path, "other")["user"] == "me"
    assert effective(tmp_path, "foreign.gpu")["user"] not in Session.objects.values_list("pk", flat=True)
    written = config.read_bytes(), ssh_files_of(tmp_path).read_text(), ssh_files_of(tmp_path).stat().st_mtime_ns
    signed_in("ssh-config")
    assert written == (
        config.read_bytes(),
        ssh_files_of(tmp_path).read_text(),
        ssh_files_of(tmp_path).stat().st_mtime_ns,
    )
    signed_in("ssh-config", "--remove")
    assert config.read_bytes() == own


def ssh_files_of(home: Path) -> Path:
    [path] = home.rglob("ssh_config")
    return path


def test_a_linked_configuration_stays_a_link(signed_in: Command, session: Session, tmp_path: Path) -> None:
    (tmp_path / "dotfiles").write_text("# mine\n")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").symlink_to(tmp_path / "dotfiles")
    signed_in("ssh-config")
    assert (tmp_path / ".ssh/config").is_symlink()
    assert (tmp_path / "dotfiles").read_text().endswith("# mine\n")
    assert effective(tmp_path, "train.gpu")["user"] == session.pk


def test_members_of_clusters_have_host_names(signed_in: Command, user: User, tmp_path: Path) -> None:
    head, member = run_cluster(2, hosts=[make_host()], owner=user, name="train")
    signed_in("ssh-config")
    assert effective(tmp_path, "train.gpu")["user"] == head.pk
    assert effective(tmp_path, "train.sub1.gpu")["user"] == member.pk
    assert "stricthostkeychecking" not in signed_in("ssh-config", "--print").stdout.lower()  # no key is known yet


def test_an_editor_opens_the_session(signed_in: Command, session: Session, server: LiveServer, tmp_path: Path) -> None:
    opened = calls(tmp_path, "code", "code", "train", "/data/run 1", server=server, user=session.owner)
    assert opened == ["--remote", "ssh-remote+train.gpu", "/data/run 1"]
    assert effective(tmp_path, "train.gpu")["user"] == session.pk
    printed = signed_in("code", session.pk, "--cursor", "--print").stdout
    assert printed == "cursor --remote ssh-remote+train.gpu\n"
    missing = signed_in("code", "train", "/x", PATH=str(tmp_path / "nothing"))
    assert (missing.exit_code, "code --remote ssh-remote+train.gpu /x" in missing.stderr) == (1, True)
    assert "Write the path from / on" in signed_in("code", "train", "x").stderr


def test_ports_are_forwarded_from_loopback_alone(
    signed_in: Command, session: Session, server: LiveServer, tmp_path: Path
) -> None:
    words = calls(tmp_path, "ssh", "port-forward", "train", "8888", "9000:80", server=server, user=session.owner)
    assert [words[at + 1] for at, word in enumerate(words) if word == "-L"] == [
        "127.0.0.1:8888:localhost:8888",
        "127.0.0.1:9000:localhost:80",
    ]
    assert {"ExitOnForwardFailure=yes", "StrictHostKeyChecking=yes", f"{session.pk}@127.0.0.1"} <= set(words)
    opened = calls(tmp_path, "ssh", "port-forward", "train", "80", "--address", "::", server=server, user=session.owner)
    assert "[::]:80:localhost:80" in opened
    for ports in (("0",), ("65536",), ("x:1",), ("1:2:3",), ("٣",), ("80", "--address", "x")):
        assert signed_in("port-forward", "train", *ports).exit_code == 2


def test_a_directory_is_followed_until_interrupted(session: Session, server: LiveServer, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here/\x1b[2Jname").write_text("one")
    copy = tmp_path / "there/\x1b[2Jname"
    words = ("sync", str(tmp_path / "here"), f"train:{tmp_path / 'there'}", "--watch")
    fake = ("ssh", f'echo "$@" > {tmp_path}/words; exec /usr/lib/openssh/sftp-server')
    with started(tmp_path, fake, *words, server=server, user=session.owner) as running:
        until(lambda: copy.exists() and copy.read_text() == "one")
        (tmp_path / "here/\x1b[2Jname").write_text("more")
        until(lambda: copy.read_text() == "more")
        running.process.send_signal(signal.SIGINT)
        running.wait()
    assert running.lines == ["+ \\x1b[2Jname\n"] * 2
    sent = (tmp_path / "words").read_text()
    assert f"{session.pk}@127.0.0.1 sftp" in sent
    assert "StrictHostKeyChecking=yes" in sent
