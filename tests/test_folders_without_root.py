"""Data folders where the platform runs as a user who is neither root nor the user of sessions: all that they do."""

import io
import os
import signal
import zipfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import docker
import httpx
import pytest

from engine.containers import HOST_LABEL
from folders.files.descriptors import CONTAINER_UID
from folders.files.roots import MARKER
from hostworker.privileged.storage_roots.idmapped_mounts import AREA
from tests.accounts import accounts
from tests.containers import remove_containers
from tests.execs import output_of
from tests.images import ensure_images
from tests.platform import Platform, announced
from tests.test_backup_story import client_of, running
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.long(minutes=4), pytest.mark.docker]

NAME: Final = "gp-test-any"
UID: Final = 1234


@pytest.fixture(scope="module")
def platform() -> Iterator[Platform]:
    """A platform that this user has started with `make up`."""
    ensure_images()
    with accounts(NAME, uids=[UID]) as (user,):
        with (user.checkout / "up.log").open("wb") as log:
            process = user.popen("make", "up", stdout=log, stderr=log)
        try:
            made = announced(process, user.checkout / "up.log", user.checkout / "var", user.environment)
            key = (made.var_dir / "folders" / MARKER).read_text().strip()
            until(lambda: (AREA / key).exists() and (AREA / key).stat().st_uid == CONTAINER_UID)
            yield made
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(2 * SECONDS)
            remove_containers(f"{HOST_LABEL}={user.environment['COMPUTE_HOST_NAME']}")
        assert not (AREA / key).exists(), "the mount for sessions ends with the platform"


@pytest.fixture
def client(platform: Platform) -> Iterator[httpx.Client]:
    with client_of(platform) as made:
        yield made


class Container:
    """The container of a session."""

    def __init__(self, session: dict[str, Any]) -> None:
        self._name = f"gp-{session['id']}-{session['attempt']}"

    def run(self, command: str, user: str = "work") -> tuple[int, str]:
        """Return exit code and output of a shell command."""
        with closing(docker.from_env()) as engine:
            code, output = output_of(engine.api, self._name, command, user)
        return code, output.strip()

    def does(self, command: str, user: str = "work") -> str:
        """Return the output of a command that must succeed."""
        code, output = self.run(command, user)
        assert code == 0, output
        return output


def session_with(client: httpx.Client, *folders: dict[str, Any]) -> dict[str, Any]:
    """Return a session of the user's that runs and mounts these folders."""
    asked = {"image": "gpuplatform/python:3.11", "cpu": 1, "memory": "512MiB", "fgpu": "0.5", "mounts": folders}
    launched = client.post("sessions/", json=asked).raise_for_status().json()[0]
    return running(client, launched["id"])


def end(client: httpx.Client, session: dict[str, Any]) -> None:
    client.post("sessions/terminate/", json={"ids": [session["id"]]}).raise_for_status()
    assert until(lambda: client.get(f"sessions/{session['id']}/").json()["status"] == "TERMINATED")


def upload(client: httpx.Client, folder: str, path: str, content: bytes, conflict: str = "refuse") -> None:
    words = f"path {b64encode(path.encode()).decode()},conflict {b64encode(conflict.encode()).decode()}"
    head = {"Tus-Resumable": "1.0.0", "Upload-Length": str(len(content)), "Upload-Metadata": words}
    head |= {"Content-Type": "application/offset+octet-stream"}
    client.post(f"folders/{folder}/uploads/", headers=head, content=content).raise_for_status()


def content_of(client: httpx.Client, folder: str, path: str) -> bytes:
    return client.get(f"folders/{folder}/download/", params={"path": path}).raise_for_status().content


def names_in(client: httpx.Client, folder: str, path: str = "") -> set[str]:
    found = client.get(f"folders/{folder}/entries/", params={"path": path}).raise_for_status().json()
    return {entry["name"] for entry in found["results"]}


def delete(client: httpx.Client, folder: str, path: str) -> str:
    """Move an entry to the folder's trash and return its id there."""
    answer = client.delete(f"folders/{folder}/entries/", params={"path": path})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def directory_of(platform: Platform, folder: str) -> Path:
    (found,) = (platform.var_dir / "folders").glob(f"*/{folder}")
    return found


def test_all_that_folders_do_works_as_any_user(client: httpx.Client, platform: Platform) -> None:
    folder = client.post("folders/", json={"name": "data"}).raise_for_status().json()["id"]
    files = directory_of(platform, folder) / "files"
    upload(client, folder, "sub/uploaded", b"from pages\n")
    assert files.stat().st_uid == UID

    session = session_with(client, {"folder": "data"})
    container = Container(session)
    check_both_ways(client, container, folder)
    check_awkward_modes(client, container, folder)
    check_nothing_leads_out(client, container, folder)
    assert {path.lstat().st_uid for path in files.rglob("*")} <= {UID, 0}
    check_files_of_root(client, container, folder, files)
    end(client, session)

    check_read_only(client, folder)
    check_deletion(client, folder, files)


