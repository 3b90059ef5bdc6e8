"""A passkey in software, which does for tests what browser and authenticator do: any origin may use it."""

import json
import os
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from fido2.cose import ES256
from fido2.utils import websafe_decode, websafe_encode
from fido2.webauthn import AttestationObject, AttestedCredentialData, AuthenticatorData, CollectedClientData

RP_ID = "testserver"
FLAGS = AuthenticatorData.FLAG.UP | AuthenticatorData.FLAG.UV


class SoftPasskey:
    """One credential for the platform's name."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._id = os.urandom(16)
        self._handle = ""

    def made(self, options: dict[str, Any], origin: str = "https://testserver") -> str:
        """Return what the browser sends once it has made the credential."""
        self._handle = options["publicKey"]["user"]["id"]
        public = ES256.from_cryptography_key(self._key.public_key())
        credential = AttestedCredentialData.create(b"\0" * 16, self._id, public)
        data = AuthenticatorData.create(self._rp, FLAGS | AuthenticatorData.FLAG.AT, 0, credential)
        response = {"attestationObject": websafe_encode(AttestationObject.create("none", data, {}))}
        return self._sent("webauthn.create", options, origin, response)

    def used(self, options: dict[str, Any], origin: str = "https://testserver") -> str:
        """Return what the browser sends once the credential was used."""
        data = AuthenticatorData.create(self._rp, FLAGS, 1)
        client = self._client("webauthn.get", options, origin)
        signature = self._key.sign(data + client.hash, ec.ECDSA(hashes.SHA256()))
        response = {"authenticatorData": data, "signature": signature}
        encoded = {name: websafe_encode(value) for name, value in response.items()}
        return self._sent("webauthn.get", options, origin, encoded | {"userHandle": self._handle})

    @property
    def _rp(self) -> bytes:
        return sha256(RP_ID.encode()).digest()

    def _client(self, kind: str, options: dict[str, Any], origin: str) -> CollectedClientData:
        return CollectedClientData.create(kind, websafe_decode(options["publicKey"]["challenge"]), origin)

    def _sent(self, kind: str, options: dict[str, Any], origin: str, response: dict[str, str]) -> str:
        client = websafe_encode(self._client(kind, options, origin))
        own = websafe_encode(self._id)
        return json.dumps(
            {
                "id": own,
                "rawId": own,
                "type": "public-key",
                "response": response | {"clientDataJSON": client},
                "clientExtensionResults": {"credProps": {"rk": True}},
            }
        )
