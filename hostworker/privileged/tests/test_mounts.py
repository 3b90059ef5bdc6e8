"""A mounted data folder turns read-only and back in a running container, whatever the container does to its path."""

import os
import platform
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from docker.api import APIClient

from hostworker.privileged import mounts
from tests.containers import ENGINE_URL, IDLE, Container
from tests.shell_image import ensure_shell_image
from tests.wait import SECONDS, until

pytestmark = pytest.mark.docker


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The files of a folder on the host, with the container user as owner."""
    files = tmp_path / "7" / "abcdefgh" / "files"
    files.mkdir(parents=True)
    os.chown(files, 1000, 1000)
    return files


@pytest.fixture
def container(source: Path, tmp_path: Path) -> Iterator[Container]:
    """A container whose user has the folder at /home/work/sub/data, and something read-only at /protected."""
    (tmp_path / "protected").mkdir()
    client = APIClient(ENGINE_URL, version="auto")
    binds = [f"{source}:/home/work/sub/data", f"{tmp_path}/protected:/home/work/protected:ro"]
    config = client.create_host_config(init=True, network_mode="none", binds=binds)
    name = f"gptest-{secrets.token_hex(6)}"
    made = client.create_container(ensure_shell_image(), IDLE, name=name, host_config=config, user="0")["Id"]
    client.start(made)
    yield Container(made, client)
    client.remove_container(made, force=True)
    client.close()


def main_pid(container: Container) -> int:
    """Return the container's main process, in the host's numbers."""
    return int(container.client.inspect_container(container.id)["State"]["Pid"])


def can_write(container: Container, path: str = "/home/work/sub/data") -> bool:
    """Return whether a file can be made in the container."""
    return "done" in container.run(f"echo >{path}/x && echo done")


def test_a_mount_turns_read_only_and_back(container: Container, source: Path) -> None:
    pid = main_pid(container)
    assert can_write(container)
    before = container.run("grep sub/data /proc/self/mountinfo")
    for _ in range(2):
        assert mounts.set_read_only(pid, source, read_only=True)
        assert not can_write(container)
    assert mounts.set_read_only(pid, source, read_only=False)
    assert can_write(container)
    assert container.run("grep sub/data /proc/self/mountinfo") == before
    (source / "on host").touch()


def test_an_open_file_keeps_the_mount_writable(container: Container, source: Path) -> None:
    pid = main_pid(container)
    started = container.client.exec_create(container.id, ["sh", "-c", "exec sleep 1000 >/home/work/sub/data/log"])["Id"]
    container.client.exec_start(started, detach=True)
    until(lambda: "sleep 1000" in container.processes())  # no shell any more
    assert not mounts.set_read_only(pid, source, read_only=True)
    assert mounts.end_writers(pid, source) == ["sleep"]
    until(lambda: mounts.set_read_only(pid, source, read_only=True))
    assert not can_write(container)
    assert mounts.end_writers(pid, source) == []


def test_a_moved_mount_is_found_and_no_link_followed(container: Container, source: Path) -> None:
    pid = main_pid(container)
    container.run("mv /home/work/sub /home/work/moved")
    (Path(f"/proc/{pid}/root/home/work/sub")).symlink_to("/home/work")
    (Path(f"/proc/{pid}/root/home/work/data")).symlink_to("protected")
    assert mounts.set_read_only(pid, source, read_only=True)
    assert not can_write(container, "/home/work/moved/data")
    assert mounts.set_read_only(pid, source, read_only=False)
    assert can_write(container, "/home/work/moved/data")
    assert not can_write(container, "/home/work/protected")


def test_another_directory_at_the_point_stays_as_it_is(container: Container, source: Path) -> None:
    pid = main_pid(container)
    source.rename(source.with_name("away"))
    source.mkdir()  # another directory than the one that is mounted
    assert mounts.set_read_only(pid, source, read_only=True)
    assert can_write(container)


def test_what_is_taken_away_is_gone_for_all_programs(container: Container, source: Path) -> None:
    pid = main_pid(container)
    (source / "secret").write_text("hidden words")
    commands = {
        "in_it": "cd /home/work/sub/data; exec sleep 1000",
        "reads": "exec sleep 1000 </home/work/sub/data/secret",
        "writes": "exec sleep 1000 >/home/work/sub/data/log",
        "outside": "cd /tmp; exec sleep 1000",
    }
    for name, command in commands.items():
        made = container.client.exec_create(container.id, ["sh", "-c", f"exec 3>/tmp/{name}; {command}"])["Id"]
        container.client.exec_start(made, detach=True)
    until(lambda: container.processes().count("sleep 1000") == len(commands))  # no shells any more
    assert sorted(mounts.take_away(pid, source)) == ["sleep"] * 3
    until(lambda: len(container.processes()) == 1)
    assert "hidden" not in container.run("cat /home/work/sub/data/secret; ls -a /home/work/sub/data")
    assert (source / "secret").read_text() == "hidden words"
    assert container.run("grep -c protected /proc/self/mountinfo").strip() == "1"
    assert mounts.take_away(pid, source) == []


def holder(container: Container) -> None:
    """Let a program have a file of the folder open."""
    command = ["sh", "-c", "exec sleep 1000 >/home/work/sub/data/log"]
    made = container.client.exec_create(container.id, command)["Id"]
    container.client.exec_start(made, detach=True)
    until(lambda: "sleep 1000" in container.processes())  # no shell any more


def test_taking_away_goes_on_where_it_was_cut_off(
    container: Container, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = main_pid(container)
    holder(container)
    with monkeypatch.context() as dying:
        dying.setattr(mounts, "_holders", lambda *_: [])  # its worker died in between
        assert mounts.take_away(pid, source) == []
    assert "sleep 1000" in container.processes()
    assert mounts.take_away(pid, source) == ["sleep"]
    until(lambda: "sleep 1000" not in container.processes())


def test_what_is_held_still_is_not_taken_away(
    container: Container, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = main_pid(container)
    holder(container)
    monkeypatch.setattr(mounts, "HOLDER_SECONDS", 0.1)
    monkeypatch.setattr(mounts, "_killed", lambda _: "")  # as of one that waits for its disk
    with pytest.raises(OSError, match=r"hold|too much open"):
        mounts.take_away(pid, source)


def test_names_that_are_no_text_hide_nothing(container: Container, source: Path) -> None:
    odd = r"/home/work/$'\xff\r\x0b'"
    script = f"""
        mv /home/work/sub {odd} || exit
        exec 3>>{odd}/data/log
        printf '\\xff' >/proc/$$/comm
        sleep 1000 3>&- & wait
    """
    made = container.client.exec_create(container.id, ["bash", "-c", script])["Id"]
    container.client.exec_start(made, detach=True)

    def named() -> list[bytes]:
        found = []
        for pid, *_ in container.client.top(container.id, "-eo pid")["Processes"]:
            with suppress(OSError):  # it has ended since
                found.append(Path(f"/proc/{pid}/comm").read_bytes())
        return found

    until(lambda: b"\xff\n" in named())
    assert mounts.take_away(main_pid(container), source) == ["\N{REPLACEMENT CHARACTER}"]
    until(lambda: b"\xff\n" not in named())


THREAD = """
import ctypes, os, sys, threading
def hold():
    file = os.open(sys.argv[1], os.O_WRONLY)
    print(flush=True)
    threading.Event().wait()