def check_both_ways(client: httpx.Client, container: Container, folder: str) -> None:
    """What one side makes, the other reads, changes and deletes."""
    assert container.does("cat ~/data/sub/uploaded; stat -c %u:%g:%a ~/data/sub/uploaded") == (
        "from pages\n1000:1000:644"
    )
    container.does("chmod 700 ~/data/sub/uploaded; touch -d 2001-01-01 ~/data/sub; echo more >> ~/data/sub/uploaded")
    assert content_of(client, folder, "sub/uploaded") == b"from pages\nmore\n"
    container.does("umask 077; mkdir ~/data/own; echo private > ~/data/own/key; cd ~/data; tar cf own.tar own")
    assert content_of(client, folder, "own/key") == b"private\n"
    text = client.get(f"folders/{folder}/text/", params={"path": "own/key"}).raise_for_status()
    changed = {"text": "edited\n"}
    saved = client.put(
        f"folders/{folder}/text/", params={"path": "own/key"}, json=changed, headers={"If-Match": text.headers["ETag"]}
    )
    saved.raise_for_status()
    assert container.does("cat ~/data/own/key; stat -c %u:%a ~/data/own/key") == "edited\n1000:600"
    upload(client, folder, "own/key", b"replaced\n", "replace")
    assert container.does("cat ~/data/own/key; cd ~/data && tar xf own.tar && cat own/key") == "replaced\nprivate"
    client.post(f"folders/{folder}/entries/", json={"path": "made"}).raise_for_status()
    moved = {"path": "own/key", "new_path": "made/key"}
    client.post(f"folders/{folder}/entries/move/", json=moved).raise_for_status()
    container.does("mv ~/data/made/key ~/data/made/again; rm -r ~/data/made; test ! -e ~/data/made")
    archive = zipfile.ZipFile(io.BytesIO(client.get(f"folders/{folder}/zip/").raise_for_status().content))
    assert archive.read("sub/uploaded") == b"from pages\nmore\n"


def check_awkward_modes(client: httpx.Client, container: Container, folder: str) -> None:
    """What its user may not even open is moved to the trash, comes back as it was, and is removed."""
    container.does("mkdir -p ~/data/shut/in; echo x > ~/data/shut/in/file; chmod 000 ~/data/shut/in/file")
    container.does("cd ~/data/shut/in; chmod 600 file; dd if=/dev/zero of=file bs=1M count=8")
    container.does("chmod 000 ~/data/shut/in/file ~/data/shut/in; chmod 000 ~/data/shut; mkdir -m 0555 ~/data/fixed")
    client.post(f"folders/{folder}/entries/", json={"path": "measured-after-this"}).raise_for_status()
    until(lambda: client.get(f"folders/{folder}/").json()["used_bytes"] >= 8 * 2**20, seconds=300)
    assert {"shut", "fixed"} <= names_in(client, folder)
    assert client.get(f"folders/{folder}/entries/", params={"path": "shut"}).status_code == 503
    item = delete(client, folder, "shut")
    client.post(f"folders/{folder}/trash/{item}/restore/", json={}).raise_for_status()
    assert container.does("stat -c %a ~/data/shut ~/data/fixed") == "0\n555"
    for name in ("shut", "fixed"):
        client.delete(f"folders/{folder}/trash/{delete(client, folder, name)}/").raise_for_status()
    assert container.run("ls -d ~/data/shut ~/data/fixed")[0] != 0


def check_nothing_leads_out(client: httpx.Client, container: Container, folder: str) -> None:
    """Links that a session plants lead the platform nowhere."""
    container.does("cd ~/data; ln -s /etc/shadow link; ln -s ../../.. up; mkfifo pipe; ln -s . here")
    for path in ("link", "up/etc/passwd", "here/sub/uploaded", "pipe"):
        assert client.get(f"folders/{folder}/download/", params={"path": path}).status_code >= 400
    assert client.delete(f"folders/{folder}/entries/", params={"path": "up/sub"}).status_code >= 400
    container.does("cd ~/data; rm link up pipe here")


def check_files_of_root(client: httpx.Client, container: Container, folder: str, files: Path) -> None:
    """What root of the session makes stays root's; once it is deleted, the host removes it."""
    container.does("mkdir -p ~work/data/mixed/of-root/deep; cd ~work/data/mixed/of-root; echo x > deep/x", user="root")
    container.does("chown work ~work/data/mixed", user="root")
    assert content_of(client, folder, "mixed/of-root/deep/x") == b"x\n"
    client.delete(f"folders/{folder}/trash/{delete(client, folder, 'mixed')}/").raise_for_status()
    expunged = files.parent / "trash" / "expunged"
    until(lambda: not list(expunged.iterdir()), seconds=300)
    container.does("mkdir -m 700 ~work/data/kept-by-root; echo x > ~work/data/kept-by-root/x", user="root")


def check_read_only(client: httpx.Client, folder: str) -> None:
    session = session_with(client, {"folder": "data", "path": "/mnt/data", "read_only": True})
    container = Container(session)
    assert container.does("head -1 /mnt/data/sub/uploaded") == "from pages"
    assert "Read-only" in container.run("touch /mnt/data/x")[1]
    end(client, session)


def check_deletion(client: httpx.Client, folder: str, files: Path) -> None:
    """A folder is removed whole, with what root of a session has left in it."""
    client.delete(f"folders/{folder}/").raise_for_status()
    client.post(f"folders/{folder}/delete-forever/").raise_for_status()
    until(lambda: not files.exists() and not list(files.parent.parent.glob(".expunged/*")), seconds=300)


def test_only_the_platforms_user_reaches_files_on_host(platform: Platform) -> None:
    root = platform.var_dir / "folders"
    assert (root.stat().st_uid, root.stat().st_mode & 0o777) == (UID, 0o700)
    assert (AREA.stat().st_uid, AREA.stat().st_mode & 0o777) == (0, 0o700)
