"""SSH and SFTP into sessions: OpenSSH's clients, an SSH server, real containers."""

import hashlib
import secrets
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings

from accounts.credentials.ssh_keys import add_ssh_key, delete_ssh_key
from accounts.models import SshKey, User
from endpoints import services
from engine.containers import ATTEMPT_LABEL, HOST_LABEL, INSTALLATION_LABEL, SESSION_LABEL, container_name
from hostworker.runtime.tests.runtime_worlds import DockerWorld, make_spec
from hostworker.terminals.session_keys import SessionKeys
from resources.models import Host, Installation
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from sshserver.host_key import NAME, load_host_key
from sshserver.tests.ssh_client import SshClient, run
from tests.containers import Container, lent_container, running_container
from tests.factories import make_endpoint, make_host, make_session, make_user, run_session
from tests.gateways import running_gateway
from tests.ports import free_port
from tests.shell_image import ensure_shell_image
from tests.tiny_image import ensure_tiny_image
from tests.wait import until
from tests.workers import ssh_server

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.docker]


@pytest.fixture
def host() -> Host:
    """The host on which the SSH server runs."""
    return make_host(name=settings.COMPUTE_HOST_NAME)


@pytest.fixture
def owner() -> User:
    """A user without privileges."""
    return make_user()


@pytest.fixture
def container() -> Iterator[Container]:
    """A container with bash and sftp-server."""
    with lent_container(ensure_shell_image()) as running:
        yield running


@pytest.fixture
def session(host: Host, owner: User, container: Container) -> Session:
    """The owner's running session, `train`, in that container."""
    return session_in(container, host, owner, "train")


def session_in(container: Container, host: Host, owner: User, name: str) -> Session:
    """Return a running session in this container."""
    session = run_session(make_session(owner=owner, name=name, resource_group=host.group), host=host)
    Session.objects.filter(pk=session.pk).update(container_id=container.id)
    return session


@pytest.fixture(scope="module")
def port(django_db_setup: None) -> Iterator[int]:
    """The port of an SSH server."""
    port = free_port()
    with ssh_server(port, settings.COMPUTE_HOST_NAME):
        yield port


@pytest.fixture
def client(tmp_path: Path, port: int) -> SshClient:
    """A user with a folder for keys, and an SSH server to connect to."""
    return SshClient(tmp_path, port)


@pytest.fixture
def key(client: SshClient, owner: User) -> SshKey:
    """The owner's key, which the platform knows."""
    return add_ssh_key(owner, client.new_key(), "laptop")


@pytest.mark.usefixtures("key")
def test_a_command_has_its_streams_and_exit_status(client: SshClient, session: Session) -> None:
    done = client.run(session.pk, "cat; echo wrong >&2; exit 7", input="from here\n")
    assert (done.stdout, done.returncode) == ("from here\n", 7)
    assert "wrong\n" in done.stderr
    by_name = client.run("train", "pwd; echo $HOME; echo $UID")
    assert by_name.stdout == "/home/work\n/home/work\n1000\n"


@pytest.mark.usefixtures("key", "session")
def test_large_output_and_input_arrive_whole(client: SshClient, tmp_path: Path) -> None:
    content = secrets.token_bytes(20_000_000)
    (tmp_path / "sent").write_bytes(content)
    with (tmp_path / "sent").open() as sent:
        done = client.run("train", "cat > got; wc -c < got; cat got > /dev/stderr; sleep 0", stdin=sent, text=False)
    assert done.stdout.decode().strip() == "20000000"
    assert hashlib.sha256(done.stderr[-20_000_000:]).digest() == hashlib.sha256(content).digest()


@pytest.mark.usefixtures("key", "session")
def test_a_terminal_follows_the_size_of_its_window(client: SshClient) -> None:
    with client.terminal("train", columns=101, rows=31) as terminal:
        terminal.type("echo $TERM; stty size; echo rea''dy\r")
        shown = terminal.read_until("ready")
        assert "xterm-256color" in shown
        assert "31 101" in shown
        terminal.resize(columns=77, rows=22)
        terminal.type("while [ \"$(stty size)\" != '22 77' ]; do :; done; echo follo''wed\r")
        terminal.read_until("followed")
        terminal.type("exit 3\r")
        assert terminal.exit_code() == 3


@pytest.mark.usefixtures("key", "session")
def test_files_are_copied_by_sftp_and_scp(client: SshClient, tmp_path: Path) -> None:
    content = secrets.token_bytes(3_000_000)
    (tmp_path / "data.bin").write_bytes(content)
    done = client.sftp("train", f"put {tmp_path}/data.bin\nmkdir out\nrename data.bin out/here.bin\nls -l out\n")
    assert done.returncode == 0, done.stderr
    assert "here.bin" in done.stdout
    assert client.scp("train@127.0.0.1:out/here.bin", f"{tmp_path}/back.bin").returncode == 0
    assert (tmp_path / "back.bin").read_bytes() == content
    assert client.scp(f"{tmp_path}/back.bin", "train@127.0.0.1:").returncode == 0
    assert client.run("train", "wc -c < back.bin").stdout.strip() == "3000000"


