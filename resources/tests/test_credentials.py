"""Passwords of registries: encrypted in the database, readable after a change of the secret key, never shown."""

import logging

import pytest
from django.test import override_settings
from pytest_django import Settings

from resources.models import Registry
from resources.registries.credentials import CredentialsError, login_for, login_of, rekey, set_password
from tests.factories import make_user
from tests.web import browser_of, text_of

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery"
ADD = "/admin/resources/registry/add/"


def make_registry(password: str = PASSWORD, **overrides: str) -> Registry:
    registry = Registry(**{"name": "Lab", "address": "registry.example.com:5000", "username": "platform"} | overrides)
    set_password(registry, password)
    registry.save()
    return registry


def test_an_images_registry_decides_its_login() -> None:
    make_registry()
    login = login_for("registry.example.com:5000/team/image:1")
    assert login is not None
    assert login.auth_config() == {
        "username": "platform",
        "password": PASSWORD,
        "serveraddress": "registry.example.com:5000",
    }
    assert login_for("other.example.com/team/image:1") is None
    assert login_for("team/image:1") is None


def test_docker_hub_is_the_registry_of_bare_names() -> None:
    make_registry(address="docker.io")
    assert login_for("debian:12") is not None


def test_a_registry_without_user_name_needs_no_login() -> None:
    assert login_of(make_registry("", username="")) is None


def test_the_database_and_representations_show_no_password() -> None:
    registry = make_registry()
    stored = bytes(Registry.objects.get().encrypted_password)
    assert PASSWORD.encode() not in stored
    assert PASSWORD not in repr(login_of(registry))


def test_passwords_survive_a_change_of_the_secret_key(settings: Settings) -> None:
    registry, old = make_registry(), settings.SECRET_KEY
    with override_settings(SECRET_KEY="n" * 50, SECRET_KEY_FALLBACKS=[]), pytest.raises(CredentialsError, match="Lab"):
        login_of(registry)
    with override_settings(SECRET_KEY="n" * 50, SECRET_KEY_FALLBACKS=[old]):
        assert rekey() == 1
    registry.refresh_from_db()
    with override_settings(SECRET_KEY="n" * 50, SECRET_KEY_FALLBACKS=[]):
        login = login_of(registry)
    assert login is not None
    assert login.password == PASSWORD


def test_administration_takes_a_password_and_never_shows_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    client = browser_of(make_user(is_superuser=True))
    form = {"name": "Lab", "address": "registry.example.com:5000", "username": "platform", "password": PASSWORD}
    assert client.post(ADD, form).status_code == 302
    registry = Registry.objects.get()
    change = f"/admin/resources/registry/{registry.pk}/change/"
    assert PASSWORD not in text_of(client, change)
    assert client.post(change, form | {"name": "Laboratory", "password": ""}).status_code == 302
    login = login_for("registry.example.com:5000/x:1")
    assert login is not None
    assert login.password == PASSWORD
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"address": "https://registry.example.com"}, "not the address of a registry"),
        ({"password": ""}, "Enter the password"),
        ({"username": ""}, "A password needs a user name"),
        ({"is_push_target": "on"}, "Other is the push target already"),
    ],
)
def test_administration_refuses_half_a_login(changes: dict[str, str], message: str) -> None:
    Registry.objects.create(name="Other", address="other.example.com", is_push_target=True)
    form = {"name": "Lab", "address": "registry.example.com:5000", "username": "platform", "password": PASSWORD}
    response = browser_of(make_user(is_superuser=True)).post(ADD, form | changes)
    assert message in response.content.decode()
    assert not Registry.objects.filter(name="Lab").exists()


def test_a_password_does_not_follow_to_another_registry() -> None:
    registry = make_registry()
    client = browser_of(make_user(is_superuser=True))
    form = {"name": "Lab", "address": "evil.example.com", "username": "platform", "password": ""}
    client.post(f"/admin/resources/registry/{registry.pk}/change/", form)
    assert Registry.objects.get().address == registry.address
