"""The operations of the API as values, without I/O: what is sent, and what the response becomes.

`methods.ApiMethods` makes methods of `Client` and `AsyncClient` of them, with the docstrings that stand here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuplatform_client.http.api_requests import (
    FIRST_PAGE,
    ApiOperation,
    ApiStream,
    ResultPage,
    body_of,
    idempotency_key,
    many,
    nothing,
    objects,
    one,
    page,
    path_part,
    text,
)
from gpuplatform_client.http.streams import read_changed_session, read_output, read_session, read_timeline_event
from gpuplatform_client.models.platform import (
    AccountInfo,
    AccountLimits,
    AppState,
    ComputeSession,
    ConversionInfo,
    DataFolder,
    EntryInfo,
    HostInfo,
    ImageVersion,
    IssuedToken,
    LaunchEstimate,
    LaunchSpec,
    ProjectInfo,
    ProjectMember,
    ResizeSpec,
    SshServerInfo,
    TimelineEvent,
    UsageTable,
    UsageWindow,
)
from gpuplatform_client.models.specs import SpecResult, SpecText


def issue_token(email: str, password: str, code: str = "") -> ApiOperation[IssuedToken]:
    """Return the request for a token; `code` is that of the second factor, where the account has one."""
    body = {"email": email, "password": password} | ({"code": code} if code else {})
    return ApiOperation("POST", "auth/token/", one(IssuedToken), body=body)


def revoke_token() -> ApiOperation[None]:
    """Revoke the token."""
    return ApiOperation("DELETE", "auth/token/", nothing)


def account() -> ApiOperation[AccountInfo]:
    """Return the user whose token is used."""
    return ApiOperation("GET", "me/", one(AccountInfo))


def ssh_server() -> ApiOperation[SshServerInfo]:
    """Return where the platform's SSH server is. Raises MissingObjectError where there is none."""
    return ApiOperation("GET", "ssh-server/", one(SshServerInfo))


def images() -> ApiOperation[ResultPage[ImageVersion]]:
    """Yield the images that may be launched."""
    return ApiOperation("GET", "images/", page(ImageVersion), FIRST_PAGE)


def sessions(**query: str) -> ApiOperation[ResultPage[ComputeSession]]:
    """Yield sessions, newest first; `tab`, `status`, `kind`, `name` and `owner` select."""
    return ApiOperation("GET", "sessions/", page(ComputeSession), FIRST_PAGE | query)


def session(session_id: str) -> ApiOperation[ComputeSession]:
    """Return a session."""
    return ApiOperation("GET", f"sessions/{path_part(session_id)}/", one(ComputeSession))


def launch(spec: LaunchSpec) -> ApiOperation[list[ComputeSession]]:
    """Launch sessions and return them; repeated after a broken connection, the request launches nothing twice."""
    return ApiOperation("POST", "sessions/", many(ComputeSession), body=body_of(spec), headers=idempotency_key())


def estimate(spec: LaunchSpec) -> ApiOperation[LaunchEstimate]:
    """Return when a launch would start."""
    return ApiOperation("POST", "sessions/estimate/", one(LaunchEstimate), body=body_of(spec))


def run_spec(
    spec: str, *, image: str = "", depends_on: Sequence[str] = (), dry_run: bool = False
) -> ApiOperation[SpecResult]:
    """Carry out a spec file, script or task file, all or nothing, or say what that would be.

    `image` is for a script or task file that names none.
    """
    body = {"text": spec, "image": image, "dry_run": dry_run}
    body |= {"depends_on": [*depends_on]} if depends_on else {}
    return ApiOperation("POST", "specs/", one(SpecResult), body=body, headers=idempotency_key())


def session_spec(session_id: str) -> ApiOperation[SpecText]:
    """Return a session as a spec file, without the values of secrets."""
    return ApiOperation("GET", f"sessions/{path_part(session_id)}/spec/", one(SpecText))


def deployment_spec(deployment_id: str) -> ApiOperation[SpecText]:
    """Return a deployment as a spec file, without the values of secrets."""
    return ApiOperation("GET", f"deployments/{path_part(deployment_id)}/spec/", one(SpecText))


def terminate(session_id: str) -> ApiOperation[ComputeSession]:
    """End a session."""
    return _changed(session_id, "terminate")


def terminate_many(session_ids: list[str]) -> ApiOperation[list[ComputeSession]]:
    """End several sessions, or none where there is one that does not exist."""
    body = {"ids": session_ids}
    return ApiOperation("POST", "sessions/terminate/", many(ComputeSession), body=body, headers=idempotency_key())


