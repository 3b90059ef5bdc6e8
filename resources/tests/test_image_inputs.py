"""What goes into a build, and what makes an image outdated."""

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from resources.images import trust
from resources.images.catalogue import inputs
from resources.images.catalogue.recipes import Recipe

RECIPE = Recipe(suite="bookworm", packages=("six==1.17.0",))
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nTUlJQg==\n-----END CERTIFICATE-----"
OTHER = "-----BEGIN CERTIFICATE-----\nT1RIRVI=\n-----END CERTIFICATE-----"
KEY = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    (tmp_path / "files" / "tmux.conf").write_text("set -g mouse on\n")
    return tmp_path


def test_the_same_inputs_have_the_same_digest(folder: Path) -> None:
    digests = {inputs.inputs_digest(inputs.context_files(folder, "ca"), RECIPE) for _ in range(2)}
    assert len(digests) == 1


def test_each_input_changes_the_digest(folder: Path) -> None:
    files = inputs.context_files(folder, "")
    variants = [
        inputs.inputs_digest(files, RECIPE),
        inputs.inputs_digest(files, Recipe(suite="trixie", packages=RECIPE.packages)),
        inputs.inputs_digest(files, Recipe(suite="bookworm", packages=("six==1.16.0",))),
        inputs.inputs_digest(files, replace(RECIPE, wheels=("torch==2.13.0+cpu",))),
        inputs.inputs_digest(files, replace(RECIPE, pip="pip==24.0")),
        inputs.inputs_digest(files | {"Dockerfile": b"FROM other\n"}, RECIPE),
        inputs.inputs_digest(files | {"files/tmux.conf": b""}, RECIPE),
        inputs.inputs_digest(inputs.context_files(folder, CERTIFICATE), RECIPE),
    ]
    assert len(set(variants)) == len(variants)


def archive_of(folder: Path, *wheels: Path) -> bytes:
    with inputs.context_archive(inputs.context_files(folder, ""), wheels) as archive:
        return archive.read()


def test_the_archive_ignores_file_modes_and_times(folder: Path) -> None:
    before = archive_of(folder)
    (folder / "files" / "tmux.conf").chmod(0o600)
    (folder / "Dockerfile").touch()
    assert archive_of(folder) == before
    with tarfile.open(fileobj=io.BytesIO(before)) as archive:
        assert {member.name: (member.mode, member.uid) for member in archive} == {
            "Dockerfile": (0o644, 0),
            "files/tmux.conf": (0o644, 0),
            "files/host-ca.crt": (0o644, 0),
            "wheels": (0o755, 0),
        }


def test_wheels_lie_in_the_archive_for_the_build(folder: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "six-1.17.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    with tarfile.open(fileobj=io.BytesIO(archive_of(folder, wheel))) as archive:
        content = archive.extractfile(f"wheels/{wheel.name}")
        assert content
        assert content.read() == b"a wheel"


def test_the_hosts_indexes_and_proxies_reach_the_build() -> None:
    environ = {
        "PIP_INDEX_URL": "https://pypi.example.com/simple",
        "PIP_EXTRA_INDEX_URL": "file:///srv/pypi http://other.example.com/simple",
        "https_proxy": "http://proxy:3128",
        "HTTP_PROXY": "",
        "HOME": "/root",
    }
    assert inputs.network_arguments(environ) == {
        "PIP_INDEX_URL": "https://pypi.example.com/simple",
        "PIP_EXTRA_INDEX_URL": "http://other.example.com/simple",
        "https_proxy": "http://proxy:3128",
    }


def test_index_passwords_never_enter_an_image() -> None:
    environ = {"PIP_INDEX_URL": "https://me:secret@pypi.example.com/simple"}
    assert inputs.network_arguments(environ) == {}
    assert inputs.indexes_with_passwords(environ) == ["PIP_INDEX_URL"]


def test_a_ca_bundle_variable_overrides_the_anchor_folders(tmp_path: Path) -> None:
    bundle, anchors = tmp_path / "bundle.pem", tmp_path / "anchors"
    anchors.mkdir()
    bundle.write_text(f"# ours\n{CERTIFICATE}\n{KEY}\n{CERTIFICATE}\n")
    (anchors / "lab.crt").write_text(OTHER)
    environ = {"PIP_CERT": str(tmp_path / "gone.pem"), "SSL_CERT_FILE": str(bundle)}
    assert trust.host_certificates(environ, [anchors]) == f"{CERTIFICATE}\n"


def test_without_a_bundle_the_administrators_anchors_are_taken(tmp_path: Path) -> None:
    (tmp_path / "b.crt").write_text(OTHER)
    (tmp_path / "a.pem").write_text(CERTIFICATE + KEY)
    assert trust.host_certificates({}, [tmp_path, tmp_path / "missing"]) == f"{CERTIFICATE}\n{OTHER}\n"


def test_usual_authorities_are_not_added(tmp_path: Path) -> None:
    assert trust.host_certificates({"PIP_CERT": ""}, [tmp_path]) == ""
