"""The operations of the API as values, without I/O: what is sent, and what the response becomes.

`Client` and `AsyncClient` both carry them out, so that they cannot differ in what they send or return.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote
from uuid import uuid4

import httpx

from gpuplatform_client.errors import UnreachableServerError, no_api
from gpuplatform_client.models import (
    AccountInfo,
    ApiModel,
    AppState,
    ComputeSession,
    DataFolder,
    EntryInfo,
    ImageVersion,
    IssuedToken,
    LaunchEstimate,
    LaunchSpec,
    ProjectInfo,
    ProjectMember,
    ResizeSpec,
    TimelineEvent,
    UsageWindow,
)

Result = TypeVar("Result")
Model = TypeVar("Model", bound=ApiModel)

FIRST: Mapping[str, str] = {"page_size": "200"}  # of the first page of a list
STREAM_TIMEOUT = httpx.Timeout(10.0, read=45.0)  # the platform sends something at least every 15 seconds


@dataclass(frozen=True, slots=True)
class ApiOperation(Generic[Result]):
    """A request, and how its successful response is read. `path` is relative to the API."""

    method: str
    path: str
    read: Callable[[httpx.Response], Result]
    query: Mapping[str, str | int] = field(default_factory=dict)
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    timeout: httpx.Timeout | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """Of `build_request` of an httpx client."""
        given = {"json": self.body, "content": self.content, "timeout": self.timeout}
        return {
            "method": self.method,
            "url": self.path,
            "params": dict(self.query),
            "headers": dict(self.headers),
            **{name: value for name, value in given.items() if value is not None},
        }

    def result(self, response: httpx.Response) -> Result:
        """Return the result that a successful response has. Raises UnreachableServerError where it is not the API's."""
        try:
            return self.read(response)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnreachableServerError(no_api(response)) from error

    @property
    def is_repeatable(self) -> bool:
        """True if sending it twice does no more than sending it once."""
        return self.method in ("GET", "HEAD", "PUT", "DELETE") or "Idempotency-Key" in self.headers


@dataclass(frozen=True, slots=True)
class ResultPage(Generic[Result]):
    """A page of a list, and the query of the next one; None at the end."""

    items: list[Result]
    next_query: Mapping[str, str] | None


def issue_token(email: str, password: str, code: str = "") -> ApiOperation[IssuedToken]:
    """Return the request for a token; `code` is that of the second factor, where the account has one."""
    body = {"email": email, "password": password} | ({"code": code} if code else {})
    return ApiOperation("POST", "auth/token/", _one(IssuedToken), body=body)


def revoke_token() -> ApiOperation[None]:
    """Return the revocation of the token that is used."""
    return ApiOperation("DELETE", "auth/token/", _nothing)


def account() -> ApiOperation[AccountInfo]:
    """Return the question whose token this is."""
    return ApiOperation("GET", "me/", _one(AccountInfo))


def images(query: Mapping[str, str]) -> ApiOperation[ResultPage[ImageVersion]]:
    """Return the request for a page of the images that may be launched."""
    return ApiOperation("GET", "images/", _page(ImageVersion), query)


def sessions(query: Mapping[str, str]) -> ApiOperation[ResultPage[ComputeSession]]:
    """Return the request for a page of sessions, newest first."""
    return ApiOperation("GET", "sessions/", _page(ComputeSession), query)


def session(session_id: str) -> ApiOperation[ComputeSession]:
    """Return the request for one session."""
    return ApiOperation("GET", f"sessions/{_part(session_id)}/", _one(ComputeSession))


def launch(spec: LaunchSpec) -> ApiOperation[list[ComputeSession]]:
    """Return the launch, with a key of its own by which the platform knows a repetition."""
    headers = {"Idempotency-Key": str(uuid4())}
    return ApiOperation("POST", "sessions/", _many(ComputeSession), body=_json(spec), headers=headers)


def estimate(spec: LaunchSpec) -> ApiOperation[LaunchEstimate]:
    """Return the question when a launch would start."""
    return ApiOperation("POST", "sessions/estimate/", _one(LaunchEstimate), body=_json(spec))


def terminate(session_id: str) -> ApiOperation[ComputeSession]:
    """Return the end of a session; ending an ended one does nothing."""
    headers = {"Idempotency-Key": str(uuid4())}
    return ApiOperation("POST", f"sessions/{_part(session_id)}/terminate/", _one(ComputeSession), headers=headers)


def resize(session_id: str, spec: ResizeSpec) -> ApiOperation[ComputeSession]:
    """Return the change of what a running session holds; asking again for the same does nothing."""
    headers = {"Idempotency-Key": str(uuid4())}
    path = f"sessions/{_part(session_id)}/resize/"
    return ApiOperation("POST", path, _one(ComputeSession), body=_json(spec), headers=headers)


def session_events(session_id: str, query: Mapping[str, str]) -> ApiOperation[ResultPage[TimelineEvent]]:
    """Return the request for a page of a session's events, oldest first."""
    return ApiOperation("GET", f"sessions/{_part(session_id)}/events/", _page(TimelineEvent), query)


