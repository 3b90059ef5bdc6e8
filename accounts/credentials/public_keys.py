"""Parsing and validation of pasted public SSH keys. Pure: no database."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

if TYPE_CHECKING:
    import asyncssh

MAX_KEY_LENGTH: Final = 16 * 1024  # characters of an RSA key of 16,384 bits are some 2,800
MIN_RSA_BITS: Final = 2048


class InvalidPublicKeyError(ValueError):
    """The text is not a public key, or the key is too weak; the message says what to do."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key: `text` is its line in OpenSSH's format, without the comment."""

    text: str
    fingerprint: str  # SHA256:..., as ssh-keygen -l shows it
    comment: str


def public_key_from(pasted: str) -> PublicKey:
    """Return the key from one line in OpenSSH's format. Raises InvalidPublicKeyError."""
    import asyncssh  # here: to import it takes a fifth of the start of every process

    line = pasted.strip()
    if "PRIVATE KEY" in line:
        raise InvalidPublicKeyError(
            "This is a private key, which must stay secret: make a new pair, and paste the file that ends in .pub."
        )
    if not line or len(line) > MAX_KEY_LENGTH or len(line.splitlines()) != 1:
        raise InvalidPublicKeyError("Paste one public key: one line, such as ssh-ed25519 AAAA... you@laptop.")
    try:
        key = asyncssh.import_public_key(line)
    except ValueError as error:  # KeyImportError is one, and so is what a point beside its curve raises
        raise InvalidPublicKeyError(
            "This is not a public key in OpenSSH's format, such as ssh-ed25519 AAAA... you@laptop."
        ) from error
    _refuse_weak(key)
    text = key.export_public_key("openssh").decode()
    return PublicKey(" ".join(text.split()[:2]), key.get_fingerprint(), (key.get_comment() or "").strip())


def _refuse_weak(key: "asyncssh.SSHKey") -> None:
    if key.get_algorithm() == "ssh-dss":
        raise InvalidPublicKeyError("DSA keys are too weak. Make a new pair: ssh-keygen -t ed25519.")
    if isinstance(key.pyca_key, RSAPublicKey) and (bits := key.pyca_key.key_size) < MIN_RSA_BITS:
        raise InvalidPublicKeyError(
            f"An RSA key of {bits} bits is too weak; at least {MIN_RSA_BITS} are needed. Better: ssh-keygen -t ed25519."
        )
