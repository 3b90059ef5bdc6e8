"""What ends with a password, and with an account."""

import pytest
from asyncssh import generate_private_key
from django.contrib.auth.hashers import MD5PasswordHasher
from django.test import Client
from pytest_django import Settings

from accounts.credentials.ssh_keys import add_ssh_key
from accounts.models import ApiToken, User
from tests.api import client_of
from tests.factories import PASSWORD, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def user() -> User:
    """A user with a token and an SSH key."""
    user = make_user(email="ada@example.org")
    ApiToken.objects.issue(user)
    add_ssh_key(user, generate_private_key("ssh-ed25519").export_public_key().decode())
    return user


def credentials(user: User) -> tuple[int, int]:
    """Return the numbers of tokens and SSH keys."""
    return ApiToken.objects.filter(user=user).count(), user.ssh_keys.count()


def test_a_new_password_ends_tokens_and_keys(user: User) -> None:
    assert credentials(user) == (1, 1)
    user.set_password("another long password")
    user.save()
    assert credentials(user) == (0, 0)


def test_a_disabled_account_has_neither_tokens_nor_keys(user: User) -> None:
    user.is_active = False
    user.save(update_fields=["is_active"])
    assert credentials(user) == (0, 0)


def test_a_password_hash_renewed_at_log_in_ends_nothing(user: User, settings: Settings) -> None:
    class Stronger(MD5PasswordHasher):
        algorithm = "stronger"

    settings.PASSWORD_HASHERS = [f"{__name__}.{Stronger.__name__}", *settings.PASSWORD_HASHERS]
    globals()[Stronger.__name__] = Stronger
    before = user.password
    Client().post("/accounts/sign-in/", {"login": user.email, "password": PASSWORD})
    user.refresh_from_db()
    assert user.password != before
    assert credentials(user) == (1, 1)


def test_other_changes_end_nothing(user: User) -> None:
    user.first_name = "Ada"
    user.save()
    assert credentials(user) == (1, 1)
    assert client_of(user).get("/api/v1/me/").status_code == 200