def park(session_id: str) -> ApiOperation[ComputeSession]:
    """Stop a running session and keep its files; what it holds is free for others."""
    return _changed(session_id, "park")


def resume(session_id: str) -> ApiOperation[ComputeSession]:
    """Have a parked session wait for its host, to go on with its files."""
    return _changed(session_id, "resume")


def requeue(session_id: str) -> ApiOperation[ComputeSession]:
    """Have a batch session that runs, or one that has not started yet, wait again; its command runs from the start."""
    return _changed(session_id, "requeue")


def extend(session_id: str, by: str | int) -> ApiOperation[ComputeSession]:
    """Put off the end of a running session by seconds, or a text such as "2h", as far as the policy allows."""
    return _changed(session_id, "extend", {"by": by})


def snooze(session_id: str, by: str | int) -> ApiOperation[ComputeSession]:
    """Put off the end of an idle session by seconds, or a text such as "30m", as far as the rule allows."""
    return _changed(session_id, "snooze", {"by": by})


def rename(session_id: str, name: str) -> ApiOperation[ComputeSession]:
    """Give a session another name."""
    return ApiOperation("PATCH", f"sessions/{path_part(session_id)}/", one(ComputeSession), body={"name": name})


def convert(session_id: str, name: str, tag: str = "1", description: str = "") -> ApiOperation[ConversionInfo]:
    """Have a running session saved as a private image; see `conversions` for how far it is."""
    path, body = f"sessions/{path_part(session_id)}/convert/", {"name": name, "tag": tag, "description": description}
    return ApiOperation("POST", path, one(ConversionInfo), body=body, headers=idempotency_key())


def conversions(session_id: str) -> ApiOperation[ResultPage[ConversionInfo]]:
    """Yield the conversions of a session into images, newest first."""
    return ApiOperation("GET", f"sessions/{path_part(session_id)}/conversions/", page(ConversionInfo), FIRST_PAGE)


def resize(session_id: str, spec: ResizeSpec) -> ApiOperation[ComputeSession]:
    """Have a running session hold other amounts; `resizing` of the session says until when that is under way."""
    return _changed(session_id, "resize", body_of(spec))


def session_events(session_id: str) -> ApiOperation[ResultPage[TimelineEvent]]:
    """Yield the events of a session, oldest first."""
    return ApiOperation("GET", f"sessions/{path_part(session_id)}/events/", page(TimelineEvent), FIRST_PAGE)


def logs(session_id: str, tail: int = 500, member: str = "", *, previous: bool = False) -> ApiOperation[str]:
    """Return the last `tail` lines of output, or those of the attempt before; `member` is of a cluster, or "all"."""
    query = {"tail": tail} | _of_member(member) | ({"previous": "true"} if previous else {})
    return ApiOperation("GET", f"sessions/{path_part(session_id)}/logs/", text, query)


def usage(session_id: str) -> ApiOperation[UsageWindow]:
    """Return the use of the last hour."""
    return ApiOperation("GET", f"sessions/{path_part(session_id)}/stats/", one(UsageWindow), {"window": "hour"})


def open_app(session_id: str, app: str) -> ApiOperation[AppState]:
    """Open an app, or `p8080` for a port."""
    path = f"sessions/{path_part(session_id)}/apps/{path_part(app)}/"
    return ApiOperation("POST", path, one(AppState), body={}, headers=idempotency_key())


def apps(session_id: str) -> ApiOperation[ResultPage[AppState]]:
    """Yield the apps that a session's image offers, and the ports that were opened."""
    return ApiOperation("GET", f"sessions/{path_part(session_id)}/apps/", page(AppState), FIRST_PAGE)


def hosts() -> ApiOperation[ResultPage[HostInfo]]:
    """Yield the hosts of the user's resource groups."""
    return ApiOperation("GET", "hosts/", page(HostInfo), FIRST_PAGE)


def limits(**query: str) -> ApiOperation[AccountLimits]:
    """Return what the policy allows, what is used and what is left; `project` and `resource_group` narrow it."""
    return ApiOperation("GET", "me/limits/", one(AccountLimits), query)


def usage_report(**query: str) -> ApiOperation[UsageTable]:
    """Return what sessions have used; `by` (user, project, ...), `since` and `until` (dates) select."""
    return ApiOperation("GET", "usage/", one(UsageTable), query)


def folders() -> ApiOperation[ResultPage[DataFolder]]:
    """Yield the data folders that may be read."""
    return ApiOperation("GET", "folders/", page(DataFolder), FIRST_PAGE)


