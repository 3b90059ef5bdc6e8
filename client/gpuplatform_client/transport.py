"""Where the API of a platform is, and what every request carries."""

from importlib.metadata import PackageNotFoundError, version

REQUEST_SECONDS = 30.0


def api_url(url: str) -> str:
    """Return the address of the API for that of the platform."""
    return url.rstrip("/").removesuffix("/api/v1") + "/api/v1/"


def request_headers(token: str) -> dict[str, str]:
    """Return the headers of all requests."""
    headers = {"User-Agent": f"gpuplatform-client/{_version()}", "Accept": "application/json"}
    return headers | ({"Authorization": f"Token {token}"} if token else {})


def _version() -> str:
    try:
        return version("gpuplatform-client")
    except PackageNotFoundError:  # run from a checkout
        return "0"
