"""What is at an address is fetched whole or not at all, by real git from a real host."""

import io
import json
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from imports.fetcher import program
from imports.tests.fetching import fetched, job_for, token_for
from imports.tests.git_host import GitHost, git

pytestmark = pytest.mark.loopback

FILES: dict[str, str | bytes] = {
    "README.md": "# Hello\n",
    "requirements.txt": "torch==2.13.0\nnumpy  # and scikit-learn\n",
    "notebooks/deep/second.ipynb": "{}",
    "first.ipynb": "{}",
    ".devcontainer/devcontainer.json": '{"hostRequirements": {"cpus": 4, "memory": "8gb", "gpu": true}, // why\n}',
    "src/main.py": "print(1)\n",
}


def test_a_repository_comes_with_its_branch(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    copy = host.repository("work", FILES)
    last = fetched(capsys, job_for(host.url("work.git"), tmp_path / "home" / "work", path="first.ipynb"))
    tree, found = tmp_path / "home" / "work", last["found"]
    assert (tree / "src" / "main.py").read_text() == "print(1)\n"
    assert (found["branch"], found["commit"]) == ("main", git(copy, "rev-parse", "HEAD"))
    assert git(tree, "status", "--porcelain", "--branch") == "## main...origin/main"
    assert git(tree, "config", "remote.origin.url") == host.url("work.git")
    assert found["notebooks"] == ["first.ipynb", "notebooks/deep/second.ipynb"]
    assert found["frameworks"] == {"torch": "2.13.0"}
    assert found["devcontainer"] == {"cpus": 4, "memory": 8 * 2**30, "gpu": True}
    assert found["present"] == ["requirements.txt", ".devcontainer/devcontainer.json", "README.md"]
    assert (found["files"], found["path"]) == (6, "first.ipynb")
    assert sorted(each.name for each in (tmp_path / "home").iterdir()) == ["work"]


def test_a_look_leaves_nothing(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    host.repository("work", FILES)
    found = fetched(capsys, job_for(host.url("work"), tmp_path / "home" / "work", is_look=True))["found"]
    assert (found["files"], found["branch"], found["frameworks"]) == (6, "main", {"torch": "2.13.0"})
    assert not (tmp_path / "home").exists()


def test_a_branch_may_have_slashes(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    copy = host.repository("work", {"a/b.ipynb": "{}"})
    git(copy, "checkout", "-q", "-b", "feature/x")
    git(copy, "commit", "-q", "--allow-empty", "-m", "second")
    host.publish("work")
    job = job_for(host.url("work"), tmp_path / "t", ref="feature", path="x/a/b.ipynb")
    found = fetched(capsys, job)["found"]
    assert (found["branch"], found["path"]) == ("feature/x", "a/b.ipynb")


@pytest.mark.parametrize("ref", ["v1", "commit"])
def test_a_tag_or_commit_is_fetched(ref: str, host: GitHost, tmp_path: Path, capsys: Any) -> None:
    copy = host.repository("work", {"a": "1"})
    git(copy, "tag", "v1")
    commit = git(copy, "rev-parse", "HEAD")
    (copy / "a").write_text("2")
    git(copy, "commit", "-q", "-a", "-m", "second")
    host.publish("work")
    fetched(capsys, job_for(host.url("work"), tmp_path / "t", ref=commit if ref == "commit" else ref))
    assert (tmp_path / "t" / "a").read_text() == "1"


def test_what_is_not_there_is_said(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    host.repository("work", {"a": "1"})
    problem = fetched(capsys, job_for(host.url("work"), tmp_path / "t", ref="nowhere"))["problem"]
    assert problem == "The repository has no branch or tag nowhere."
    assert "404" in fetched(capsys, job_for(host.url("none"), tmp_path / "t"))["problem"]
    assert not (tmp_path / "t").exists()


def test_the_second_time_finds_the_first(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    host.repository("work", {"a": "1"})
    first = fetched(capsys, job_for(host.url("work"), tmp_path / "t"))
    host.token = "changed"  # nothing is asked for again
    assert fetched(capsys, job_for(host.url("work"), tmp_path / "t")) == first
    other = fetched(capsys, job_for(host.url("work"), tmp_path / "t", id="o" * 16))
    assert "already" in other["problem"]


def test_the_whole_history_where_asked_for(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    copy = host.repository("work", {"a": "1"})
    git(copy, "commit", "-q", "--allow-empty", "-m", "second")
    host.publish("work")
    for whole, commits in ((False, "1"), (True, "2")):
        tree = tmp_path / f"t{commits}"
        fetched(capsys, job_for(host.url("work"), tree, whole_history=whole))
        assert git(tree, "rev-list", "--count", "HEAD") == commits


def test_large_files_are_fetched_and_checked(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    content = os.urandom(3 * 2**20) + b"y"
    host.repository("work", {"model.bin": host.pointer(content)})
    assert "found" in fetched(capsys, job_for(host.url("work"), tmp_path / "t"))
    assert (tmp_path / "t" / "model.bin").read_bytes() == content
    [digest] = host.objects
    host.objects[digest] = content[:-1] + b"x"
    assert "is not what" in fetched(capsys, job_for(host.url("work"), tmp_path / "u"))["problem"]
    assert not (tmp_path / "u").exists()


def test_submodules_come_with_it(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    host.repository("inner", {"inside": "1"})
    copy = host.repository("work", {"a": "1"})
    git(copy, "submodule", "add", "-q", str(host.root / "inner.git"), "libs/inner")
    git(copy, "config", "-f", ".gitmodules", "submodule.libs/inner.url", "../inner.git")
    git(copy, "commit", "-q", "-a", "-m", "second")
    host.publish("work")
    found = fetched(capsys, job_for(host.url("work.git"), tmp_path / "t"))["found"]
    assert found["notes"] == []
    assert (tmp_path / "t" / "libs" / "inner" / "inside").read_text() == "1"
    assert git(tmp_path / "t", "status", "--porcelain") == ""


def test_a_token_opens_a_private_repository(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    host.repository("work", {"model.bin": host.pointer(b"large" * 100)})
    host.token = "s3cret-token"
    assert "credential" in fetched(capsys, job_for(host.url("work"), tmp_path / "t"))["problem"]
    job = job_for(host.url("work"), tmp_path / "t", credential=token_for(host))
    assert "found" in fetched(capsys, job)
    told = subprocess.run(["grep", "-r", "s3cret", tmp_path / "t"], capture_output=True, check=False)
    assert told.returncode == 1


def test_more_files_than_allowed_are_not_fetched(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    host.repository("work", {f"d{number % 2}/f{number}": "x" for number in range(101)})
    assert "more than 100 files" in fetched(capsys, job_for(host.url("work"), tmp_path / "u", max_files=100))["problem"]


def test_an_archive_is_unpacked(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("work-main/a.ipynb", "{}")
        archive.writestr("work-main/data/b.txt", "2")
    host.files["/work.zip"] = content.getvalue()
    found = fetched(capsys, job_for(host.url("work.zip"), tmp_path / "t", kind="archive"))["found"]
    assert (tmp_path / "t" / "data" / "b.txt").read_text() == "2"
    assert found["notebooks"] == ["a.ipynb"]


def test_a_tar_archive_is_unpacked(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz") as archive:
        for name in ("one.txt", "two.txt"):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = 3, 0o4755
            archive.addfile(entry, io.BytesIO(b"abc"))
        link = tarfile.TarInfo("three.txt")
        link.type, link.linkname = tarfile.LNKTYPE, "one.txt"
        archive.addfile(link)
    host.files["/work.tar.xz"] = content.getvalue()
    fetched(capsys, job_for(host.url("work.tar.xz"), tmp_path / "t", kind="archive"))
    assert (tmp_path / "t" / "three.txt").read_text() == "abc"
    assert (tmp_path / "t" / "one.txt").stat().st_mode & 0o7777 == 0o755


def test_a_notebook_is_fetched_and_a_page_is_not(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    host.files |= {"/a.ipynb": b'{"cells": []}', "/b.ipynb": b"<html>"}
    found = fetched(capsys, job_for(host.url("a.ipynb"), tmp_path / "a", kind="notebook"))["found"]
    assert (found["path"], found["notebooks"]) == ("a.ipynb", ["a.ipynb"])
    assert "no notebook" in fetched(capsys, job_for(host.url("b.ipynb"), tmp_path / "b", kind="notebook"))["problem"]


def test_a_record_of_zenodo_is_fetched(host: GitHost, tmp_path: Path, capsys: Any) -> None:
    files = [{"key": name, "size": 2, "links": {"self": host.url(f"f/{name}")}} for name in ("a.csv", "../b")]
    host.files |= {"/api/records/7": json.dumps({"files": files}).encode(), "/f/a.csv": b"1\n", "/f/../b": b"2\n"}
    found = fetched(capsys, job_for(host.url("records/7"), tmp_path / "t", kind="zenodo"))["found"]
    assert [each.name for each in (tmp_path / "t").iterdir() if each.name != program.MARKER] == ["a.csv"]
    assert found["notes"] == ["Files with names that are none were left out."]
