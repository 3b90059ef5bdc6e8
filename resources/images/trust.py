"""Find the certificate authorities that this host trusts on top of the usual ones, so that images trust them too."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

BUNDLE_VARIABLES: Final = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
ANCHORS: Final = (  # where administrators of Debian and of Red Hat systems put their own authorities
    Path("/usr/local/share/ca-certificates"),
    Path("/etc/pki/ca-trust/source/anchors"),
)
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


def host_certificates(environ: Mapping[str, str], anchors: Sequence[Path] = ANCHORS) -> str:
    """Return the certificates as PEM text, "" where there are none beyond the usual.

    The first of the bundle variables that names a file wins; without one, every certificate in the anchor folders.
    Only certificates are taken: a private key in the same file stays where it is.
    """
    named = (Path(environ[name]) for name in BUNDLE_VARIABLES if environ.get(name))
    bundle = next((path for path in named if path.is_file()), None)
    files = [bundle] if bundle else sorted(path for folder in anchors for path in folder.rglob("*") if path.is_file())
    found = (match for path in files for match in _CERTIFICATE.findall(path.read_text(errors="replace")))
    return "".join(f"{certificate}\n" for certificate in dict.fromkeys(found))
