"""Secrets and signatures of the Standard Webhooks specification (https://www.standardwebhooks.com/). Pure."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from typing import Final

PREFIX: Final = "whsec_"
SECRET_BYTES: Final = 32  # the specification asks for 24 to 64


def new_secret() -> str:
    """Return a random secret in the form that libraries of the specification take."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signature(secret: str, message_id: str, timestamp: int, body: str) -> str:
    """Return the signature of a message, version 1: HMAC-SHA256 of id, timestamp and body."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    digest = hmac.new(key, f"{message_id}.{timestamp}.{body}".encode(), hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def signed_headers(all_secrets: Iterable[str], message_id: str, timestamp: int, body: str) -> dict[str, str]:
    """Return the headers of a message; while a secret is being replaced, signatures of both stand side by side."""
    signed = " ".join(signature(secret, message_id, timestamp, body) for secret in all_secrets)
    return {"webhook-id": message_id, "webhook-timestamp": str(timestamp), "webhook-signature": signed}