def logs(session_id: str, tail: int) -> ApiOperation[str]:
    """Return the request for the last `tail` lines of output."""
    return ApiOperation("GET", f"sessions/{_part(session_id)}/logs/", _text, {"tail": tail})


def usage(session_id: str) -> ApiOperation[UsageWindow]:
    """Return the request for the use of the last hour."""
    return ApiOperation("GET", f"sessions/{_part(session_id)}/stats/", _one(UsageWindow), {"window": "hour"})


def open_app(session_id: str, app: str) -> ApiOperation[AppState]:
    """Return the request that opens an app, or `p8080` for a port; opening an open app does nothing."""
    headers = {"Idempotency-Key": str(uuid4())}
    path = f"sessions/{_part(session_id)}/apps/{_part(app)}/"
    return ApiOperation("POST", path, _one(AppState), body={}, headers=headers)


def folders(query: Mapping[str, str]) -> ApiOperation[ResultPage[DataFolder]]:
    """Return the request for a page of the folders that the user may read."""
    return ApiOperation("GET", "folders/", _page(DataFolder), query)


def create_folder(name: str) -> ApiOperation[DataFolder]:
    """Return the creation of a folder."""
    headers = {"Idempotency-Key": str(uuid4())}
    return ApiOperation("POST", "folders/", _one(DataFolder), body={"name": name}, headers=headers)


def delete_folder(folder_id: str) -> ApiOperation[None]:
    """Return the move of a folder to the trash."""
    return ApiOperation("DELETE", f"folders/{_part(folder_id)}/", _nothing)


def entries(folder_id: str, query: Mapping[str, str]) -> ApiOperation[ResultPage[EntryInfo]]:
    """Return the request for a page of a directory of a folder."""
    return ApiOperation("GET", f"folders/{_part(folder_id)}/entries/", _page(EntryInfo), query)


def download(folder_id: str, path: str, headers: Mapping[str, str]) -> ApiOperation[None]:
    """Return the request for a file of a folder, or for the rest of it."""
    return ApiOperation("GET", f"folders/{_part(folder_id)}/download/", _nothing, {"path": path}, headers=headers)


def projects(query: Mapping[str, str]) -> ApiOperation[ResultPage[ProjectInfo]]:
    """Return the request for a page of the user's projects."""
    return ApiOperation("GET", "projects/", _page(ProjectInfo), query)


def project_members(project_id: int, query: Mapping[str, str]) -> ApiOperation[ResultPage[ProjectMember]]:
    """Return the request for a page of a project's members."""
    return ApiOperation("GET", f"projects/{project_id}/members/", _page(ProjectMember), query)


def add_project_member(project_id: int, email: str, role: str) -> ApiOperation[ProjectMember]:
    """Return the addition of an account to a project."""
    headers = {"Idempotency-Key": str(uuid4())}
    body = {"email": email, "role": role}
    return ApiOperation("POST", f"projects/{project_id}/members/", _one(ProjectMember), body=body, headers=headers)


def change_project_member(project_id: int, member_id: int, role: str) -> ApiOperation[ProjectMember]:
    """Return the change of a member's role."""
    path = f"projects/{project_id}/members/{member_id}/"
    return ApiOperation("PATCH", path, _one(ProjectMember), body={"role": role})


def remove_project_member(project_id: int, member_id: int) -> ApiOperation[None]:
    """Return the end of a membership."""
    return ApiOperation("DELETE", f"projects/{project_id}/members/{member_id}/", _nothing)


def invite_to_project(project_id: int, email: str) -> ApiOperation[None]:
    """Return the invitation of somebody without an account."""
    headers = {"Idempotency-Key": str(uuid4())}
    path = f"projects/{project_id}/invitations/"
    return ApiOperation("POST", path, _nothing, body={"email": email}, headers=headers)


def log_path(session_id: str) -> str:
    """Return the path at which a session's output is streamed."""
    return f"sessions/{_part(session_id)}/logs/follow/"


def watch_path(session_id: str) -> str:
    """Return the path at which a session's changes are streamed."""
    return f"sessions/{_part(session_id)}/events/follow/"


def stream(path: str, headers: Mapping[str, str]) -> ApiOperation[None]:
    """Return the request for server-sent events."""
    return ApiOperation("GET", path, _nothing, headers=headers, timeout=STREAM_TIMEOUT)


def _part(text: str) -> str:
    return quote(text, safe="")


def _json(model: ApiModel) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude_none=True)


def _nothing(response: httpx.Response) -> None:
    return None


def _text(response: httpx.Response) -> str:
    return response.text


def _one(model: type[Model]) -> Callable[[httpx.Response], Model]:
    return lambda response: model.model_validate_json(response.content)


def _many(model: type[Model]) -> Callable[[httpx.Response], list[Model]]:
    return lambda response: [model.model_validate(each) for each in response.json()]


def _page(model: type[Model]) -> Callable[[httpx.Response], ResultPage[Model]]:
    def read(response: httpx.Response) -> ResultPage[Model]:
        body = response.json()
        following = body.get("next")
        query = dict(httpx.URL(following).params) if following else None
        return ResultPage([model.model_validate(each) for each in body["results"]], query)

    return read
