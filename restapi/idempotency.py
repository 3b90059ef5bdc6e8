"""Idempotency keys: a POST that is repeated with the same key takes effect once (draft-ietf-httpapi-idempotency-key).

The request runs in one transaction with the row of its key, so that there is either both or neither, whenever the
process dies. Only successful responses are stored.

Keys and requests are stored as HMACs with a key that is derived from SECRET_KEY: neither can be guessed and tried
against a copy of the database. Rows of the version before hold them in plain and are found until they are forgotten.
The table refuses new rows of that kind, so that a process of that version, which would not find ours, fails in place of
running a request again.
"""

import hashlib
import json
import re
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.db import connection
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac
from django.utils.translation import gettext_lazy as _
from rest_framework import status
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from restapi.models import HASHED, MAX_KEY_LENGTH, IdempotencyKey

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"  # header of a response that is sent again
RETENTION: Final = timedelta(hours=24)
_KEY: Final = re.compile(rf"[!-~]{{1,{MAX_KEY_LENGTH}}}")


class KeyReusedError(APIException):
    """The key was used for another request."""

    status_code = status.HTTP_422_UNPROCESSABLE_ENTITY
    default_code = "idempotency_key_reused"
    default_detail = _("This idempotency key was used for another request.")


class KeyInUseError(APIException):
    """The first request with the key is still under way."""

    status_code = status.HTTP_409_CONFLICT
    default_code = "idempotency_key_in_use"
    default_detail = _("The first request with this idempotency key is still under way. Try again.")


def key_of(request: HttpRequest) -> str:
    """Return the key of the request. Raises ValidationError."""
    key = request.headers[HEADER]
    if not _KEY.fullmatch(key):
        raise ValidationError(
            {HEADER: [_("Write 1 to %(count)d visible ASCII characters.") % {"count": MAX_KEY_LENGTH}]}
        )
    return key


def fingerprint_of(request: HttpRequest) -> str:
    """Return the digest by which a request is known to be the same."""
    head = f"{request.method} {request.get_full_path()}\n{request.content_type}\n"
    return hashlib.sha256(head.encode() + request.body).hexdigest()


def stored_response(user_id: int, key: str, fingerprint: str) -> Response | None:
    """Return the response to the first request with the key, None for the first itself. To be called in a transaction.

    Raises KeyReusedError, and KeyInUseError while another transaction runs the first request.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [f"idempotency {user_id} {key}"])
        (is_locked,) = cursor.fetchone() or (False,)
    if not is_locked:
        raise KeyInUseError
    secrets = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    marks = {_hashed_key(user_id, key, secret): _hashed_request(key, fingerprint, secret) for secret in secrets}
    marks[key] = fingerprint  # as the version before has stored it
    stored = IdempotencyKey.objects.filter(user_id=user_id, key__in=marks).order_by("-created_at").first()
    if stored is not None and stored.created_at < timezone.now() - RETENTION:
        stored.delete()
        stored = None
    if stored is None:
        return None
    if not constant_time_compare(stored.fingerprint, marks[stored.key]):
        raise KeyReusedError
    body = json.loads(stored.body) if stored.body else None
    return Response(body, status=stored.status_code, headers={REPLAYED: "true"})


def keep(user_id: int, key: str, fingerprint: str, response: Response) -> None:
    """Store the response for requests that follow; in the transaction of the request."""
    data: Any = response.data
    IdempotencyKey.objects.create(
        user_id=user_id,
        key=_hashed_key(user_id, key, settings.SECRET_KEY),
        fingerprint=_hashed_request(key, fingerprint, settings.SECRET_KEY),
        status_code=response.status_code,
        body="" if data is None else JSONRenderer().render(data).decode(),
    )


def _hashed_key(user_id: int, key: str, secret: str) -> str:
    """Return what is stored for the key: a text that no client can send as one, since it has a space."""
    digest = salted_hmac("restapi.idempotency.key", f"{user_id} {key}", secret=secret, algorithm="sha256").hexdigest()
    return HASHED + digest


def _hashed_request(key: str, fingerprint: str, secret: str) -> str:
    """Return what is stored for the request with the key; equal requests with other keys differ."""
    about = f"{key} {fingerprint}"
    return salted_hmac("restapi.idempotency.request", about, secret=secret, algorithm="sha256").hexdigest()
