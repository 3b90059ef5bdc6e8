"""From what a person types to the objects of the API."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from gpuplatform_client.client import Client
from gpuplatform_client.errors import ClientError, MissingObjectError
from gpuplatform_client.models.arrays import ArrayInfo
from gpuplatform_client.models.deployments import DeploymentInfo
from gpuplatform_client.models.imports import CredentialInfo
from gpuplatform_client.models.platform import (
    ComputeSession,
    DataFolder,
    ImageVersion,
    LaunchSpec,
    ProjectInfo,
    ProjectMember,
)
from gpuplatform_client.models.templates import TemplateInfo

SESSION_ID = re.compile("[a-z2-7]{16}")
DEFAULT_CPU: Final = 1
DEFAULT_MEMORY: Final = 2 * 2**30


class LookupFailedError(ClientError):
    """There is nothing of that name, or more than one."""


def find_session(client: Client, name: str) -> ComputeSession:
    """Return the session of this id, else the live one of this name, else the last one of this name.

    "train.sub1" is the member sub1 of the cluster train, where no session is called so.
    """
    if SESSION_ID.fullmatch(name):
        try:
            return client.session(name)
        except MissingObjectError:
            pass
    found = _named(client, name)
    whole, _, member = name.rpartition(".")
    if not found and whole:
        ids = [
            each.id
            for head in _named(client, whole)
            if head.cluster
            for each in head.cluster.members
            if each.name == member
        ]
        found = [client.session(ids[0])] if ids else []
    if not found:
        raise LookupFailedError(f"There is no session {name!r}.")
    return found[0]


def _named(client: Client, name: str) -> list[ComputeSession]:
    """Return the sessions of this name, a live one first."""
    found = [session for session in client.sessions(name=name) if session.name == name]
    return sorted(found, key=lambda session: session.is_final)


def find_template(client: Client, name: str) -> TemplateInfo:
    """Return the template of this id, else the one of this name."""
    if SESSION_ID.fullmatch(name):
        try:
            return client.template(name)
        except MissingObjectError:
            pass
    found = list(client.templates(name=name))
    if len(found) == 1:
        return found[0]
    ids = ", ".join(f"{each.id} of {each.holder}" for each in found)
    raise LookupFailedError(
        f"Several templates are called {name!r}: write the id ({ids})." if found else f"There is no template {name!r}."
    )


def find_running_session(client: Client, name: str) -> ComputeSession:
    """Return the session of this name or id. Raises ClientError unless it runs."""
    session = find_session(client, name)
    if session.status != "RUNNING":
        raise ClientError(f"Session {session.name} is {session.status}: it can be entered while it is RUNNING.")
    return session


def find_deployment(client: Client, name: str) -> DeploymentInfo:
    """Return the deployment of this id, else the one of this name; `name@owner` names that of a project's member."""
    if SESSION_ID.fullmatch(name):
        try:
            return client.deployment(name)
        except MissingObjectError:
            pass
    own, _, owner = name.partition("@")
    named = [each for each in client.deployments(name=own) if each.name == own]
    found = [each for each in named if owner in ("", each.owner)]
    if len(found) != 1:
        problem = (
            f"Several deployments are called {name!r}: write NAME@OWNER, or the id."
            if found
            else f"There is no deployment {name!r}."
        )
        raise LookupFailedError(problem)
    return found[0]


def find_array(client: Client, name: str) -> ArrayInfo:
    """Return the array of this id, else the newest of this name: one's own live ones have names of their own."""
    if SESSION_ID.fullmatch(name):
        try:
            return client.array(name)
        except MissingObjectError:
            pass
    if (found := next((each for each in client.arrays(name=name) if each.name == name), None)) is None:
        raise LookupFailedError(f"There is no array {name!r}.")
    return found


def folder_place(place: str) -> str | None:
    """Return FOLDER/PATH of folder:FOLDER/PATH, also as folder://FOLDER/PATH; None for a place that is in no folder."""
    scheme, _, rest = place.partition(":")
    return rest.lstrip("/") if scheme == "folder" and scheme != place else None


def find_folder(client: Client, name: str) -> DataFolder:
    """Return the folder of this name or id; `name@owner` names one that somebody shares."""
    found = [folder for folder in client.folders() if name in (folder.id, folder.name, f"{folder.name}@{folder.owner}")]
    if len(found) != 1:
        problem = (
            f"Several folders are called {name!r}: write NAME@OWNER." if found else f"There is no folder {name!r}."
        )
        raise LookupFailedError(problem)
    return found[0]


def find_credential(client: Client, name: str) -> CredentialInfo:
    """Return the user's credential of this name."""
    for credential in client.import_credentials():
        if credential.name == name:
            return credential
    raise LookupFailedError(f"There is no credential {name!r}.")


def find_project(client: Client, name: str) -> ProjectInfo:
    """Return the user's project of this name, in any case."""
    for project in client.projects():
        if project.name.casefold() == name.casefold():
            return project
    raise LookupFailedError(f"There is no project {name!r}.")


def find_member(client: Client, project: ProjectInfo, email: str) -> ProjectMember:
    """Return the member of a project with this address, in any case."""
    for member in client.project_members(project.id):
        if member.email.casefold() == email.casefold():
            return member
    raise LookupFailedError(f"{email} is no member of {project.name}.")


def choose_image(images: Iterable[ImageVersion], name: str) -> ImageVersion | None:
    """Return the image that `name` stands for: its reference, or "environment" or "environment:version" in any case.

    Of an environment without a version it is the one that the pages choose, else the newest; one that is enabled first.
    None if there is none, since some accounts may launch images that are listed nowhere; raises LookupFailedError where
    it is but a misspelt environment.
    """
    listed = list(images)
    for image in listed:
        if image.reference == name:
            return image
    environment, _, version = name.casefold().partition(":")
    matching = [
        image
        for image in listed
        if image.environment.casefold() == environment and version in ("", image.version.casefold())
    ]
    if not matching:
        _refuse_misspelt(environment, {image.environment for image in listed})
    return max(matching, key=lambda image: (image.is_enabled, image.is_default, _numbers(image.version)), default=None)


def completed(spec: LaunchSpec, images: Iterable[ImageVersion]) -> LaunchSpec:
    """Return the request with the image that was meant, and amounts that it can run with where none were named."""
    image = choose_image(images, spec.image or "")
    found: dict[str, object] = {"image": image.reference} if image else {}
    if spec.preset is None:
        found["cpu"] = spec.cpu or max(DEFAULT_CPU, image.min_cpu if image else 0)
        found["memory"] = spec.memory or max(DEFAULT_MEMORY, image.min_memory if image else 0)
    return spec.model_copy(update=found)


def _refuse_misspelt(name: str, environments: Iterable[str]) -> None:
    names = {each.casefold(): each for each in environments}
    if name not in names and (similar := get_close_matches(name, names, n=3)):
        meant = " or ".join(names[each] for each in similar)
        raise LookupFailedError(f"There is no environment {name!r}. Did you mean {meant}?")


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
