"""What doctor says on a host that has joined, and may read little of the platform's tables."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from django.db import connection
from pytest_django import Settings

from operations.doctor import machine as doctor
from operations.doctor.findings import Verdict
from tests.factories import make_image


@pytest.fixture
def as_host(variables: dict[str, str], settings: Settings) -> Iterator[None]:
    """Ask the database with the rights of `gpu7`."""
    settings.COMPUTE_HOST_KEY = variables["COMPUTE_HOST_KEY"]
    make_image()
    with connection.cursor() as cursor:
        cursor.execute(f'SET ROLE "{urlsplit(variables["DATABASE_URL"]).username}"')
        yield
        cursor.execute("RESET ROLE")


@pytest.mark.docker
def test_a_joined_host_is_not_blamed_for_its_role(as_host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"database", "web", "scheduler", "SSH"} | doctor.BY_DATABASE
    monkeypatch.setattr(doctor, "CHECKS", {name: doctor.CHECKS[name] for name in asked})
    findings = dict(doctor.examine())
    assert "refuses" not in str(findings)
    assert findings["database"].text == "embedded, with this host's own role"
    assert findings["images"].hint == "`manage.py build_images` builds them"
    for name in ("web", "scheduler", "SSH"):
        assert findings[name].verdict is Verdict.OK
