"""The command line as one file: equal bytes each time, pure Python, and nothing where its packages are missing."""

import io
import zipfile
from pathlib import Path

import pytest
from django.test import Client
from pytest_django import Settings

from restapi import client_zipapp


@pytest.fixture(autouse=True)
def forgotten() -> None:
    """Have the file made anew."""
    client_zipapp._zipapp.cache_clear()


def test_the_file_has_equal_bytes_and_no_compiled_parts(settings: Settings) -> None:
    settings.COMPUTE_PUBLIC_URL = "https://gpu.example.org"
    first = client_zipapp.zipapp()
    client_zipapp._zipapp.cache_clear()
    assert first == client_zipapp.zipapp()
    assert first
    archive = zipfile.ZipFile(io.BytesIO(first.content))
    assert not [name for name in archive.namelist() if not name.isascii() or name.endswith((".so", ".pyd", ".pyc"))]
    assert archive.read("gpuplatform_client/platform_url.txt") == b"https://gpu.example.org"
    settings.COMPUTE_PUBLIC_URL = "https://other.example.org"
    other = client_zipapp.zipapp()
    assert other
    assert other.digest != first.digest


def test_what_was_not_fetched_is_not_offered(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_zipapp, "WHEELS", tmp_path)
    assert client_zipapp.address() == ""
    assert client.get("/cli/gpuplatform").status_code == 404
    monkeypatch.undo()
    assert client.get("/cli/gpuplatform").status_code == 200  # once it is fetched


def test_packages_without_a_file_of_their_own_are_found_unpacked() -> None:
    made = client_zipapp.zipapp()
    assert made
    names = zipfile.ZipFile(io.BytesIO(made.content)).namelist()
    assert "ruamel/yaml/__init__.py" in names
    assert {"ruamel/__init__.py", "ruamel/"} & set(names)  # without either, Python finds no package in an archive
