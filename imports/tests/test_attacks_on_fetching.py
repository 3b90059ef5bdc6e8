"""Addresses, repositories and archives that attack who fetches them: none gets anything that it should not."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from imports.fetcher import archives, network, survey
from imports.fetcher.git import remote_of
from imports.fetcher.job import Credential, FetchError
from imports.fetcher.public_addresses import networks_of
from imports.runs import delivery
from imports.tests.fetching import fetched, job_for, token_for
from imports.tests.git_host import GitHost, git, names_lead_to
from tests.wait import until

pytestmark = pytest.mark.loopback

ONLY_HOST = networks_of(["127.0.0.1/32"])
OUTSIDE = "out of the tree"


@pytest.mark.parametrize(
    "to",
    [
        "https://127.0.0.2/secret",
        "https://169.254.169.254/latest/meta-data/",
        "http://169.254.169.254/latest/meta-data/",
        "https://[::ffff:10.0.0.1]/",
        "https://[fd00::1]/",
        "file:///etc/passwd",
        "http://8.8.8.8/",
        "https://a:b@example.org/",
    ],
)
@pytest.mark.parametrize("kind", ["git", "archive"])
def test_no_redirect_leads_inside(kind: str, to: str, host: GitHost, tmp_path: Path, capsys: Any) -> None:
    host.redirects |= {"/work/info/refs": to, "/work.zip": to}
    url = host.url("work.zip" if kind == "archive" else "work", "127.0.0.1")
    problem = fetched(capsys, job_for(url, tmp_path / "t", kind=kind, networks=ONLY_HOST))["problem"]
    assert "Nothing is fetched from" in problem or "not followed" in problem
    assert not (tmp_path / "t").exists()


def test_git_connects_to_the_address_that_was_checked(
    host: GitHost, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.repository("work", {"a": "1"})
    monkeypatch.setattr(socket, "getaddrinfo", names_lead_to({"repo.example": ["127.0.0.1"]}))
    url = host.url("work", "repo.example")  # which no other resolver knows
    assert "found" in fetched(capsys, job_for(url, tmp_path / "t"))
    turns = {"repo.example": ["127.0.0.1", "10.0.0.1"]}
    monkeypatch.setattr(socket, "getaddrinfo", names_lead_to(turns))
    assert "not a public one" in fetched(capsys, job_for(url, tmp_path / "u"))["problem"]


def test_a_name_with_one_inner_address_is_refused(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    both = [(2, 1, 6, "", (address, 443)) for address in ("8.8.8.8", "169.254.169.254")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: both)
    problem = fetched(capsys, job_for("https://mixed.example/a.git", tmp_path / "t", networks=()))["problem"]
    assert "not a public one" in problem


@pytest.mark.parametrize(
    "name", ["r\u00e9po.example", "repo.example.", "repo;.example", "repo#.example", "-repo.example"]
)
def test_a_name_that_curl_reads_otherwise_is_refused(
    name: str, host: GitHost, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", names_lead_to({"localhost": ["127.0.0.1"], name: ["127.0.0.1"]}))
    host.repository("other", {"a": "1"})
    host.redirects["/work/info/refs"] = f"https://{name}:{host.port}/other/info/refs?service=git-upload-pack"
    assert "problem" in fetched(capsys, job_for(host.url("work"), tmp_path / "t"))
    assert [path for path, _ in host.asked] == ["/work/info/refs"]


def test_other_objects_of_a_plain_server_are_not_followed(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    """Of git's older protocol over HTTP, in which files name other places that have objects."""
    commit = "1" * 40
    host.files |= {"/old/info/refs": f"{commit}\trefs/heads/main\n".encode(), "/old/HEAD": b"ref: refs/heads/main\n"}
    host.files |= {
        f"/old/objects/info/{name}": host.url("inside/objects\n").encode() for name in ("alternates", "http-alternates")
    }
    assert "problem" in fetched(capsys, job_for(host.url("old"), tmp_path / "t", whole_history=True))
    assert not [path for path, _ in host.asked if path.startswith("/inside")]


