"""What is rendered of a container's changes: packages, suspicious files, and the recipe."""

import json

import pytest

from hostworker.conversion.base import Change, ChangeKind
from hostworker.conversion.changes import plan
from hostworker.conversion.packages import Manager, Package, Records, manually_installed, package_changes
from hostworker.conversion.recipe import recipe
from hostworker.conversion.report import Survey, render
from hostworker.conversion.suspicions import suspicion

A, C, D = ChangeKind.ADDED, ChangeKind.MODIFIED, ChangeKind.DELETED
SITE = "/opt/python/lib/python3.11/site-packages"
STATUS = """Package: jq
Status: install ok installed
Version: 1.6-2.1
Description: JSON
 Version: not this

Package: gone
Status: deinstall ok config-files
Version: 9
"""


def changed(*changes: tuple[str, ChangeKind]) -> list[Change]:
    return [Change(*change) for change in changes]


def test_apt_packages_are_known_by_their_file_lists() -> None:
    records = Records(dpkg_status=STATUS)
    info = "/var/lib/dpkg/info"
    found = package_changes(
        changed((f"{info}/jq.list", A), (f"{info}/libc6:amd64.list", C), (f"{info}/old.list", D)), records
    )[Manager.APT]
    assert found.added == (Package(name="jq", version="1.6-2.1"),)
    assert [package.name for package in found.updated + found.removed] == ["libc6", "old"]


def test_what_came_along_with_apt_is_not_asked_for() -> None:
    records = Records(apt_states="Package: libjq1\nArchitecture: amd64\nAuto-Installed: 1\n")
    packages = [Package(name="jq"), Package(name="libjq1")]
    assert manually_installed(packages, records) == packages[:1]


def test_pip_packages_are_known_by_their_records() -> None:
    found = package_changes(
        changed(
            (f"{SITE}/tiny_wheel-1.0.dist-info", A),
            (f"{SITE}/six-1.16.0.dist-info", D),
            (f"{SITE}/six-1.17.0.dist-info", A),
            (f"{SITE}/old-2.dist-info", D),
            ("/usr/lib/python3/dist-packages/apt_pkg-2.dist-info", A),
        ),
        Records(),
    )[Manager.PIP]
    assert found.added == (Package(name="tiny-wheel", version="1.0", place=SITE),)
    assert found.updated == (Package(name="six", version="1.17.0", place=SITE),)
    assert found.removed == (Package(name="old", version="2", place=SITE),)


def test_conda_packages_are_not_reported_as_pips() -> None:
    info = f"{SITE}/numpy-2.0.dist-info"
    records = Records()
    records.note(f"{info}/INSTALLER", b"conda\n")
    found = package_changes(changed(("/opt/conda/conda-meta/numpy-2.0-py311_0.json", A), (info, A)), records)
    assert found[Manager.CONDA].added == (Package(name="numpy", version="2.0", place="/opt/conda"),)
    assert Manager.PIP not in found


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/etc/ssl/key.pem", b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blb"),
        ("/opt/app/config.py", b"token = 'ghp_" + b"a" * 36 + b"'"),
        ("/opt/x/pip.conf", b"index-url = https://user:secret@example.org/simple"),
        ("/home/other/.netrc", b""),
        ("/srv/.aws/credentials", b"anything"),
        ("/opt/.docker/config.json", b"{}"),
        ("/home/other/.bash_history", b"ls"),
    ],
)
def test_a_secret_is_suspected_by_path_or_content(path: str, content: bytes) -> None:
    assert suspicion(path, len(content), content)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/opt/app/readme", b"https://example.org/a:b@c"),
        (f"{SITE}/tornado/test/url.py", b"-----BEGIN PRIVATE KEY-----\nabc"),
        ("/opt/id_rsa.pub", b"ssh-rsa AAAA"),
        ("/opt/binary", b"\0AKIAABCDEFGHIJKLMNOP"),
    ],
)
def test_an_ordinary_file_is_not_suspected(path: str, content: bytes) -> None:
    assert suspicion(path, len(content), content) == ""


def test_a_report_separates_packages_from_own_files() -> None:
    survey = Survey()
    survey.saw(f"{SITE}/tiny_wheel-1.0.dist-info/RECORD", 20, b"tiny.py,sha256=x,3\n")
    survey.saw(f"{SITE}/tiny.py", 3, b"x=1")
    survey.saw("/etc/motd", 5, b"hello")
    changes = changed((f"{SITE}/tiny_wheel-1.0.dist-info", A), (f"{SITE}/tiny.py", A), ("/etc/motd", C))
    rendered = render(survey, changes, plan(changes, (), lambda path: True), base="python:1", base_user="work")
    assert rendered.report["own_files"] == ["/etc/motd"]
    assert rendered.report["packages"]["pip"]["added"] == [{"name": "tiny-wheel", "version": "1.0", "place": SITE}]
    assert (rendered.report["size_bytes"], rendered.report["file_count"]) == (28, 3)
    assert "RUN pip install --no-cache-dir tiny-wheel==1.0\n" in rendered.recipe
    assert rendered.recipe.startswith("# ")


def test_a_report_can_be_stored_whatever_files_are_called() -> None:
    survey = Survey()
    name = "/opt/\udcff\0.txt"  # as Python decodes bytes that are no UTF-8
    survey.saw(name, 1, b"x")
    rendered = render(
        survey, changed((name, A)), plan(changed((name, A)), (), lambda path: True), base="b", base_user=""
    )
    assert rendered.report["own_files"] == ["/opt/??.txt"]
    json.dumps(rendered.report, ensure_ascii=False).encode()
    rendered.recipe.encode()


def test_nothing_in_a_container_becomes_an_instruction_of_the_recipe() -> None:
    text = recipe(
        base="python:1",
        base_user="work\nRUN evil",
        packages=package_changes(changed((f"{SITE}/a-1;evil.dist-info", A)), Records()),
        asked_of_apt=[Package(name="x$(evil)", version="1\nRUN evil")],
        own_files=["/opt/a\nRUN evil"],
        own_file_count=1,
    )
    assert not [line for line in text.splitlines() if line.startswith(("RUN evil", "evil"))]
    assert "'a==1;evil'" in text
    assert "'x$(evil)'" in text
