"""Where the API of a platform is, and what every request carries."""

from importlib.metadata import PackageNotFoundError, version

from gpuplatform_client.errors import ClientError

REQUEST_SECONDS = 30.0


def api_url(url: str) -> str:
    """Return the address of the API for that of the platform."""
    return url.rstrip("/").removesuffix("/api/v1") + "/api/v1/"


def request_headers(token: str) -> dict[str, str]:
    """Return the headers of all requests. Raises ClientError for what is no token, without saying what it is."""
    token = token.strip()  # as of a file, which ends with a newline
    if not (token.isascii() and token.isprintable()):
        raise ClientError("The token has characters that no token has.")
    headers = {"User-Agent": f"gpuplatform-client/{client_version()}", "Accept": "application/json"}
    return headers | ({"Authorization": f"Token {token}"} if token else {})


def client_version() -> str:
    """Return the version of this package, "0" where it is run from a checkout."""
    try:
        return version("gpuplatform-client")
    except PackageNotFoundError:
        return "0"