def test_a_hundred_thousand_branches_cost_nothing(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    copy = host.repository("work", {"a": "1"})
    commit, bare = git(copy, "rev-parse", "HEAD"), host.root / "work.git"
    names = "".join(f"{commit} refs/heads/b{number:06}\n" for number in range(100_000))
    (bare / "packed-refs").write_text(f"# pack-refs with: peeled fully-peeled sorted \n{names}")
    git(bare, "symbolic-ref", "HEAD", "refs/heads/b000007")
    assert fetched(capsys, job_for(host.url("work"), tmp_path / "t"))["found"]["branch"] == "b000007"
    assert git(tmp_path / "t", "for-each-ref", "--format=%(refname)").split() == [
        "refs/heads/b000007",
        "refs/remotes/origin/b000007",
    ]


@pytest.mark.parametrize("name", ["-x", "--orphan", "a;b", "$(touch x)", "x/../y"])
def test_a_default_branch_is_no_option(name: str, host: GitHost, tmp_path: Path, capsys: Any) -> None:
    host.repository("work", {"a": "1"})
    (host.root / "work.git" / "HEAD").write_text(f"ref: refs/heads/{name}\n")
    fetched(capsys, job_for(host.url("work"), tmp_path / "t"))
    assert {each.name for each in tmp_path.iterdir()} <= {"host", "t"}


def test_a_server_that_drips_is_given_up(
    host: GitHost, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "SLOW_SECONDS", 0)
    monkeypatch.setattr(network, "SLOW_BYTES", 2**20)
    host.files["/work.zip"] = b"x" * 2**16
    problem = fetched(capsys, job_for(host.url("work.zip"), tmp_path / "t", kind="archive"))["problem"]
    assert problem == "It comes too slowly."


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Dockerfile", "\n" * 2**18),
        ("Dockerfile", "FROM " + "--a " * 2**16),
        (".devcontainer.json", "/* " * 2**16),
        (".devcontainer.json", '"\\' * 2**17),
        (".devcontainer.json", "," * 2**18),
        ("requirements.txt", "torch[" * 40_000),
        ("environment.yml", "dependencies:\n- " + "a" * 2**18),
    ],
)
def test_texts_are_read_in_one_pass(name: str, text: str, tmp_path: Path) -> None:
    """They took minutes."""
    (tmp_path / name).write_text(text)
    found = survey.survey([(name, len(text))], survey.read_below(tmp_path), job_for("x", tmp_path))
    assert found["present"] == [name]


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc",
        "/etc",
        "ext::sh -c 'touch {marker}'",
        "--upload-pack=touch {marker}",
        "-u touch {marker}",
        "ssh://-oProxyCommand=touch%20{marker}/x",
        "git@-oProxyCommand=x:y",
        "git@localhost:--upload-pack=touch {marker}",
        "ssh://git@a -oProxyCommand=touch${{IFS}}{marker}/x",
        "ssh://git@a;touch${{IFS}}{marker};/x",
        "fd::17/foo",
        "git://localhost/x",
        "http://repo.example/x",
    ],
)
def test_no_address_runs_a_program(url: str, host: GitHost, tmp_path: Path, capsys: Any) -> None:
    marker = tmp_path / "marker"
    bad = url.format(marker=marker)
    assert "problem" in fetched(capsys, job_for(bad, tmp_path / "t"))
    copy = host.repository("work", {".gitmodules": f'[submodule "x"]\n\tpath = x\n\turl = "{bad}"\n'})
    _add_submodule(copy, "x")
    host.publish("work")
    last = fetched(capsys, job_for(host.url("work"), tmp_path / "u"))
    assert "gitmodulesUrl" in last.get("problem", "") or "x was left out." in last["found"]["notes"][0]
    assert not marker.exists()