threading.Thread(target=hold).start()
ctypes.CDLL(None).syscall(int(sys.argv[2]), 0)  # exit(2): of the first thread alone
"""
EXIT = {"x86_64": 60, "aarch64": 93}[platform.machine()]


def test_files_of_a_thread_whose_first_thread_ended_are_seen(tmp_path: Path) -> None:
    (tmp_path / "held").touch()
    command = [sys.executable, "-c", THREAD, str(tmp_path / "held"), str(EXIT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            until(lambda: "State:\tZ" in Path(f"/proc/{process.pid}/status").read_text())
            assert os.listdir(f"/proc/{process.pid}/fd") == []
            links = [os.readlink(link) for link in mounts._held(process.pid) if Path(link).parent.name == "fd"]
            assert str(tmp_path / "held") in links
        finally:
            process.kill()


def test_a_process_with_too_much_open_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_processes_of", lambda _: [os.getpid()])
    assert mounts._holders("", set(), -1, time.monotonic() + SECONDS) == []
    with pytest.raises(OSError, match="too much open"):
        mounts._holders("", set(), -1, time.monotonic())


def test_a_container_that_has_ended_is_no_error(container: Container, source: Path) -> None:
    pid = main_pid(container)
    container.stop()
    assert mounts.set_read_only(pid, source, read_only=True)
    assert mounts.end_writers(pid, source) == []
    assert mounts.take_away(pid, source) == []
