"""Packages that a tree names are installed once, and again only when something has changed."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from imports.fetcher import packages
from imports.fetcher.job import FetchError, FetchJob
from imports.tests.fetching import job_for
from tests.test_folders_in_sessions import WHEEL, wheel


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    made = tmp_path / "tree"
    (made / "wheels").mkdir(parents=True)
    (made / "wheels" / WHEEL).write_bytes(wheel())
    (made / "requirements.txt").write_text("--no-index\n--find-links wheels\nhello\n")
    return made


def job(tree: Path, image: str = "a") -> FetchJob:
    return job_for("https://host.example/r", tree, image=image, installs=True)


def installed(tree: Path, image: str = "a") -> bool:
    """Install, and return whether anything was done."""
    stamp = tree / ".venv" / packages.STAMP
    before = stamp.stat().st_mtime_ns if stamp.exists() else 0
    packages.install(tree, job(tree, image))
    return stamp.stat().st_mtime_ns != before


def test_packages_are_installed_once_for_each_state(tree: Path, tmp_path: Path) -> None:
    assert installed(tree)
    assert packages._python(tree / ".venv" / "bin" / "python")[0].startswith(str(tree))
    assert list((tree / ".venv").glob("lib/*/site-packages/hello.py"))
    assert not installed(tree)
    assert installed(tree, image="b")
    with (tree / "requirements.txt").open("a") as file:
        file.write("# changed\n")
    assert installed(tree, image="b")
    assert (tmp_path / "home/.local/share/jupyter/kernels/import-tree/kernel.json").exists()


def test_what_fails_is_told_and_tried_again(tree: Path) -> None:
    (tree / "requirements.txt").write_text("--no-index\nmissing-package\n")
    for _ in range(2):
        with pytest.raises(FetchError, match="missing-package"):
            packages.install(tree, job(tree))
    assert not (tree / ".venv" / packages.STAMP).exists()


def test_a_tree_that_names_nothing_gets_nothing(tmp_path: Path) -> None:
    (tmp_path / "environment.yml").write_text("name: x\n")
    own = job(tmp_path)
    packages.install(tmp_path, own)
    assert own.notes == ["environment.yml is conda's, which is not installed by itself."]
    assert not (tmp_path / ".venv").exists()


def test_sessions_that_share_a_tree_install_once(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / ".git").mkdir()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda image: packages.install(tree, job(tree, image)), "aaa"))
    assert capsys.readouterr().out.count("Installs packages") == 1
    assert list((tree / ".venv").glob("lib/*/site-packages/hello.py"))
    assert (tree / ".git" / "info" / "exclude").read_text().splitlines() == [packages.LOCK]


def test_an_environment_of_another_python_is_made_anew(tree: Path) -> None:
    assert installed(tree)
    [own] = (tree / ".venv" / "lib").iterdir()
    own.rename(own.with_name("python3.0"))
    assert installed(tree, image="b")
    assert [each.name for each in (tree / ".venv" / "lib").iterdir()] == [own.name]
    (tree / ".venv" / "pyvenv.cfg").unlink()  # so that its Python is the image's
    assert installed(tree)
    assert (tree / ".venv" / "pyvenv.cfg").exists()


def test_an_end_ends_what_installs(tree: Path) -> None:
    def end(*_: object) -> None:
        raise SystemExit

    before = signal.signal(signal.SIGUSR1, end)
    try:
        with pytest.raises(SystemExit):
            packages._run(["sh", "-c", "kill -USR1 $PPID; sleep 5; touch late"], tree, job(tree))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not (tree / "late").exists()