@pytest.mark.parametrize("host_name", ["-oa", "a b", "a;b", "a$b", "a_b", "a%b", "a'b", "", "가"])
def test_no_host_of_ssh_becomes_an_option(host_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = names_lead_to({host_name: ["127.0.0.1"], "": ["127.0.0.1"]})
    monkeypatch.setattr(socket, "getaddrinfo", names)
    for url in (f"ssh://git@{host_name}/x", f"ssh://git@{host_name}:22/x", f"git@{host_name}:x"):
        with pytest.raises(FetchError):
            remote_of(url, job_for(url, tmp_path / "t"), tmp_path)


@pytest.mark.parametrize("url", ["ssh://git@Host-1.example:2222/x", "ssh://[::1]/x", "git@Host-1.example:x"])
def test_hosts_of_ssh_are_taken(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"host-1.example": ["127.0.0.1"], "Host-1.example": ["127.0.0.1"], "::1": ["127.0.0.1"]}
    monkeypatch.setattr(socket, "getaddrinfo", names_lead_to(names))
    assert " -o HostName=127.0.0.1 " in remote_of(url, job_for(url, tmp_path / "t"), tmp_path).ssh


def test_submodules_of_other_names_and_places_do_no_harm(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    marker = tmp_path / "marker"
    host.repository("evil", {"hooks/post-checkout": f"#!/bin/sh\ntouch {marker}\n"})
    modules = "".join(
        f'[submodule "{name}"]\n\tpath = {path}\n\turl = {host.url("evil.git")}\n'
        for name, path in (("modules/evil", "evil"), ("x", "A/modules/x"))
    )
    copy = host.repository("work", {".gitmodules": modules})
    evil = git(host.folder / "copies" / "evil", "rev-parse", "HEAD")
    for path in ("evil", "A/modules/x"):
        _add_submodule(copy, path, evil)
    (copy / "a").symlink_to(".git")
    git(copy, "add", "a")
    git(copy, "commit", "-q", "-m", "third")
    host.publish("work")
    found = fetched(capsys, job_for(host.url("work"), tmp_path / "t"))["found"]
    assert found["notes"] == ["Links that lead out of the tree were left out."]
    assert (tmp_path / "t" / "evil" / "hooks" / "post-checkout").exists()
    assert not (tmp_path / "t" / "a").is_symlink()
    assert not (tmp_path / "t" / ".git" / "modules").exists()
    for name, value in (("x.update", f"!touch {marker}"), ("../../modules/evil.path", "evil")):
        git(copy, "config", "-f", ".gitmodules", f"submodule.{name}", value)
        git(copy, "commit", "-q", "-a", "-m", "more")
        host.publish("work")
        assert "gitmodules" in fetched(capsys, job_for(host.url("work"), tmp_path / "u"))["problem"]
    assert not marker.exists()


def test_a_tree_that_leaves_itself_is_refused(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    copy = host.repository("work", {"a": "1"})
    blob = bytes.fromhex(git(copy, "rev-parse", "HEAD:a"))
    for number, name in enumerate((b"..", b".git", b"a/../../b")):
        (copy / "tree").write_bytes(b"100644 " + name + b"\0" + blob)
        tree = git(copy, "hash-object", "-t", "tree", "-w", "--literally", "tree")
        git(copy, "update-ref", "refs/heads/main", git(copy, "commit-tree", tree, "-m", "bad"))
        host.publish("work")
        assert "problem" in fetched(capsys, job_for(host.url("work"), tmp_path / f"t{number}"))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["host"]


def test_links_out_of_the_tree_are_left_out(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    copy = host.repository("work", {"dir/a": "1"})
    links = {"passwd": "/etc/passwd", "up": "../..", "config": ".git/config", "chain": "up/host", "good": "dir/a"}
    for name, to in links.items():
        (copy / name).symlink_to(to)
    git(copy, "add", "-A")
    git(copy, "commit", "-q", "-m", "second")
    host.publish("work")
    found = fetched(capsys, job_for(host.url("work"), tmp_path / "t"))["found"]
    assert OUTSIDE in found["notes"][0]
    assert [each.name for each in (tmp_path / "t").iterdir() if each.is_symlink()] == ["good"]


def test_no_filter_hook_or_configuration_runs(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    marker = tmp_path / "marker"
    evil = f'[filter "evil"]\n\tsmudge = touch {marker}\n[core]\n\thooksPath = hooks\n\tfsmonitor = touch {marker}\n'
    files: dict[str, str | bytes] = {".gitattributes": "* filter=evil diff=evil\n", ".gitconfig": evil, "a": "1"}
    copy = host.repository("work", files)
    for name in ("post-checkout", "post-merge", "reference-transaction"):
        hook = copy / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {marker}\n")
        hook.chmod(0o755)
    git(copy, "add", "-A")
    git(copy, "-c", "core.hooksPath=/dev/null", "commit", "-q", "-m", "second")
    host.publish("work")
    fetched(capsys, job_for(host.url("work"), tmp_path / "t"))
    assert not marker.exists()


def test_large_files_do_not_come_from_inside(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    inner = "[lfs]\n\turl = https://127.0.0.2/\n"
    host.repository("work", {"model": host.pointer(b"x" * 99), ".lfsconfig": inner})
    assert "found" in fetched(capsys, job_for(host.url("work", "127.0.0.1"), tmp_path / "t", networks=ONLY_HOST))
    [digest] = host.objects
    host.redirects[f"/large/{digest}"] = "https://127.0.0.2/"
    job = job_for(host.url("work", "127.0.0.1"), tmp_path / "u", networks=ONLY_HOST)
    assert "not a public one" in fetched(capsys, job)["problem"]


def test_a_token_goes_to_its_host_alone(
    host: GitHost, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"repo.example": ["127.0.0.1"], "other.example": ["127.0.0.1"]}
    monkeypatch.setattr(socket, "getaddrinfo", names_lead_to(names))
    host.repository("work", {"a": "1"})
    credential = Credential(host="repo.example", token="s3cret")
    host.redirects["/moved/info/refs"] = host.url("work/info/refs?service=git-upload-pack", "other.example")
    fetched(capsys, job_for(host.url("moved", "repo.example"), tmp_path / "t", credential=credential))
    given = dict(host.asked)
    assert given["/moved/info/refs"]
    assert not given["/work/info/refs"]
    assert not given["/work/git-upload-pack"]


def test_a_secret_is_in_no_command_or_output(host: GitHost, tmp_path: Path) -> None:
    host.repository("work", {"a": "1"})
    host.token = "s3cret-token"
    (tmp_path / "program").write_bytes(delivery.program())
    spy = tmp_path / "bin" / "git"
    spy.parent.mkdir()
    seen = tmp_path / "seen"
    spy.write_text(f'#!/bin/sh\n(echo "$@"; env; cat /proc/$$/cmdline) >>{seen}\nexec /usr/bin/git "$@"\n')
    spy.chmod(0o755)
    job = {
        "id": "i",
        "kind": "git",
        "url": host.url("work"),
        "target": str(tmp_path / "t"),
        "networks": ["127.0.0.0/8"],
    }
    credential = vars(token_for(host))
    (tmp_path / "job").write_text(json.dumps({**job, "credential": credential}))
    environment = {**os.environ, "PATH": f"{spy.parent}:{os.environ['PATH']}"}
    command = [sys.executable, str(tmp_path / "program"), str(tmp_path / "job")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")
    assert not (tmp_path / "job").exists()
    assert "s3cret" not in run.stdout
    assert "info/refs" not in seen.read_text()
    assert "s3cret" not in seen.read_text()
    assert not [path for path in (tmp_path / "t").rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()]


def test_what_is_stopped_leaves_nothing(host: GitHost, tmp_path: Path) -> None:
    host.repository("work", {"a": "1"})
    (tmp_path / "program").write_bytes(delivery.program())
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text(
        f'#!/bin/sh\ncase "$1" in fetch) sleep 600 & echo $! >{tmp_path}/pid; wait;; esac\nexec /usr/bin/git "$@"\n'
    )
    slow.chmod(0o755)
    job = {"id": "i", "kind": "git", "url": host.url("work"), "target": str(tmp_path / "home" / "t")}
    (tmp_path / "job").write_text(json.dumps({**job, "networks": ["127.0.0.0/8"]}))
    environment = {**os.environ, "PATH": f"{slow.parent}:{os.environ['PATH']}"}
    command = [sys.executable, str(tmp_path / "program"), str(tmp_path / "job")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Fetches" in line:
                break
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        process.send_signal(signal.SIGTERM)
        assert "cancelled" in process.stdout.read()
    until(lambda: not _is_running(int((tmp_path / "pid").read_text())))
    assert list((tmp_path / "home").iterdir()) == []


def _is_running(pid: int) -> bool:
    """Return whether a process is there that has not ended; nobody may have waited for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _bomb_zip() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(4):
            archive.writestr(f"{number}", b"\0" * 2**20)
    return content.getvalue()


def _tar(entries: list[tuple[str, bytes, str]]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, kind, link in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size = kind, link, 3 if kind == tarfile.REGTYPE else 0
            archive.addfile(entry, io.BytesIO(b"bad") if kind == tarfile.REGTYPE else None)
    return content.getvalue()


def test_an_archive_that_unpacks_to_far_more_is_not(
    host: GitHost, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "FREE_BYTES", 2**20)
    host.files["/bomb.zip"] = _bomb_zip()
    problem = fetched(capsys, job_for(host.url("bomb.zip"), tmp_path / "t", kind="archive"))["problem"]
    assert "far more" in problem
    assert sorted(each.name for each in tmp_path.iterdir()) == ["host"]


def test_what_is_left_out_of_an_archive_counts(
    host: GitHost, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "FREE_BYTES", 2**20)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        entry = tarfile.TarInfo("../bad")
        entry.size = 2**22
        archive.addfile(entry, io.BytesIO(b"\0" * 2**22))
    host.files["/bomb.tgz"] = content.getvalue()
    assert "far more" in fetched(capsys, job_for(host.url("bomb.tgz"), tmp_path / "t", kind="archive"))["problem"]


def test_large_files_of_small_pointers_are_bounded(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    pointers = [host.pointer(bytes([number]) * 2**16).replace(f"size {2**16}", "size 1") for number in range(4)]
    host.repository("work", dict(zip("abcd", pointers, strict=True)))
    job = job_for(host.url("work"), tmp_path / "t", max_bytes=2**17)
    assert "larger than" in fetched(capsys, job)["problem"]


def test_a_pack_that_grows_too_large_is_given_up(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    host.repository("work", {"a": os.urandom(2**20)})
    problem = fetched(capsys, job_for(host.url("work"), tmp_path / "t", max_bytes=2**16))["problem"]
    assert "larger than" in problem
    assert sorted(each.name for each in tmp_path.iterdir()) == ["host"]


def test_submodules_are_bounded_together(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    host.repository("part", {"a": os.urandom(2**16)})
    part = git(host.folder / "copies" / "part", "rev-parse", "HEAD")
    modules = "".join(f'[submodule "{name}"]\n\tpath = {name}\n\turl = ../part\n' for name in "abc")
    copy = host.repository("work", {".gitmodules": modules})
    for name in "abc":
        _add_submodule(copy, name, part)
    host.publish("work")
    found = fetched(capsys, job_for(host.url("work"), tmp_path / "t", max_bytes=3 * 2**16))["found"]
    assert "c was left out. It is larger than" in found["notes"][0]
    found = fetched(capsys, job_for(host.url("work"), tmp_path / "u", max_files=6))["found"]
    assert "c was left out. It has more than 6 files" in found["notes"][0]


def test_a_record_whose_sizes_are_none_is_refused(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    host.files["/api/records/7"] = b'{"files": [{"key": "a", "links": {"self": "https://x"}, "size": Infinity}]}'
    job = job_for(host.url("records/7"), tmp_path / "t", kind="zenodo")
    assert "no files for everybody" in fetched(capsys, job)["problem"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: _tar([("../bad", tarfile.REGTYPE, ""), ("ok", tarfile.REGTYPE, "")]),
        lambda: _tar([("/tmp/bad", tarfile.REGTYPE, ""), ("ok", tarfile.REGTYPE, "")]),
        lambda: _tar([("l", tarfile.SYMTYPE, ".."), ("l/bad", tarfile.REGTYPE, ""), ("ok", tarfile.REGTYPE, "")]),
        lambda: _tar([("bad", tarfile.SYMTYPE, "/etc/passwd"), ("ok", tarfile.REGTYPE, "")]),
        lambda: _tar([("l", tarfile.SYMTYPE, ".."), ("l/bad", tarfile.SYMTYPE, "/etc"), ("ok", tarfile.REGTYPE, "")]),
        lambda: _tar([("repo/ok", tarfile.REGTYPE, ""), ("repo/bad", tarfile.SYMTYPE, "../x")]),
        lambda: _tar([("repo/ok", tarfile.REGTYPE, ""), ("repo/bad", tarfile.SYMTYPE, "../repo/ok")]),
        lambda: _tar([("bad", tarfile.LNKTYPE, "/etc/passwd"), ("ok", tarfile.REGTYPE, "")]),
        lambda: _tar([("bad", tarfile.LNKTYPE, "../host/ca.pem"), ("ok", tarfile.REGTYPE, "")]),
        lambda: _tar([("bad", tarfile.CHRTYPE, ""), ("bad2", tarfile.FIFOTYPE, ""), ("ok", tarfile.REGTYPE, "")]),
        lambda: _tar([(".git/hooks/bad", tarfile.REGTYPE, ""), ("ok", tarfile.REGTYPE, "")]),
    ],
)
def test_an_archive_stays_in_its_directory(
    make: Callable[[], bytes], host: GitHost, tmp_path: Path, capsys: Any
) -> None:
    host.files["/a.tar"] = make()
    found = fetched(capsys, job_for(host.url("a.tar"), tmp_path / "t", kind="archive"))["found"]
    inside = {path.name for path in (tmp_path / "t").rglob("*") if not path.is_dir()} - {".gpuplatform-import"}
    assert "ok" in inside
    assert inside <= {"ok", "bad"}
    assert not [path for path in (tmp_path / "t").rglob("*") if path.is_symlink()]
    assert not (tmp_path / "bad").exists()
    assert found["files"] == len(inside)


def _add_submodule(copy: Path, path: str, commit: str = "1" * 40) -> None:
    git(copy, "update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")
    git(copy, "commit", "-q", "-m", "submodule")
