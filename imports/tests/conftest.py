"""A host of repositories for the tests of imports."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from imports.tests.git_host import GitHost, hosting


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHost]:
    """A host whose certificate the program trusts."""
    with hosting(tmp_path / "host") as found:
        monkeypatch.setenv("SSL_CERT_FILE", str(found.authorities))
        yield found
