"""A POST that is repeated with its idempotency key takes effect once."""

import json
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import RequestFactory
from django.utils import timezone
from pytest_django import Settings

from accounts.models import ApiToken, User
from folders.models import Folder
from folders.storage import paths as storage
from operations import retention
from restapi import idempotency
from restapi.models import IdempotencyKey
from tests.api import client_of
from tests.factories import make_root, make_user

pytestmark = pytest.mark.django_db

URL = "/api/v1/folders/"
KEY = {"Idempotency-Key": "5a1c"}


@pytest.fixture
def user(request: pytest.FixtureRequest, tmp_path: Path) -> User:
    request.getfixturevalue("transactional_db" if "under_way" in request.node.name else "db")
    storage.prepare_root(make_root(name="local", path=str(tmp_path / "root"), is_default=True))
    return make_user()


def test_a_repeated_request_takes_effect_once(user: User) -> None:
    first, again = (client_of(user).post(URL, {"name": "data"}, headers=KEY) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert (again.headers.get("Idempotency-Replayed"), "Idempotency-Replayed" in first.headers) == ("true", False)
    assert Folder.objects.count() == 1


def test_a_key_is_for_one_request_of_one_user(user: User) -> None:
    client_of(user).post(URL, {"name": "data"}, headers=KEY)
    other = client_of(user).post(URL, {"name": "more"}, headers=KEY)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert client_of(make_user()).post(URL, {"name": "data"}, headers=KEY).status_code == 201


def test_a_refused_request_does_not_use_up_its_key(user: User) -> None:
    assert client_of(user).post(URL, {"name": "a/b"}, headers=KEY).status_code == 400
    assert client_of(user).post(URL, {"name": "data"}, headers=KEY).status_code == 201
    assert IdempotencyKey.objects.count() == 1


def test_neither_key_nor_request_is_stored_in_plain(user: User, settings: Settings) -> None:
    plain = RequestFactory().post(URL, json.dumps({"name": "data"}, separators=(",", ":")), "application/json")
    client_of(user).post(URL, {"name": "data"}, headers=KEY)
    kept = IdempotencyKey.objects.get()
    assert "5a1c" not in kept.key
    assert kept.fingerprint != idempotency.fingerprint_of(plain)
    settings.SECRET_KEY = "other"
    client_of(make_user()).post(URL, {"name": "data"}, headers=KEY)
    assert len(set(IdempotencyKey.objects.values_list("fingerprint", flat=True))) == 2


def test_a_key_is_found_after_a_change_of_secrets(user: User, settings: Settings) -> None:
    client_of(user).post(URL, {"name": "data"}, headers=KEY)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "other", [settings.SECRET_KEY]
    assert client_of(user).post(URL, {"name": "data"}, headers=KEY).headers.get("Idempotency-Replayed") == "true"


def test_a_row_of_the_version_before_is_found(user: User) -> None:
    asked: list[str] = []
    with patch.object(idempotency, "keep", lambda user_id, key, fingerprint, response: asked.append(fingerprint)):
        body = client_of(user).post(URL, {"name": "data"}, headers=KEY).content.decode()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE restapi_idempotencykey DROP CONSTRAINT idempotency_key_is_hashed")
    IdempotencyKey.objects.create(user=user, key="5a1c", fingerprint=asked[0], status_code=201, body=body)
    assert client_of(user).post(URL, {"name": "data"}, headers=KEY).headers.get("Idempotency-Replayed") == "true"
    assert client_of(user).post(URL, {"name": "more"}, headers=KEY).status_code == 422


def test_a_process_of_the_version_before_stores_nothing(user: User) -> None:
    with pytest.raises(IntegrityError, match="idempotency_key_is_hashed"), transaction.atomic():
        IdempotencyKey.objects.create(user=user, key="5a1c", fingerprint="", status_code=201, body="")


def test_a_key_is_forgotten_after_a_day(user: User) -> None:
    client_of(user).post(URL, {"name": "data"}, headers=KEY)
    IdempotencyKey.objects.update(created_at=timezone.now() - timedelta(hours=25))
    assert client_of(user).post(URL, {"name": "data"}, headers=KEY).status_code == 400, "the name is taken by now"
    retention.remove_old(timezone.now())
    assert not IdempotencyKey.objects.exists()


@pytest.mark.parametrize("key", ["", "a b", "x" * 129, "\u00e9"])
def test_a_malformed_key_is_refused(user: User, key: str) -> None:
    answer = client_of(user).post(URL, {"name": "data"}, headers={"Idempotency-Key": key})
    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["Idempotency-Key"])
    assert not Folder.objects.exists()


def test_secrets_are_not_kept(user: User) -> None:
    answer = client_of(user).post("/api/v1/tokens/", {"name": "a"}, headers=KEY)
    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["Idempotency-Key"])
    assert not ApiToken.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_request_under_way_holds_its_key(user: User) -> None:
    answers: list[Any] = []
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"idempotency {user.pk} 5a1c"])
        asking = threading.Thread(target=lambda: answers.append(_ask(user)))
        asking.start()
        asking.join()
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(409, "idempotency_key_in_use")]
    assert _ask(user).status_code == 201


def _ask(user: User) -> Any:
    try:
        return client_of(user).post(URL, {"name": "data"}, headers=KEY)
    finally:
        if threading.current_thread() is not threading.main_thread():
            connection.close()