@pytest.mark.usefixtures("key")
def test_an_image_without_sftp_server_says_so(client: SshClient, host: Host, owner: User) -> None:
    with lent_container(ensure_tiny_image()) as bare:
        session_in(bare, host, owner, "bare")
        done = client.sftp("bare", "ls\n")
        assert done.returncode != 0
        assert "no sftp-server" in done.stderr
        assert client.run("bare", "echo fine").stdout == "fine\n"


@pytest.mark.usefixtures("session", "transactional_db")
def test_an_unknown_key_is_denied(client: SshClient) -> None:
    client.new_key()
    done = client.run("train", "true")
    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr


@pytest.mark.usefixtures("session", "key")
def test_a_public_key_alone_does_not_authenticate(client: SshClient, tmp_path: Path) -> None:
    add_ssh_key(make_user(), client.new_key("mine"))
    (tmp_path / "id.pub").rename(tmp_path / "theirs.pub")
    (tmp_path / "theirs").write_text((tmp_path / "mine").read_text())
    (tmp_path / "theirs").chmod(0o600)
    both = ["-v", "-i", str(tmp_path / "theirs"), "-i", str(tmp_path / "mine")]
    done = run(["ssh", *both, *client.command("train", "echo in", key="mine")[1:]])
    assert done.stderr.count("Server accepts key") == 2, "theirs was offered too, and exists"
    assert "No session of yours has the id or name 'train'" in done.stderr
    assert done.stdout == ""


@pytest.mark.usefixtures("key")
def test_sessions_of_other_users_do_not_exist(client: SshClient, host: Host, container: Container) -> None:
    foreign = session_in(container, host, make_user(), "theirs")
    answers = [client.run(name, "true").stderr.replace(name, "NAME") for name in (foreign.pk, "theirs", "nothing")]
    assert "No session of yours has the id or name 'NAME'" in answers[0]
    assert len({_told(answer) for answer in answers}) == 1, answers


@pytest.mark.usefixtures("session")
def test_a_superadmin_enters_by_id_alone(client: SshClient, session: Session) -> None:
    add_ssh_key(make_user(is_superuser=True), client.new_key())
    assert client.run(session.pk, "echo in").stdout == "in\n"
    assert "No session of yours" in client.run("train", "echo in").stderr


@pytest.mark.usefixtures("key")
def test_a_session_that_waits_says_so(client: SshClient, owner: User, host: Host) -> None:
    make_session(owner=owner, name="later", resource_group=host.group)
    assert "Session later does not run, it is PENDING" in client.run("later", "true").stderr


def test_the_last_use_of_a_key_is_recorded(client: SshClient, session: Session, key: SshKey) -> None:
    assert key.last_used_at is None
    client.run(session.pk, "true")
    until(lambda: SshKey.objects.get(pk=key.pk).last_used_at)
    until(lambda: Session.objects.get(pk=session.pk).last_activity_at)


def end_session(session: Session, key: SshKey) -> None:
    session.move_to(Status.TERMINATING, Reason.USER_REQUEST)


def disable_owner(session: Session, key: SshKey) -> None:
    User.objects.filter(pk=session.owner_id).update(is_active=False)


def forget_key(session: Session, key: SshKey) -> None:
    delete_ssh_key(key)


def revoke_host(session: Session, key: SshKey) -> None:
    Host.objects.filter(name=settings.COMPUTE_HOST_NAME).update(name="another", gateway_url="")  # not the server's own


@pytest.mark.parametrize("end", [end_session, disable_owner, forget_key, revoke_host])
def test_a_connection_ends_with_session_account_key_or_host(
    client: SshClient, session: Session, key: SshKey, container: Container, end: Callable[[Session, SshKey], None]
) -> None:
    with client.terminal("train") as terminal:
        terminal.type("cat\r")
        until(lambda: "cat" in container.processes())
        end(session, key)
        assert "is no more" in terminal.read_until("no more.")
        assert terminal.exit_code() == 255
    until(lambda: not container.processes())
    assert client.run("train", "true").returncode == 255, "and none comes after it"


@pytest.mark.usefixtures("key", "session")
def test_a_command_ends_with_its_client(client: SshClient, container: Container) -> None:
    with subprocess.Popen(client.command("train", "sleep 1000"), stdin=subprocess.PIPE) as running:
        until(lambda: "sleep 1000" in container.processes())
        running.kill()
    until(lambda: not container.processes())


