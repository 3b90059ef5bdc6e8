"""Which passwords are refused, and that nothing else is asked of them."""

import hashlib
from pathlib import Path

import pytest
from django.contrib.auth.password_validation import validate_password
from django.core.checks import run_checks
from django.core.exceptions import ValidationError
from pytest_django import Settings

from accounts.signing_in.passwords import is_listed
from tests.factories import PASSWORD, make_user
from tests.web import browser_of

LISTED = ["correct horse battery", "tr0ub4dor and three", "", "ünï cödé"]
FINE = [
    "quite another password",
    "onlylowercaseletters",
    "1928374650123",
    "p" * 7 + "é" * 100,
    "gpuplatform is not all",
]


@pytest.fixture
def listed(tmp_path: Path, settings: Settings) -> Path:
    """A file as haveibeenpwned-downloader writes it, in use."""
    digests = sorted(hashlib.sha1(each.encode()).hexdigest().upper() for each in [*LISTED, *map(str, range(99))])
    path = tmp_path / "pwned.txt"
    path.write_bytes("".join(f"{each}:{7 ** (at % 9)}\r\n" for at, each in enumerate(digests)).encode())
    settings.COMPUTE_BREACHED_PASSWORDS = str(path)
    return path


@pytest.mark.parametrize("password", FINE)
def test_any_long_password_of_any_characters_is_taken(password: str, listed: Path) -> None:
    validate_password(password)


@pytest.mark.parametrize("password", ["short7c", "password123", "qwertyuiop", "GPUplatform-2026", "gpu.platform!!"])
def test_short_common_and_names_of_the_product_are_refused(password: str) -> None:
    with pytest.raises(ValidationError):
        validate_password(password)


def test_names_of_the_host_are_refused(settings: Settings) -> None:
    validate_password("physics-lab-7")
    settings.COMPUTE_PUBLIC_URL = "https://gpu.physics-lab.example.org"
    for password in ("Physics-Lab-7", "gpuplatform@physics-lab"):
        with pytest.raises(ValidationError, match="physicslab"):
            validate_password(password)


def test_every_listed_password_is_found_and_no_other(listed: Path) -> None:
    assert [each for each in [*LISTED, *map(str, range(200))] if is_listed(each, listed)] == [
        *LISTED,
        *map(str, range(99)),
    ]
    listed.write_bytes(b"")
    assert not is_listed(LISTED[0], listed)


@pytest.mark.django_db
def test_the_page_refuses_a_listed_one_in_words(listed: Path) -> None:
    user = make_user()
    fields = {"oldpassword": PASSWORD, "password1": LISTED[0], "password2": LISTED[0]}
    page = browser_of(user).post("/accounts/password/", fields).content.decode()
    assert "was published with others that were stolen elsewhere" in page
    user.refresh_from_db()
    assert user.check_password(PASSWORD)


@pytest.mark.parametrize(
    ("name", "value", "identifier"),
    [
        ("COMPUTE_LOGIN_HOURS", 0, "accounts.E001"),
        ("COMPUTE_LOGIN_HOURS", 999_999_999, "accounts.E001"),
        ("COMPUTE_LOGIN_IDLE_HOURS", -1, "accounts.E001"),
        ("COMPUTE_BREACHED_PASSWORDS", "/nowhere/pwned.txt", "accounts.E002"),
    ],
)
def test_a_bad_setting_is_named_with_a_hint(settings: Settings, name: str, value: object, identifier: str) -> None:
    setattr(settings, name, value)
    [message] = [each for each in run_checks() if (each.id or "").startswith("accounts.")]
    assert (message.id, name in message.msg, bool(message.hint)) == (identifier, True, True)
