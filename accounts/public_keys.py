"""Public SSH keys as people paste them: read, judged and named. Pure: no database."""

from dataclasses import dataclass
from typing import Final

import asyncssh
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

MAX_KEY_LENGTH: Final = 16 * 1024  # characters of an RSA key of 16,384 bits are some 2,800
MIN_RSA_BITS: Final = 2048


class InvalidPublicKeyError(ValueError):
    """What was pasted is no public key, or none that is safe; the message says what to do."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key: `text` is its one line without a comment, which stands apart."""

    text: str
    fingerprint: str  # SHA256:..., as ssh-keygen -l shows it
    comment: str


def public_key_from(pasted: str) -> PublicKey:
    """Return the key of one line in OpenSSH's format. Raises InvalidPublicKeyError."""
    line = pasted.strip()
    if "PRIVATE KEY" in line:
        raise InvalidPublicKeyError(
            "This is a private key, which nobody but you may have: "
            "make a new pair, and paste the file that ends in .pub."
        )
    if not line or len(line) > MAX_KEY_LENGTH or len(line.splitlines()) != 1:
        raise InvalidPublicKeyError("Paste one public key: one line, such as ssh-ed25519 AAAA... you@laptop.")
    try:
        key = asyncssh.import_public_key(line)
    except (asyncssh.KeyImportError, UnicodeError) as error:
        raise InvalidPublicKeyError(
            "This is no public key in OpenSSH's format, such as ssh-ed25519 AAAA... you@laptop."
        ) from error
    _refuse_weak(key)
    text = key.export_public_key("openssh").decode()
    return PublicKey(" ".join(text.split()[:2]), key.get_fingerprint(), (key.get_comment() or "").strip())


def _refuse_weak(key: asyncssh.SSHKey) -> None:
    if key.get_algorithm() == "ssh-dss":
        raise InvalidPublicKeyError("DSA keys are too weak. Make a new pair: ssh-keygen -t ed25519.")
    if isinstance(key.pyca_key, RSAPublicKey) and (bits := key.pyca_key.key_size) < MIN_RSA_BITS:
        raise InvalidPublicKeyError(
            f"An RSA key of {bits} bits is too weak; {MIN_RSA_BITS} is the least. Better: ssh-keygen -t ed25519."
        )