@pytest.mark.usefixtures("key", "session")
def test_one_connection_carries_several_commands_at_once(client: SshClient, tmp_path: Path) -> None:
    shared = ["-o", f"ControlPath={tmp_path}/c"]
    with subprocess.Popen(client.command("train", "-M", *shared, "-N"), stdin=subprocess.DEVNULL) as master:
        until(lambda: (tmp_path / "c").exists())
        commands = [[*client.command("train", *shared), f"cat; echo {number}"] for number in range(10)]
        running = [subprocess.Popen(each, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for each in commands]
        assert [each.communicate(b"")[0] for each in running] == [b"%d\n" % number for number in range(10)]
        master.kill()


def test_all_servers_share_one_host_key(client: SshClient, session: Session, key: SshKey) -> None:
    path = Path(settings.COMPUTE_VAR_DIR) / NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert client.run("train", "true").returncode == 0
    with ssh_server(free_port(), str(session.host)) as _:
        known = (client.folder / "known_hosts").read_text().split()[2]
        assert known == load_host_key(path.parent).export_public_key().decode().split()[1]


def test_a_session_key_opens_its_session_only(client: SshClient, host: Host, owner: User, tmp_path: Path) -> None:
    world = DockerWorld(ensure_shell_image())
    try:
        session = session_in_world(world, host, owner)
        other = run_session(make_session(owner=owner, name="other", resource_group=host.group), host=host)
        SessionKeys(world.runtime(), host).poll()
        shown = world.execute(session.pk, 1, "ls -ln id_container; cat id_container", user="work")[1]
        mode, private = shown.split("\n", 1)
        assert mode.startswith("-rw------- 1 1000 ")
        (tmp_path / "own").write_text(private)
        (tmp_path / "own").chmod(0o600)
        for name in (session.pk, "train"):
            assert client.run(name, "echo in", key="own").stdout == "in\n"
        for name in (other.pk, "other", "nothing"):
            assert "Permission denied" in client.run(name, "echo in", key="own").stderr
        app = make_endpoint(session, is_public=True)
        with client.terminal("train", key="own") as terminal:
            assert "$" in terminal.read_until("$")
            services.unpublish(app, actor=owner)  # by which strangers may have read the file
            assert "is no more" in terminal.read_until("no more.")
        assert "Permission denied" in client.run("train", "echo in", key="own").stderr
        SessionKeys(world.runtime(), host).poll()
        renewed = world.execute(session.pk, 1, "cat id_container", user="work")[1]
        (tmp_path / "own").write_text(renewed)
        assert client.run("train", "echo in", key="own").stdout == "in\n"
        session.move_to(Status.TERMINATING, Reason.USER_REQUEST)
        assert "Permission denied" in client.run("train", "echo in", key="own").stderr
    finally:
        world.clean_up()


def session_in_world(world: DockerWorld, host: Host, owner: User) -> Session:
    """Return a running session, `train`, in a container that the runtime made."""
    session = run_session(make_session(owner=owner, name="train", resource_group=host.group), host=host)
    runtime = world.runtime()
    container_id = runtime.create(make_spec(world.image, session=session.pk, attempt=1))
    runtime.start(session.pk, 1)
    Session.objects.filter(pk=session.pk).update(container_id=container_id)
    return session


@pytest.mark.usefixtures("key")
def test_a_session_is_entered_through_its_hosts_gateway(client: SshClient, owner: User, tmp_path: Path) -> None:
    far = make_host(name="far-away")
    session = run_session(make_session(owner=owner, name="far", resource_group=far.group), host=far)
    assert "it has no gateway" in client.run("far", "true").stderr
    labels = {
        INSTALLATION_LABEL: Installation.current_key(),
        HOST_LABEL: far.name,
        SESSION_LABEL: session.pk,
        ATTEMPT_LABEL: str(session.attempt),
    }
    name = container_name(session.pk, session.attempt)
    with (
        running_gateway(far.name, tmp_path / "gateway.log") as gateway,
        running_container(ensure_shell_image(), name=name, labels=labels) as container,
    ):
        Session.objects.filter(pk=session.pk).update(container_id=container.id)
        Host.objects.filter(pk=far.pk).update(gateway_url=gateway.url)
        done = client.run("far", "wc -c; echo wrong >&2; exit 5", input="x" * 300_000)
        assert (done.stdout.strip(), done.returncode) == ("300000", 5)
        assert "wrong\n" in done.stderr
        assert client.sftp("far", "ls -a\n").returncode == 0
        with client.terminal("far") as terminal:
            terminal.type("echo $((6*7))\r")
            terminal.read_until("42\r\n")
        until(lambda: not container.processes())


def _told(answer: str) -> str:
    """Return the sentence in which the client shows why it was disconnected."""
    return next(line for line in answer.splitlines() if "No session" in line)
