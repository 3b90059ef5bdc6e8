"""Makes revisions: resolves what a request leaves to its runtime variant, checks it, and stores it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Max

from accounts.limits import Amounts
from accounts.models import User
from deployments import validation
from deployments.models import Deployment, HealthKind, Revision, RevisionMount
from deployments.replicas import launching
from deployments.requests import RevisionRequest
from folders.models import Folder
from resources import clock
from sessions.errors import RejectedError
from sessions.launching import group_choice, image_choice, mounts
from sessions.launching import services as sessions
from sessions.launching.mounts import MountRequest
from sessions.launching.requests import LaunchRequest

DEFAULT_PORT: Final = 8000
MAX_REVISIONS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRevision:
    """The fields of a revision without a deployment, its mounts, and the session that a replica would be."""

    launch: LaunchRequest
    fields: dict[str, Any]
    mounts: list[RevisionMount]
    amounts: Amounts


def resolve(deployment: Deployment, request: RevisionRequest) -> ResolvedRevision:
    """Return what is to be stored for the request; write nothing.

    Raises RejectedError with messages at the fields of RevisionRequest and HealthCheck, `health_path` for its path.
    """
    variant, health = request.variant, request.health
    command = request.command.strip() or (variant.command if variant else "")
    port = request.port or (variant.port if variant else DEFAULT_PORT)
    own = {**(variant.environment if variant else {}), **request.environment}
    kind, path = health.kind, health.path or (variant.health_path if variant else "/")
    if not path:
        kind = HealthKind.TCP
    numbers = {
        name: getattr(health, name) for name in ("start_seconds", "interval_seconds", "timeout_seconds", "retries")
    }
    asked = _mount_requests(request)
    launch = LaunchRequest(
        image=request.image,
        resource_group=deployment.resource_group,
        project=deployment.project,
        cpu=request.cpu,
        memory=request.memory,
        shared_memory=request.shared_memory,
        fgpu=request.fgpu,
        gpu_memory=request.gpu_memory,
        environment=launching.environment_of(own, port, asked[0].absolute_path if request.model_folder else ""),
        command=command,
        is_replica=True,
        mounts=asked,
    )
    planned = mounts.plan(deployment.owner, asked)
    errors = sessions.problems(deployment.owner, launch, planned) | _errors(request, command, port)
    errors |= validation.health_errors(kind=kind, path=path, numbers=numbers)
    if errors:
        raise RejectedError(errors)
    fgpu = group_choice.least_share([deployment.resource_group], launch).fgpu
    return ResolvedRevision(
        launch=launch,
        fields={
            "image": request.image,
            "variant": variant,
            "command": command,
            "port": port,
            "environment": own,
            "cpu": request.cpu,
            "memory": request.memory,
            "shared_memory": request.shared_memory,
            "fgpu": fgpu,
            "gpu_memory": request.gpu_memory,
            "min_fgpu": request.fgpu if request.gpu_memory else 0,
            "health_kind": kind.value,
            "health_path": path if kind == HealthKind.HTTP else "",
            "note": request.note,
            **numbers,
        },
        mounts=_stored_mounts(request, asked, planned),
        amounts=Amounts(cpu=request.cpu, memory=request.memory, fgpu=fgpu, sessions=1),
    )


def _errors(request: RevisionRequest, command: str, port: int) -> dict[str, str]:
    """Return what is wrong with the program of a revision, by field."""
    errors = validation.range_errors({"port": port})
    if not command:
        errors["command"] = "Write the command that serves, or choose a runtime variant that has one."
    if request.variant and not request.variant.is_enabled:
        errors["variant"] = f"The runtime variant {request.variant} is no longer offered."
    if len(request.note) > validation.MAX_NOTE_LENGTH:
        errors["note"] = f"Write at most {validation.MAX_NOTE_LENGTH} characters."
    return errors


def _stored_mounts(
    request: RevisionRequest, asked: Sequence[MountRequest], planned: mounts.MountPlan
) -> list[RevisionMount]:
    """Return the mounts as they are stored; the model folder is the first that was asked for."""
    return [
        RevisionMount(
            folder=each.folder,
            folder_name=mount.folder_name,
            path=mount.path,
            is_read_only=mount.is_read_only,
            is_model=bool(request.model_folder) and position == 0,
        )
        for position, (each, mount) in enumerate(zip(asked, planned.mounts, strict=False))
    ]


def store(deployment: Deployment, resolved: ResolvedRevision, actor: User) -> Revision:
    """Store the next revision of the deployment, whose row the caller has locked. Raises RejectedError."""
    number = (deployment.revisions.aggregate(last=Max("number"))["last"] or 0) + 1
    if number > MAX_REVISIONS:
        raise RejectedError({"note": f"A deployment has at most {MAX_REVISIONS} revisions; make another deployment."})
    folders = sorted(row.folder_id for row in resolved.mounts if row.folder_id)
    live = Folder.objects.live().select_for_update(no_key=True).filter(pk__in=folders).order_by("pk")
    if len(live) < len(folders):
        raise RejectedError({"mounts": "A folder was just deleted or withdrawn; choose again."})
    fields = resolved.fields | {"image": image_choice.stored(resolved.fields["image"])}
    revision = Revision.objects.create(
        deployment=deployment, number=number, created_by=actor, created_at=clock.now(), **fields
    )
    for row in resolved.mounts:
        row.revision = revision
    RevisionMount.objects.bulk_create(resolved.mounts)
    return revision


def _mount_requests(request: RevisionRequest) -> list[MountRequest]:
    """Return all mounts of a request, that of the model folder first."""
    model = request.model_folder
    if model is None:
        return list(request.mounts)
    is_read_only = True if model.is_read_only is None else model.is_read_only
    own = MountRequest(folder=model.folder, path=model.path or validation.MODEL_PATH, is_read_only=is_read_only)
    return [own, *request.mounts]