def create_folder(name: str) -> ApiOperation[DataFolder]:
    """Create a data folder."""
    return ApiOperation("POST", "folders/", one(DataFolder), body={"name": name}, headers=idempotency_key())


def delete_folder(folder_id: str) -> ApiOperation[None]:
    """Move a data folder to the trash."""
    return ApiOperation("DELETE", f"folders/{path_part(folder_id)}/", nothing)


def entries(folder_id: str, path: str = "") -> ApiOperation[ResultPage[EntryInfo]]:
    """Yield what is in a directory of a folder."""
    return ApiOperation("GET", f"folders/{path_part(folder_id)}/entries/", page(EntryInfo), FIRST_PAGE | {"path": path})


def download(folder_id: str, path: str, headers: Mapping[str, str]) -> ApiOperation[None]:
    """Download a file of a folder; after a broken connection it goes on. `target` appears once it is whole."""
    return ApiOperation("GET", f"folders/{path_part(folder_id)}/download/", nothing, {"path": path}, headers=headers)


def projects() -> ApiOperation[ResultPage[ProjectInfo]]:
    """Yield the user's projects."""
    return ApiOperation("GET", "projects/", page(ProjectInfo), FIRST_PAGE)


def project_members(project_id: int) -> ApiOperation[ResultPage[ProjectMember]]:
    """Yield the members of a project."""
    return ApiOperation("GET", f"projects/{project_id}/members/", page(ProjectMember), FIRST_PAGE)


def add_project_member(project_id: int, email: str, *, role: str = "member") -> ApiOperation[ProjectMember]:
    """Make an account a member, or with the role "manager" a manager."""
    body = {"email": email, "role": role}
    return ApiOperation(
        "POST", f"projects/{project_id}/members/", one(ProjectMember), body=body, headers=idempotency_key()
    )


def change_project_member(project_id: int, member_id: int, *, role: str) -> ApiOperation[ProjectMember]:
    """Make a member a manager, or a manager a member."""
    path = f"projects/{project_id}/members/{member_id}/"
    return ApiOperation("PATCH", path, one(ProjectMember), body={"role": role})


def remove_project_member(project_id: int, member_id: int) -> ApiOperation[None]:
    """End a membership."""
    return ApiOperation("DELETE", f"projects/{project_id}/members/{member_id}/", nothing)


def invite_to_project(project_id: int, email: str) -> ApiOperation[None]:
    """Have somebody without an account mailed a link, which makes one that is a member."""
    path = f"projects/{project_id}/invitations/"
    return ApiOperation("POST", path, nothing, body={"email": email}, headers=idempotency_key())


def call(method: str, path: str, body: Any = None, /, **query: str) -> ApiOperation[Any]:
    """Send any request of the API, such as "POST", "webhooks/", and return the body of its response; None if empty."""
    return ApiOperation(method, path, lambda response: response.json() if response.content else None, query, body)


def listed(path: str, /, **query: str) -> ApiOperation[ResultPage[Any]]:
    """Yield the objects of any list of the API, such as "webhooks/"."""
    return ApiOperation("GET", path, objects, query)


def follow_logs(session_id: str, member: str = "") -> ApiStream[str]:
    """Yield output in pieces, from its beginning, until the session has ended; of a `member` of a cluster, or "all"."""
    return ApiStream(f"sessions/{path_part(session_id)}/logs/follow/", read_output, _of_member(member))


def follow_events(session_id: str) -> ApiStream[TimelineEvent]:
    """Yield the events of a session, those of before first, until it has ended."""
    return ApiStream(f"sessions/{path_part(session_id)}/events/follow/", read_timeline_event)


def follow_sessions() -> ApiStream[ComputeSession | None]:
    """Yield each of one's sessions after each of its changes; before, None: from then on no change is missed."""
    return ApiStream("sessions/events/follow/", read_changed_session)


def watch(session_id: str) -> ApiStream[ComputeSession]:
    """Yield the session now and after every change, until it has ended."""
    return ApiStream(f"sessions/{path_part(session_id)}/events/follow/", read_session)


def _of_member(member: str) -> dict[str, str | int]:
    return {"member": member} if member else {}


def _changed(session_id: str, change: str, body: Any = None) -> ApiOperation[ComputeSession]:
    """Return the request for a change of a session."""
    path = f"sessions/{path_part(session_id)}/{change}/"
    return ApiOperation("POST", path, one(ComputeSession), body=body, headers=idempotency_key())
