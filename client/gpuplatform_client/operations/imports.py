"""The operations of the API on imports as values, without I/O; see `operations`."""

from gpuplatform_client.http.api_requests import (
    FIRST_PAGE,
    ApiOperation,
    ResultPage,
    body_of,
    many,
    nothing,
    one,
    page,
    path_part,
)
from gpuplatform_client.models.imports import CredentialInfo, ImportInfo, ImportProposal, ImportSpec, LaunchedSession
from gpuplatform_client.models.platform import LaunchSpec


def imports() -> ApiOperation[ResultPage[ImportInfo]]:
    """Yield imports, newest first."""
    return ApiOperation("GET", "imports/", page(ImportInfo), FIRST_PAGE)


def import_state(import_id: str) -> ApiOperation[ImportInfo]:
    """Return an import."""
    return ApiOperation("GET", _path(import_id), one(ImportInfo))


def begin_import(spec: ImportSpec) -> ApiOperation[ImportInfo]:
    """Begin to look at what is at an address, or to fetch it, and return the import."""
    return ApiOperation("POST", "imports/", one(ImportInfo), body=body_of(spec))


def cancel_import(import_id: str) -> ApiOperation[ImportInfo]:
    """End an import; what was fetched by then is removed."""
    return ApiOperation("POST", _path(import_id, "cancel/"), one(ImportInfo))


def launch_options(import_id: str) -> ApiOperation[ImportProposal]:
    """Return what a finished import, or a look, proposes for a session."""
    return ApiOperation("GET", _path(import_id, "options/"), one(ImportProposal))


def launch_import(import_id: str, spec: LaunchSpec) -> ApiOperation[list[LaunchedSession]]:
    """Launch sessions with what an import has fetched, or after a look fetch it into each."""
    return ApiOperation("POST", _path(import_id, "launch/"), many(LaunchedSession), body=body_of(spec))


def import_credentials() -> ApiOperation[ResultPage[CredentialInfo]]:
    """Yield the credentials that open private repositories."""
    return ApiOperation("GET", "import-credentials/", page(CredentialInfo), FIRST_PAGE)


def add_import_credential(
    name: str, host: str, *, token: str = "", username: str = "", private_key: str = ""
) -> ApiOperation[CredentialInfo]:
    """Store a token or an SSH key; without either a key is made, whose public half is to be added at the host."""
    kind = "token" if token else "ssh_key"
    given = {"token": token, "username": username, "private_key": private_key}
    body = {"name": name, "host": host, "kind": kind} | {each: text for each, text in given.items() if text}
    return ApiOperation("POST", "import-credentials/", one(CredentialInfo), body=body)


def delete_import_credential(credential_id: int) -> ApiOperation[None]:
    """Delete a credential."""
    return ApiOperation("DELETE", f"import-credentials/{credential_id}/", nothing)


def _path(import_id: str, rest: str = "") -> str:
    return f"imports/{path_part(import_id)}/{rest}"
