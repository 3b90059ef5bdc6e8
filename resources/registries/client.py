"""What a registry says about an image, by the OCI distribution specification (HTTP API v2), and its deletion."""

import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError

from resources.models import Registry
from resources.registries.credentials import login_of
from resources.registries.login import RegistryLogin
from resources.registries.references import DOCKER_HUB, ImageReference, parse_reference

TIMEOUT_SECONDS: Final = 10
MAX_BYTES: Final = 4 << 20  # of a manifest or a config; the specification has registries take as much
INDEX_TYPES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFEST_TYPES: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_PARAMETER: Final = re.compile(r'\b(\w+)="([^"]*)"')  # of a challenge, RFC 9110 section 11.6.1
_HUB_HOST: Final = "registry-1.docker.io"
_REASONS: Final = {401: "it needs a login", 403: "it refuses access", 404: "it has no such image or tag"}


class RegistryError(Exception):
    """A registry does not tell about an image; the message says why."""


class DeletionUnsupportedError(RegistryError):
    """The registry deletes nothing; the message says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteImage:
    """An image as its registry describes it."""

    config: Mapping[str, Any]  # its OCI image configuration
    size_bytes: int  # of its layers as they are pulled, compressed
    architectures: tuple[str, ...]  # in which the reference is to be had, such as amd64


def describe(reference: str, architecture: str) -> RemoteImage:
    """Return what the registry of an image says of it, for one architecture where there are several.

    The registry's stored login is used. Raises RegistryError, CredentialsError, and ValueError for a malformed name.
    """
    parts = parse_reference(reference)
    registry = Registry.objects.filter(address=parts.registry).first()
    login = login_of(registry) if registry else None
    client = RegistryClient(parts.registry, login, allows_http=registry is not None and registry.allows_http)
    return client.describe(parts, architecture)


def delete(reference: str, digest: str = "") -> None:
    """Delete an image from its registry, with the stored login; a missing one is success.

    With the digest of its manifest it is that image, whatever its tag names by now.

    Raises DeletionUnsupportedError, RegistryError and CredentialsError.
    """
    parts = parse_reference(reference)
    parts = replace(parts, digest=digest or parts.digest)
    registry = Registry.objects.filter(address=parts.registry).first()
    login = login_of(registry) if registry else None
    RegistryClient(parts.registry, login, allows_http=registry is not None and registry.allows_http).delete(parts)


class RegistryClient:
    """Asks one registry, with a login if it has one."""

    def __init__(self, address: str, login: RegistryLogin | None, *, allows_http: bool = False) -> None:
        """Take the address as references begin with it. Loopback is asked over plain HTTP, as engines do."""
        self._address, self._login = address, login
        self._scheme = "http" if allows_http or _is_loopback(address) else "https"
        self._session = requests.Session()

    def describe(self, reference: ImageReference, architecture: str) -> RemoteImage:
        """Return the image; see the function of this name."""
        with self._translated():
            return self._described(reference, architecture)

    def delete(self, reference: ImageReference) -> None:
        """Delete the image's manifest; see the function of this name."""
        digest = reference.digest
        with self._translated():
            if not digest:
                with self._authorized("HEAD", reference.repository, f"manifests/{reference.tag}") as response:
                    if response.status_code == requests.codes.not_found:
                        return
                    self._check(response)
                    digest = response.headers["Docker-Content-Digest"]
            with self._authorized("DELETE", reference.repository, f"manifests/{digest}") as response:
                if response.status_code == requests.codes.method_not_allowed:
                    raise DeletionUnsupportedError(f"{self._address} deletes no images; see its settings")
                if response.status_code != requests.codes.not_found:
                    self._check(response)

    def _described(self, reference: ImageReference, architecture: str) -> RemoteImage:
        repository, wanted = reference.repository, reference.digest or reference.tag
        manifest = self._get(repository, f"manifests/{wanted}")
        architectures: tuple[str, ...] = ()
        if "manifests" in manifest:
            offered = {
                str(entry["platform"]["architecture"]): str(entry["digest"])
                for entry in reversed(manifest["manifests"])
                if (entry.get("platform") or {}).get("os") == "linux"
            }
            architectures = tuple(sorted(offered))
            if not offered:
                raise RegistryError(f"{self._address} has this image for no Linux machine")
            digest = offered.get(architecture) or offered[architectures[0]]
            manifest = self._get(repository, f"manifests/{digest}")
        config = self._get(repository, f"blobs/{manifest['config']['digest']}")
        return RemoteImage(
            config=config,
            size_bytes=sum(int(layer["size"]) for layer in manifest.get("layers", ())),
            architectures=architectures or (str(config.get("architecture", "")),),
        )

    def _get(self, repository: str, path: str) -> dict[str, Any]:
        """Return a JSON document of the registry."""
        return self._document(self._authorized("GET", repository, path))

    def _authorized(self, method: str, repository: str, path: str) -> requests.Response:
        """Return the registry's answer, logging in when it asks for that."""
        host = _HUB_HOST if self._address == DOCKER_HUB else self._address
        url = f"{self._scheme}://{host}/v2/{repository}/{path}"
        response = self._request(method, url)
        if response.status_code == requests.codes.unauthorized:
            self._authorize(response.headers.get("WWW-Authenticate", ""))
            response = self._request(method, url)
        return response

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (requests.RequestException, HTTPError, OSError) as error:  # of urllib3: what breaks off in the body
            raise RegistryError(f"{self._address} does not answer: {error}") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RegistryError(f"{self._address} gives no usable answer: {error}") from error

    def _request(self, method: str, url: str) -> requests.Response:
        accept = {"Accept": ", ".join((*INDEX_TYPES, *MANIFEST_TYPES, "application/json"))}
        return self._session.request(method, url, headers=accept, timeout=TIMEOUT_SECONDS, stream=True)

    def _check(self, response: requests.Response) -> None:
        """Raise RegistryError unless the registry has done what was asked."""
        if not response.ok:
            reason = _REASONS.get(response.status_code, f"it answers with status {response.status_code}")
            raise RegistryError(f"{self._address}: {reason}")

    def _document(self, response: requests.Response) -> dict[str, Any]:
        with response:
            self._check(response)
            content = response.raw.read(MAX_BYTES + 1, decode_content=True)
        if len(content) > MAX_BYTES:
            raise ValueError("the document is too large")
        document = json.loads(content)
        if not isinstance(document, dict):
            raise ValueError("the document is no object")
        return document

    def _authorize(self, challenge: str) -> None:
        """Log in as the challenge says: RFC 7617, or the token protocol of the distribution project."""
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() == "basic":
            self._session.auth = self._basic()
            return
        details = dict(_PARAMETER.findall(rest))
        realm = details.get("realm", "")
        if scheme.lower() != "bearer" or urlsplit(realm).scheme not in ("https", self._scheme):
            raise RegistryError(f"{self._address} asks for a log-in that is not supported")
        asked = {name: details[name] for name in ("service", "scope") if name in details}
        response = self._session.get(realm, params=asked, auth=self._basic(), timeout=TIMEOUT_SECONDS, stream=True)
        tokens = self._document(response)
        self._session.headers["Authorization"] = f"Bearer {tokens.get('token') or tokens['access_token']}"

    def _basic(self) -> tuple[str, str] | None:
        return (self._login.username, self._login.password) if self._login else None


def _is_loopback(address: str) -> bool:
    host = urlsplit(f"//{address}").hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
