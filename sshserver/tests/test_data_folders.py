"""Data folders over SFTP without a session: OpenSSH's clients, an SSH server, real files."""

import asyncio
import os
import secrets
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import asyncssh
import pytest
import pytest_asyncio
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections
from gpuplatform_client.sync.mirror import Mirror
from gpuplatform_client.sync.sftp import SftpClient
from gpuplatform_client.sync.trees import LocalTree, SftpTree

from accounts.credentials.ssh_keys import add_ssh_key
from accounts.models import User
from folders.models import Folder, StorageRoot
from folders.sharing import folders as services
from folders.storage import paths as storage
from sshserver.tests.ssh_client import SshClient
from tests.factories import make_policy, make_user, owner_of
from tests.ports import free_port
from tests.wait import SECONDS
from tests.workers import ssh_server

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.loopback]


@pytest.fixture(scope="module")
def port(django_db_setup: None) -> Iterator[int]:
    """The port of an SSH server."""
    port = free_port()
    with ssh_server(port, settings.COMPUTE_HOST_NAME):
        yield port


@pytest.fixture
def root(tmp_path: Path) -> StorageRoot:
    """A storage root on this machine."""
    root = StorageRoot.objects.create(name="local", path=str(tmp_path / "root"))
    storage.prepare_root(root)
    return root


@pytest.fixture
def owner() -> User:
    """A user with a quota of 8 MiB and 20 files."""
    return make_user(policy=make_policy(storage_bytes=8 * 2**20, storage_files=20))


@pytest.fixture
def folder(owner: User, root: StorageRoot) -> Folder:
    """The owner's folder `runs`."""
    return services.create(owner, "runs", root)


@pytest.fixture
def client(tmp_path: Path, port: int, owner: User) -> SshClient:
    """The owner with a key that the platform knows."""
    (tmp_path / "keys").mkdir()
    client = SshClient(tmp_path / "keys", port)
    add_ssh_key(owner, client.new_key(), "laptop")
    return client


@pytest.fixture
def guest(client: SshClient) -> User:
    """Another user; `client` has their key as `guest`."""
    guest = make_user(email="guest@example.org")
    add_ssh_key(guest, client.new_key("guest"), "laptop")
    return guest


def path_of(folder: Folder, *parts: str) -> Path:
    """Return the path of a file of the folder on this machine."""
    return Path(storage.root_directory(folder.root).files_path(folder.holder_number, folder.pk), *parts)


def sftp(client: SshClient, batch: str, key: str = "id") -> "subprocess.CompletedProcess[str]":
    """Run lines of sftp's commands on the data folders."""
    return client.sftp("data", batch, key)


def test_files_travel_both_ways_and_belong_to_sessions(client: SshClient, folder: Folder, tmp_path: Path) -> None:
    content = secrets.token_bytes(3_000_000)
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent" / "model.bin").write_bytes(content)
    (tmp_path / "sent" / "run.sh").write_text("echo\n")
    (tmp_path / "sent" / "run.sh").chmod(0o4755)
    done = sftp(
        client,
        f"put -rp {tmp_path}/sent runs/\nrename runs/sent runs/got\nls -l runs/got\nget -r runs/got {tmp_path}/back\n",
    )
    assert done.returncode == 0, done.stderr
    assert "work     work" in done.stdout
    assert (tmp_path / "back" / "model.bin").read_bytes() == content
    status = path_of(folder, "got", "run.sh").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (1000, 1000, 0o755)
    folder.refresh_from_db()
    assert folder.used_bytes >= 3_000_000
    assert folder.used_files == 3
    assert sftp(client, "rm runs/got/*\nrmdir runs/got\nls runs\n").returncode == 0
    assert not any(path_of(folder).iterdir())


