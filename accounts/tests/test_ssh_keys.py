"""SSH keys of people: what is taken, what is refused with which words, and whose they are."""

import asyncssh
import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from pytest_django import Settings

from accounts.credentials.public_keys import InvalidPublicKeyError, public_key_from
from accounts.credentials.ssh_keys import MAX_KEYS, add_ssh_key, record_ssh_host_key
from accounts.models import SshKey, User
from tests.api import client_of
from tests.factories import make_user

PAGE = "/accounts/ssh-keys/"
API = "/api/v1/ssh-keys/"


def new_key(algorithm: str = "ssh-ed25519", comment: str = "ada@laptop", **options: int) -> str:
    """Return the public half of a new key, as its file has it."""
    key = asyncssh.generate_private_key(algorithm, comment=comment, **options)
    return key.export_public_key().decode()


KINDS = [new_key(), new_key("ssh-rsa", key_size=2048), new_key("ecdsa-sha2-nistp256")]


@pytest.mark.parametrize("pasted", KINDS, ids=["ed25519", "rsa", "ecdsa"])
def test_a_valid_key_is_parsed_with_opensshs_fingerprint(pasted: str) -> None:
    key = public_key_from(f"  {pasted}\n")
    assert key.text == " ".join(pasted.split()[:2])
    assert key.fingerprint == asyncssh.import_public_key(pasted).get_fingerprint("sha256")
    assert key.comment == "ada@laptop"


BAD = {
    "": "Paste one public key",
    "ssh-ed25519": "not a public key",
    "ssh-ed25519 AAAA": "not a public key",
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAAQ== x": "not a public key",
    "ssh-ed25519\0 AAAA": "not a public key",
    "ssh-ed25519 \u00e4\u00f6": "not a public key",
    "one\ntwo": "Paste one public key",
    "x" * 20_000: "Paste one public key",
    "-----BEGIN OPENSSH PRIVATE KEY-----": "private key",
    f'command="sh" {new_key()}': "not a public key",
    new_key("ssh-dss"): "DSA keys are too weak",
    new_key("ssh-rsa", key_size=1024): "1024 bits is too weak; at least 2048 are needed",
}


@pytest.mark.parametrize(("pasted", "words"), BAD.items())
def test_an_invalid_key_is_refused_with_advice(pasted: str, words: str) -> None:
    with pytest.raises(InvalidPublicKeyError, match=words):
        public_key_from(pasted)


@pytest.fixture
def user(db: None) -> User:
    return make_user()


@pytest.fixture
def browser(user: User, client: Client) -> Client:
    client.force_login(user)
    return client


def test_a_key_of_another_account_is_refused(user: User) -> None:
    pasted = new_key()
    add_ssh_key(user, pasted, "laptop")
    with pytest.raises(InvalidPublicKeyError, match="already added this key, as 'laptop'"):
        add_ssh_key(user, pasted.replace("ada@laptop", "another comment"))
    with pytest.raises(InvalidPublicKeyError, match=r"^Another account has this key\.$"):
        add_ssh_key(make_user(), pasted)
    with pytest.raises(IntegrityError), transaction.atomic():
        SshKey.objects.create(owner=user, title="x", fingerprint=SshKey.objects.get().fingerprint)


def test_nobody_has_keys_without_end(user: User) -> None:
    SshKey.objects.bulk_create(SshKey(owner=user, title="x", fingerprint=str(each)) for each in range(MAX_KEYS))
    with pytest.raises(InvalidPublicKeyError, match="at most 50 keys"):
        add_ssh_key(user, new_key())


def test_a_titles_default_is_comment_or_fingerprint(user: User) -> None:
    assert add_ssh_key(user, new_key()).title == "ada@laptop"
    unnamed = add_ssh_key(user, new_key(comment=""))
    assert unnamed.title == unnamed.fingerprint


def test_the_page_adds_shows_and_deletes_keys(browser: Client, user: User) -> None:
    assert browser.post(PAGE, {"key": new_key(), "title": "my laptop"}).status_code == 302
    key = user.ssh_keys.get()
    shown = browser.get(PAGE).content.decode()
    assert "my laptop" in shown
    assert key.fingerprint in shown
    assert "Never used" in shown
    assert browser.post(f"{PAGE}{key.pk}/delete/").status_code == 302
    assert not user.ssh_keys.exists()


def test_the_page_shows_errors_and_keeps_typed_values(browser: Client, user: User) -> None:
    answer = browser.post(PAGE, {"key": "ssh-ed25519 nonsense", "title": "<b>x"})
    assert answer.status_code == 422
    assert "This is not a public key" in answer.content.decode()
    assert "ssh-ed25519 nonsense" in answer.content.decode()
    assert "&lt;b&gt;x" in answer.content.decode()
    assert not user.ssh_keys.exists()


def test_other_users_keys_are_neither_shown_nor_deleted(browser: Client) -> None:
    foreign = add_ssh_key(make_user(), new_key(), "their laptop")
    assert "their laptop" not in browser.get(PAGE).content.decode()
    assert browser.post(f"{PAGE}{foreign.pk}/delete/").status_code == 404
    assert browser.get(f"{PAGE}{foreign.pk}/delete/").status_code == 405
    assert SshKey.objects.filter(pk=foreign.pk).exists()


@pytest.mark.django_db
@pytest.mark.parametrize("method", ["get", "post"])
def test_a_stranger_has_to_sign_in(client: Client, method: str) -> None:
    assert getattr(client, method)(PAGE).headers["Location"].startswith("/accounts/sign-in/")
    assert client_of().get(API).status_code == 401


def test_the_api_adds_lists_and_deletes_keys(user: User) -> None:
    api, pasted = client_of(user), new_key()
    added = api.post(API, {"key": pasted, "title": "laptop"})
    assert added.status_code == 201
    assert added.json()["key"] == " ".join(pasted.split()[:2])
    assert [key["title"] for key in api.get(API).json()["results"]] == ["laptop"]
    address = f"{API}{added.json()['id']}/"
    assert client_of(make_user()).get(address).status_code == 404
    assert client_of(make_user()).delete(address).status_code == 404
    assert api.get(address).json()["last_used_at"] is None
    assert api.delete(address).status_code == 204
    assert not user.ssh_keys.exists()


@pytest.mark.parametrize(
    ("body", "field"),
    [({"key": "nonsense"}, "key"), ({}, "key"), ({"key": new_key(), "titel": "x"}, "titel"), ({"key": ["x"]}, "key")],
)
def test_the_api_refuses_by_field(user: User, body: dict[str, object], field: str) -> None:
    answer = client_of(user).post(API, body)
    assert answer.status_code == 400
    assert set(answer.json()["errors"]) == {field}


def test_the_api_says_where_the_ssh_server_is(user: User, settings: Settings) -> None:
    settings.COMPUTE_PUBLIC_URL, settings.COMPUTE_SSH_ADDRESS = "https://gpu.example.org", "0.0.0.0:8022"
    shown = client_of(user).get("/api/v1/ssh-server/").json()
    assert shown == {"host": "gpu.example.org", "port": 8022, "known_hosts": ""}
    record_ssh_host_key(new_key())
    known = client_of(user).get("/api/v1/ssh-server/").json()["known_hosts"]
    assert known.startswith("[gpu.example.org]:8022 ssh-ed25519 ")
    settings.COMPUTE_SSH_ADDRESS = ""
    assert client_of(user).get("/api/v1/ssh-server/").status_code == 404
