"""The addresses of the platform and its apps, and the names of their cookies.

An app's origin is a host name of its own below the apps' domain. Without such a domain it is a port of its own at the
platform's host name, which the platform and all apps then share, cookies included.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final
from urllib.parse import urlsplit

LABEL: Final = re.compile(r"(?=.{1,20}--)[a-z0-9]+(?:-[a-z0-9]+)*--[a-z0-9]{1,32}")  # of an app or a deployment
DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, kw_only=True)
class Site:
    """The addresses of the platform and its apps, as browsers use them."""

    platform_url: str  # without a path; the apps have the same scheme and port
    apps_domain: str  # "": apps are distinguished by port

    @cached_property
    def is_by_port(self) -> bool:
        """Whether the apps are at ports of the platform's own host name."""
        return not self.apps_domain

    @cached_property
    def scheme(self) -> str:
        """http or https."""
        return urlsplit(self.platform_url).scheme

    @cached_property
    def is_secure(self) -> bool:
        """Whether browsers use TLS, which a reverse proxy may terminate."""
        return self.scheme == "https"

    @cached_property
    def host_name(self) -> str:
        """The platform's host name as written in URLs: an IPv6 address has brackets."""
        name = urlsplit(self.platform_url).hostname or ""
        return f"[{name}]" if ":" in name else name

    def cookie(self, listen_port: int | None = None) -> str:
        """Return the name of the cookie of an endpoint; by port, it contains the endpoint's port."""
        return self._numbered("__Host-gp_app" if self.is_secure else "gp_app", listen_port)

    def replica_cookie(self, listen_port: int | None = None) -> str:
        """Return the name of the cookie that holds which replica of a service serves a browser."""
        return self._numbered("__Host-gp_replica" if self.is_secure else "gp_replica", listen_port)

    def state_cookie(self, listen_port: int | None = None) -> str:
        """Return the name of the cookie that holds the nonce of a login under way."""
        return f"{self.cookie(listen_port)}_state"

    def origin(self, label: str, listen_port: int | None = None) -> str:
        """Return the origin of an endpoint at the common port, or at `listen_port`, which is required by port."""
        return f"{self.scheme}://{self._host(label, listen_port)}"

    def origin_of(self, host_name: str) -> str:
        """Return the origin of a service at a host name of its own: scheme and port are the platform's."""
        return f"{self.scheme}://{host_name}{self._port_suffix(None)}"

    def launch_url(self, label: str) -> str:
        """Return the URL of the platform's page that starts the app of this label."""
        app, _, session = label.partition("--")
        return f"{self.platform_url}/sessions/{session}/apps/{app}/"

    def deployment_url(self, label: str) -> str:
        """Return the URL of the platform's page of the deployment of this label."""
        return f"{self.platform_url}/deployments/{label.rpartition('--')[2]}/"

    def is_of_apps(self, host: bytes) -> bool:
        """Return whether a Host header's value is the apps' domain or anything below it."""
        name = name_of(host)
        return not self.is_by_port and (name == self._domain or name.endswith(self._suffix))

    def is_at_port(self, host: bytes, listen_port: int) -> bool:
        """Return whether a Host header's value is the platform's host name with this port."""
        return host.lower() == self._host("", listen_port).encode()

    def is_of_ports(self, host: bytes) -> bool:
        """Return whether a Host header's value is `ports.<domain>`, the name that redirects by port."""
        return name_of(host) == b"ports." + self._domain

    def label_of(self, host: bytes) -> str | None:
        """Return the label in a Host header's value, None unless it is a valid one below the apps' domain."""
        name = name_of(host)
        if not name.endswith(self._suffix):
            return None
        label = name[: -len(self._suffix)].decode("latin-1")
        return label if LABEL.fullmatch(label) else None

    def _host(self, label: str, listen_port: int | None) -> str:
        name = self.host_name if self.is_by_port else f"{label}.{self.apps_domain}"
        return f"{name}{self._port_suffix(listen_port)}"

    def _port_suffix(self, listen_port: int | None) -> str:
        port = listen_port or urlsplit(self.platform_url).port
        return f":{port}" if port and port != DEFAULT_PORTS[self.scheme] else ""

    def _numbered(self, cookie: str, listen_port: int | None) -> str:
        """Return the name of a cookie with the port, where all ports of a host share their cookies."""
        return f"{cookie}_{listen_port}" if self.is_by_port and listen_port else cookie

    @cached_property
    def _domain(self) -> bytes:
        return self.apps_domain.lower().encode()

    @cached_property
    def _suffix(self) -> bytes:
        return b"." + self._domain


def name_of(host: bytes) -> bytes:
    """Return the name in a Host header's value, in lower case and without the port."""
    return host.partition(b":")[0].lower()
