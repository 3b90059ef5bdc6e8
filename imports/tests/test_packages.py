"""Packages that a tree names are installed once, and again only when something has changed."""

import os
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from imports.fetcher import conda, environments, packages
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
    stamp = tree / ".venv" / environments.STAMP
    with ExitStack() as stack:
        before = stack.enter_context(stamp.open()) if stamp.exists() else None  # open, so that its inode stays its own
        packages.install(tree, job(tree, image))
        return before is None or not os.path.sameopenfile(before.fileno(), stack.enter_context(stamp.open()).fileno())


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
    assert not (tree / ".venv" / environments.STAMP).exists()


def test_a_tree_that_names_nothing_gets_nothing(tmp_path: Path) -> None:
    (tmp_path / "environment.yml").write_text("dependencies:\n- ffmpeg\n")
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
    own = job(tmp_path)
    packages.install(tmp_path, own)
    assert own.notes == ["The environment.yml names what conda alone has, which is not installed: ffmpeg."]
    assert not (tmp_path / ".venv").exists()


def test_sessions_that_share_a_tree_install_once(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / ".git").mkdir()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda image: packages.install(tree, job(tree, image)), "aaa"))
    assert capsys.readouterr().out.count("Installs packages") == 1
    assert list((tree / ".venv").glob("lib/*/site-packages/hello.py"))
    assert (tree / ".git" / "info" / "exclude").read_text().splitlines() == [environments.LOCK]


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

    place = environments.place_of(tree, "a")
    before = signal.signal(signal.SIGUSR1, end)
    try:
        with pytest.raises(SystemExit):
            packages._run(["sh", "-c", "kill -USR1 $PPID; sleep 5; touch late"], tree, place, job(tree))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not (tree / "late").exists()


@pytest.fixture
def folder(tree: Path, tmp_path: Path) -> Path:
    """The folder of environments, as sessions have it."""
    made = tmp_path / "home" / environments.FOLDER
    made.mkdir(parents=True)
    return made


def test_a_later_session_installs_nothing(
    tree: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "more.txt").write_text("# one\n")
    with (tree / "requirements.txt").open("a") as file:
        file.write("-r more.txt\n")
    fresh = tmp_path / "fresh"
    shutil.copytree(tree, fresh)
    packages.install(tree, job(tree))
    [own] = folder.glob("?" * 64)
    assert (tree / ".venv").resolve() == own.resolve()
    assert list(own.glob("lib/*/site-packages/hello.py"))
    shutil.rmtree(tree)
    fresh.rename(tree)  # what a session has that fetches the same repository
    capsys.readouterr()
    packages.install(tree, job(tree))
    assert capsys.readouterr().out == ""
    assert (tree / ".venv").resolve() == own.resolve()
    (tree / "more.txt").write_text("# another\n")
    packages.install(tree, job(tree))
    assert len(list(folder.glob("?" * 64))) == 2


def test_a_session_without_the_folder_installs_beside(tree: Path, folder: Path) -> None:
    packages.install(tree, job(tree))
    folder.rename(folder.with_name("elsewhere"))
    packages.install(tree, job(tree))
    assert (tree / ".venv").is_dir()
    assert not (tree / ".venv").is_symlink()


def test_half_an_environment_is_none(tree: Path, folder: Path) -> None:
    packages.install(tree, job(tree))
    [own] = folder.glob("?" * 64)
    (own / environments.STAMP).unlink()
    [hello] = own.glob("lib/*/site-packages/hello.py")
    shutil.rmtree(own / "lib")
    packages.install(tree, job(tree))
    assert hello.exists()


@pytest.mark.parametrize(
    ("days", "bytes_each", "left"),
    [
        ([0, 1, 29, 31], 1, "012"),
        ([0, 8, 9, 10], 9 * 2**30, "01"),
        ([0, 1, 2, 10], 9 * 2**30, "012"),
        ([day / 10 for day in range(80, 103)], 0, "0123456789abcdefghij"),
    ],
    ids=["old", "large", "in use", "many"],
)
def test_environments_are_bounded(folder: Path, days: list[float], bytes_each: int, left: str) -> None:
    names = [f"{number:064x}" for number in range(len(days))]
    for name, age in zip(names, days, strict=True):
        stamp = folder / name / environments.STAMP
        stamp.parent.mkdir()
        stamp.write_text(f"{name}\n{bytes_each}\n")
        os.utime(stamp, (time.time() - age * environments.DAY,) * 2)
    assert not environments.trim(environments.Place(folder / names[0], folder))
    assert sorted(path.name for path in folder.glob("?" * 64)) == names[: len(left)]


def test_what_a_session_installs_into_is_not_removed(folder: Path) -> None:
    old = folder / ("a" * 64)
    old.mkdir()
    os.utime(old, (0, 0))
    place = environments.Place(folder / ("b" * 64), folder)
    with environments.locked(folder, environments.Place(old, folder), job(folder)):
        environments.trim(place)
        assert old.exists()
    environments.trim(place)
    assert not old.exists()


def test_what_other_sessions_remove_meanwhile_is_passed_over(folder: Path) -> None:
    is_over = threading.Event()

    def install_and_remove() -> None:
        while not is_over.is_set():
            for made in (folder / environments.DOWNLOADS / "wheels", folder / ("a" * 64)):
                made.mkdir(parents=True)
                for number in range(500):
                    (made / f"{number}").touch()
                shutil.rmtree(made)

    with ThreadPoolExecutor() as pool:
        other = pool.submit(install_and_remove)
        try:
            for _ in range(200):
                environments.trim(environments.Place(folder / ("b" * 64), folder))
        finally:
            is_over.set()
        other.result()


@pytest.mark.parametrize(
    ("text", "requirements", "left_out", "python"),
    [
        ("dependencies:\n  - python=3.11\n  - numpy=1.26\n  - pip\n", ["numpy==1.26.*"], [], "3.11"),
        ("dependencies:\n- pytorch::pytorch==2.3.1\n- cudatoolkit=11\n", ["torch==2.3.1.*"], ["cudatoolkit"], ""),
        ("dependencies:\n- pandas>=2, <3 # x\n- pip:\n  - a[b]>=1\n  - -e .\n- tqdm\n",
            ["pandas>=2,<3", "a[b]>=1", "-e .", "tqdm"], [], ""),
        ("channels:\n  - evil\ndependencies:\n  - 'scipy=1.1=py_0'\nvariables:\n  - x\n", ["scipy==1.1.*"], [], ""),
        ("dependencies: [a]\nname: x\n", [], [], ""),
        ("dependencies:\n- numpy ; os_name\n- requests @ https://x\n", [], ["numpy", "requests"], ""),
        ("dependencies:\n- numpy <" + " " * 5000 + "x\n", [], [], ""),
    ],
)  # fmt: skip
def test_conda_is_translated_where_it_is_the_same(
    text: str, requirements: list[str], left_out: list[str], python: str
) -> None:
    assert conda.translate(text) == (tuple(requirements), tuple(left_out), python)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("[project]\nname = 'x'\n", ("-r", "pyproject.toml")),
        ("[build-system]\n[project]\n[dependency-groups]\ndev = []\n", ("-e", ".", "--group", "dev")),
        ("[tool.ruff]\n", None),
    ],
)
def test_a_project_is_installed_as_it_says(text: str, arguments: tuple[str, ...] | None) -> None:
    plan = packages._of_project(text)
    assert (plan and plan.arguments) == arguments