def test_scp_copies_by_sftp_and_nothing_else_runs(client: SshClient, folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("from here")
    assert client.scp(f"{tmp_path}/a.txt", "data@127.0.0.1:runs/b.txt").returncode == 0
    assert client.scp("data@127.0.0.1:/runs/b.txt", f"{tmp_path}/c.txt").returncode == 0
    assert (tmp_path / "c.txt").read_text() == "from here"
    for words in ((), ("id",)):
        done = client.run("data", *words)
        assert done.returncode == 1
        assert "by SFTP alone" in done.stderr
    forwarded = client.run("data", "-N", "-o", "ExitOnForwardFailure=yes", "-W", "localhost:22")
    assert "administratively prohibited" in forwarded.stderr


def test_partial_transfers_are_resumed(client: SshClient, folder: Folder, tmp_path: Path) -> None:
    content = secrets.token_bytes(2_000_000)
    (tmp_path / "whole").write_bytes(content)
    path_of(folder, "up").write_bytes(content[:700_001])
    os.chown(path_of(folder, "up"), 1000, 1000)
    (tmp_path / "down").write_bytes(content[:900_001])
    done = sftp(client, f"reput {tmp_path}/whole runs/up\nreget runs/up {tmp_path}/down\n")
    assert done.returncode == 0, done.stderr
    assert path_of(folder, "up").read_bytes() == content
    assert (tmp_path / "down").read_bytes() == content


def test_a_directory_is_mirrored_to_a_data_folder(client: SshClient, folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "here/sub").mkdir(parents=True)
    (tmp_path / "here/sub/model.bin").write_bytes(secrets.token_bytes(3_000_000))
    (tmp_path / "here/run.py").write_text("print(1)\n")
    command = [*client.command("data", "sftp")[:-2], "-s", "data@127.0.0.1", "sftp"]
    with SftpClient(command) as sftp_client:
        there = SftpTree(sftp_client, "/runs/new/copy")
        mirror = Mirror(LocalTree(tmp_path / "here"), there, deletes=True)
        assert not mirror.run(print).problems
        assert mirror.run(print).steps == []
        (tmp_path / "here/run.py").write_text("print(22)\n")
        (path_of(folder, "new", "copy", "link")).symlink_to("/etc")
        assert [step.path for step in mirror.run(print).steps] == ["link", "run.py"]
        assert not Mirror(there, LocalTree(tmp_path / "back")).run(print).problems
    for name in ("run.py", "sub/model.bin"):
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


def test_own_and_shared_folders_are_at_the_top(
    client: SshClient, owner: User, folder: Folder, guest: User, root: StorageRoot
) -> None:
    theirs, trashed = services.create(guest, "runs", root), services.create(owner, "old", root)
    services.create(guest, "secret", root)
    services.trash(trashed)
    services.share(theirs, owner, is_read_only=True)
    path_of(theirs, "data.csv").write_text("1,2\n")
    done = sftp(client, "ls -1\nls -1 runs@guest@example.org\nls -1 secret\n")
    assert "runs\nruns@guest@example.org\nsftp> ls" in done.stdout
    assert "runs@guest@example.org/data.csv" in done.stdout
    assert 'Can\'t ls: "/secret" not found' in done.stderr


@pytest.mark.usefixtures("guest")
def test_a_read_only_share_is_read_only(client: SshClient, folder: Folder, guest: User, tmp_path: Path) -> None:
    path_of(folder, "data.csv").write_text("1,2\n")
    services.share(folder, guest, is_read_only=True)
    name = f"runs@{owner_of(folder).email}"
    assert sftp(client, f"get {name}/data.csv {tmp_path}/got\n", "guest").returncode == 0
    assert (tmp_path / "got").read_text() == "1,2\n"
    refused = (
        "put {0}/got {1}/new",
        "rm {1}/data.csv",
        "mkdir {1}/new",
        "rename {1}/data.csv {1}/new",
        "chmod 777 {1}/data.csv",
    )
    for line in refused:
        done = sftp(client, line.format(tmp_path, name) + "\n", "guest")
        assert done.returncode == 1, line
        assert "shared with you read-only" in done.stderr
    assert os.listdir(path_of(folder)) == ["data.csv"]
    services.share(folder, guest, is_read_only=False)
    assert sftp(client, f"put {tmp_path}/got {name}/new\n", "guest").returncode == 0


@pytest.mark.parametrize(
    "line",
    [
        "get {0}/../../../../../etc/hostname {1}",
        "get ../../etc/hostname {1}",
        "get /etc/hostname {1}",
        "get {0}/link {1}",
        "get {0}/linked/hostname {1}",
        "get {0}/pipe {1}",
        "put {2} {0}/linked/new",
        "put {2} {0}/link",
        "put {2} new",
        "cd {0}/linked",
        "mkdir another",
        "rmdir {0}",
        "rm {0}",
        "rename {0} renamed",
        "rename {0}/file other/file",
        "ln -s /etc/passwd {0}/new",
        "ln {0}/file {0}/new",
        "chown 0 {0}/file",
        "chmod 777 {0}/link",
        "put {2} {0}/../uploads/new",
        "ls {0}/../.gpuplatform-root",
    ],
)
def test_hostile_requests_are_refused(
    line: str, client: SshClient, folder: Folder, root: StorageRoot, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "hostname").write_text("outside")
    files = path_of(folder)
    (files / "linked").symlink_to(outside)
    (files / "link").symlink_to(outside / "hostname")
    (files / "file").write_text("inside")
    os.mkfifo(files / "pipe")
    services.create(owner_of(folder), "other", root)
    before = sorted(os.listdir(files))
    (tmp_path / "local").write_text("local")
    done = sftp(client, line.format("runs", tmp_path / "got", tmp_path / "local") + "\n")
    assert done.returncode == 1, done.stdout
    assert not (tmp_path / "got").exists() or (tmp_path / "got").read_bytes() == b""
    assert sorted(os.listdir(files)) == before
    assert os.listdir(outside) == ["hostname"]
    assert (outside / "hostname").read_text() == "outside"
    assert (files / "file").read_text() == "inside"


def test_links_are_listed_and_removed_as_such(client: SshClient, folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("stays")
    path_of(folder, "link").symlink_to(tmp_path / "target")
    assert "lrwx" in sftp(client, "ls -l runs\n").stdout
    assert sftp(client, "rm runs/link\n").returncode == 0
    assert (tmp_path / "target").read_text() == "stays"


def test_a_full_quota_stops_an_upload_with_the_reason(client: SshClient, folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(9 * 2**20))
    done = sftp(client, f"put {tmp_path}/big runs/big\n")
    assert done.returncode == 1
    assert "quota on local is 8 MiB" in done.stderr
    assert path_of(folder, "big").stat().st_size <= 8 * 2**20
    assert sftp(client, "rm runs/big\n").returncode == 0
    Folder.objects.update(used_bytes=0, used_files=20)
    (tmp_path / "small").touch()
    done = sftp(client, f"put {tmp_path}/small runs/small\n")
    assert "20 files" in done.stderr
    assert not path_of(folder, "small").exists()
    assert "8192" in sftp(client, "df runs\n").stdout


def test_a_missing_root_is_said_and_others_work(client: SshClient, owner: User, folder: Folder, tmp_path: Path) -> None:
    far = StorageRoot.objects.create(name="far", path=str(tmp_path / "far"))
    Folder.objects.create(owner=owner, name="away", root=far)
    done = sftp(client, "ls -1\n-ls away\nmkdir runs/new\n")
    assert "away\nruns\n" in done.stdout
    assert "No host has the storage root far at present" in done.stderr
    assert path_of(folder, "new").is_dir()


@pytest_asyncio.fixture
async def folder_async(folder: Folder) -> AsyncIterator[Folder]:
    """The folder; the database connection of the thread in which an asynchronous test asks is closed in the end."""
    yield folder
    await sync_to_async(connections.close_all)()


async def connect(client: SshClient, key: str) -> asyncssh.SSHClientConnection:
    """Connect to the data folders."""
    options = {"known_hosts": None, "config": None, "agent_path": None, "client_keys": [str(client.folder / key)]}
    return await asyncssh.connect("127.0.0.1", client.port, username="data", **options)


async def refused(request: Callable[[], Awaitable[object]]) -> None:
    """Repeat a request until permission for it is denied."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                await request()
            except asyncssh.SFTPPermissionDenied:
                return


async def test_a_withdrawn_share_ends_open_files(client: SshClient, folder_async: Folder, guest: User) -> None:
    path_of(folder_async, "log").write_text("before")
    share = await sync_to_async(services.share)(folder_async, guest, is_read_only=False)
    async with await connect(client, "guest") as connection, connection.start_sftp_client() as files:
        async with files.open(f"runs@{owner_of(folder_async).email}/log", "r+") as opened:
            await opened.write("B", 0)
            await sync_to_async(services.share)(folder_async, guest, is_read_only=True)
            await refused(lambda: opened.write("x", 0))
            assert await opened.read(1, 1) == "e"
            await sync_to_async(services.withdraw)(share)
            await refused(lambda: opened.read(1, 0))
        with pytest.raises(asyncssh.SFTPNoSuchFile):
            await files.listdir(f"runs@{owner_of(folder_async).email}")


async def test_a_disabled_user_is_disconnected(client: SshClient, folder_async: Folder, owner: User) -> None:
    async with await connect(client, "id") as connection, connection.start_sftp_client() as files:
        assert await files.listdir("/") == ["runs"]
        await User.objects.filter(pk=owner.pk).aupdate(is_active=False)
        await connection.wait_closed()
    with pytest.raises(asyncssh.PermissionDenied):
        await connect(client, "id")


async def test_hostile_requests_below_the_client_are_refused(client: SshClient, folder_async: Folder) -> None:
    async with await connect(client, "id") as connection, connection.start_sftp_client() as files:
        for path in (b"runs/\0", b"runs/" + b"x" * 300, b"runs/new\nline", b"runs/a/./../../../etc/x"):
            with pytest.raises(asyncssh.SFTPError):
                await files.open(path, "w")
        with pytest.raises(asyncssh.SFTPError):
            await files.symlink("/etc/passwd", "runs/new")
        with pytest.raises(asyncssh.SFTPError):
            await files.truncate("runs/huge", 2**50)
        async with files.open("runs/\N{SNOWMAN} *", "w") as odd:
            await odd.write("x")
        assert await files.listdir("runs") == ["\N{SNOWMAN} *"]
        path_of(folder_async, "old").touch()
        os.utime(path_of(folder_async, "old"), (-1e9, 2**33))
        assert {name.filename for name in await files.readdir("runs/")} >= {"old"}
