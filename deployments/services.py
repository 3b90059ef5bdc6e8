"""Commands on deployments. Each is one transaction, records an event, and has the deployment reconciled.

Callers authorize the actor, by `operable_by`; the rules of what is possible are here. All raise RejectedError with a
message per field; what others than the owner do is in the audit log.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from django.db import IntegrityError, transaction

from accounts import audit
from accounts.limits import Amounts
from accounts.models import User
from deployments import events, revisions, validation
from deployments.models import Deployment, DeploymentState, Replica, Revision, StepwiseRollout
from deployments.replicas import launching, stepping
from deployments.requests import DeploymentRequest, RevisionRequest
from resources import clock
from sessions.errors import GENERAL, RejectedError
from sessions.launching import services as sessions

MAX_DEPLOYMENTS: Final = 200  # of one owner, at once
SETTINGS: Final = (
    "resource_group",
    "is_public",
    "sticky",
    "max_surge",
    "max_unavailable",
    "concurrency",
    "queue",
    "drain_seconds",
    "allowed_origins",
    "strategy",
    "canary_steps",
    "step_seconds",
    "max_error_points",
    "max_p95_ratio",
)


def create(owner: User, request: DeploymentRequest) -> Deployment:
    """Store the deployment with its first revision, which is current; its replicas are launched at once."""
    deployment, resolved = check(owner, request)
    try:
        with transaction.atomic():
            deployment.save(force_insert=True)
            deployment.revision = revisions.store(deployment, resolved, owner)
            deployment.activated_at = clock.now()
            deployment.save(update_fields=["revision", "activated_at"])
            events.record(deployment, f"Created with {count(request.replicas)}.", owner)
            events.changed(deployment.pk)
    except IntegrityError:
        raise RejectedError({"name": _taken(request.name)}) from None
    return deployment


def check(owner: User, request: DeploymentRequest) -> tuple[Deployment, revisions.ResolvedRevision]:
    """Return what `create` would store. Raises RejectedError if it would do so now; writes nothing."""
    deployment = Deployment(
        owner=owner,
        name=request.name,
        project=request.project,
        replicas=request.replicas,
        created_at=clock.now(),
        **{name: getattr(request, name) for name in SETTINGS},
    )
    errors = validation.settings_errors({name: getattr(request, name) for name in ("replicas", *SETTINGS)})
    if error := validation.name_error(request.name):
        errors["name"] = error
    elif Deployment.objects.live().filter(owner=owner, name=request.name).exists():
        errors["name"] = _taken(request.name)
    if request.is_public and (error := _public_error(deployment)):
        errors["is_public"] = error
    if Deployment.objects.live().filter(owner=owner).count() >= MAX_DEPLOYMENTS:
        errors[GENERAL] = f"You have {MAX_DEPLOYMENTS} deployments already; end one first."
    resolved = _resolved(deployment, request.revision, errors)
    _check_replicas(deployment, request.replicas, resolved.amounts)
    return deployment, resolved


@audit.recorded_for_others("scale")
def set_replicas(deployment: Deployment, replicas: int, *, actor: User) -> Deployment:
    """Have so many replicas run; 0 stops the deployment, which keeps its address, and does not wake by itself."""
    with locked(deployment) as row:
        if row.replicas == replicas and row.asleep_since is None:
            return row
        check_scale(row, replicas)
        events.record(row, f"Scaled from {row.replicas} to {count(replicas)}.", actor)
        _save(row, replicas=replicas, asleep_since=None, waking_since=None)
    return row


def check_scale(row: Deployment, replicas: int) -> None:
    """Raise RejectedError where so many replicas can never run."""
    if errors := validation.range_errors({"replicas": replicas}):
        raise RejectedError(errors)
    if replicas and row.max_replicas is not None and not row.min_replicas <= replicas <= row.max_replicas:
        raise RejectedError({"replicas": _beyond_bounds(row)})
    if row.revision and replicas > row.replicas:
        _check_replicas(row, replicas, _amounts(row.revision))


@audit.recorded_for_others("add revision")
def new_revision(deployment: Deployment, request: RevisionRequest, *, actor: User, activates: bool = True) -> Revision:
    """Store a revision, and roll it out if it `activates`; else the replicas stay as they are."""
    resolved = check_revision(deployment, request) if activates else revisions.resolve(deployment, request)
    with locked(deployment) as row:
        revision = revisions.store(row, resolved, actor)
        events.record(row, f"Added revision {revision.number}. {revision.note}".strip(), actor)
        if activates:
            _roll_out(row, revision, actor)
        elif actor != row.owner:  # the deployment itself is as before, so nothing else records it
            audit.record(actor, "add revision", row, {"revision": (None, str(revision.number))})
    return revision


def check_revision(deployment: Deployment, request: RevisionRequest) -> revisions.ResolvedRevision:
    """Return the revision that `new_revision` would roll out. Raises RejectedError if that can never be done."""
    resolved = revisions.resolve(deployment, request)
    _check_replicas(deployment, deployment.replicas, resolved.amounts)
    _check_rollout(deployment, resolved.amounts)
    return resolved


@audit.recorded_for_others("activate revision")
def activate(deployment: Deployment, revision: Revision, *, actor: User) -> Deployment:
    """Make the revision current, be it newer or older; replicas are replaced within the limits of the rollout.

    Raises RejectedError at `revision` where it cannot be launched any more, such as for a deleted folder.
    """
    with locked(deployment) as row:
        check_activation(row, revision)
        if row.revision_id != revision.pk:
            _roll_out(row, revision, actor)
    return row


def check_activation(row: Deployment, revision: Revision) -> None:
    """Raise RejectedError at `revision` where it cannot take the place of the current one."""
    if revision.deployment_id != row.pk:
        raise RejectedError({"revision": "Choose a revision of this deployment."})
    if row.revision_id == revision.pk:
        return
    _check_launch(row, revision)
    is_return = revision.pk == row.previous_revision_id and stepping.under_way(row) is not None
    if not is_return:  # whose replicas serve still
        _check_rollout(row, _amounts(revision), "revision", revision)


@audit.recorded_for_others("abort rollout")
def abort_rollout(deployment: Deployment, *, actor: User) -> Deployment:
    """Return to the revision that was current before. Raises RejectedError where there is none."""
    with locked(deployment) as row:
        if row.previous_revision is None:
            raise RejectedError({GENERAL: "There is no revision before this one to return to."})
        _check_launch(row, row.previous_revision)
        _roll_out(row, row.previous_revision, actor, may_step=False)
    return row


@audit.recorded_for_others("promote")
def promote(deployment: Deployment, *, actor: User, to_all: bool = False) -> Deployment:
    """Pass the running step of a rollout now, whatever it has shown; `to_all`: all steps that are left.

    Raises RejectedError where no rollout by steps is under way, or replicas of the step are not healthy yet.
    """
    with locked(deployment) as row:
        rollout = stepping.under_way(row)
        if rollout is None or row.revision is None:
            raise RejectedError({GENERAL: "No rollout by steps is under way."})
        if rollout.begun_at is None and not to_all:
            raise RejectedError({GENERAL: "Requests go to the new replicas when these are healthy; that is awaited."})
        events.record(row, f"Promoted revision {row.revision.number}{' to all requests' if to_all else ''}.", actor)
        if actor != row.owner:  # the deployment itself is as before, so nothing else records it
            audit.record(actor, "promote", row, {"revision": (None, str(row.revision.number))})
        if to_all and (rollout.is_canary or rollout.begun_at is None):
            rollout.delete()
        else:
            stepping.promote(row, rollout)
        events.changed(row.pk)
    return row


@audit.recorded_for_others("change")
def change(deployment: Deployment, fields: Mapping[str, Any], *, actor: User) -> Deployment:
    """Change the settings that are given, by the names of SETTINGS; another resource group replaces all replicas."""
    with locked(deployment) as row:
        given = {name: fields[name] for name in SETTINGS if name in fields}
        if isinstance(steps := given.get("canary_steps"), tuple):
            given["canary_steps"] = list(steps)
        changes = {name: value for name, value in given.items() if value != getattr(row, name)}
        if not changes:
            return row
        after = {name: getattr(row, name) for name in SETTINGS} | changes
        errors = validation.settings_errors(after)
        if changes.get("is_public") and (error := _public_error(row)):
            errors["is_public"] = error
        if errors:
            raise RejectedError(errors)
        if "resource_group" in changes:
            row.resource_group = changes["resource_group"]
            if row.revision:
                _check_launch(row, row.revision, "resource_group")
            changes["restarted_at"] = clock.now()
        if "is_public" in changes:
            changes["epoch"] = row.epoch + 1
        said = ", ".join(f"{name.removeprefix('is_')} {_said(after[name])}" for name in SETTINGS if name in changes)
        events.record(row, f"Changed: {said}.".replace("_", " "), actor)
        _save(row, **changes)
    return row


@audit.recorded_for_others("restart")
def restart(deployment: Deployment, *, actor: User) -> Deployment:
    """Replace all replicas by new ones of the same revision, within the limits of the rollout, and forget failures."""
    with locked(deployment) as row:
        events.record(row, "Restarted.", actor)
        _save(row, restarted_at=clock.now(), given_up=None)
    return row


@audit.recorded_for_others("end")
def end(deployment: Deployment, *, actor: User) -> Deployment:
    """End the deployment for good: its address is gone at once, and so are its replicas. Safe to repeat."""
    with transaction.atomic():
        row = _row(deployment)
        if row.ended_at is None:
            events.record(row, "Ended.", actor)
            StepwiseRollout.objects.filter(deployment=row).delete()
            row.hosts.all().delete()
            gone = {"replicas": 0, "listen_port": None, "epoch": row.epoch + 1, "problem": ""}
            _save(row, ended_at=clock.now(), state=DeploymentState.ENDED, **gone)
    return row


def problems(deployment: Deployment, revision: Revision) -> dict[str, str]:
    """Return {field: message} for why the stored revision cannot be launched now, whatever else runs; {}: it can."""
    try:
        return sessions.problems(deployment.owner, launching.launch_request(deployment, revision))
    except RejectedError as error:
        return error.errors


def _roll_out(row: Deployment, revision: Revision, actor: User | None, *, may_step: bool = True) -> None:
    """Make the revision current, in the caller's transaction: by steps, if it `may_step` and the strategy is one.

    A rollout by steps that is under way ends: what is not proven loses its requests at once.
    """
    rollout, previous = stepping.under_way(row), row.revision
    is_return = rollout is not None and revision.pk == row.previous_revision_id
    before = f", in place of {row.revision.number}" if row.revision else ""
    events.record(row, f"Activated revision {revision.number}{before}.", actor)
    if rollout is not None:
        remaining = row.previous_revision if is_return else stepping.proven(row, rollout)
        for other in filter(None, {row.revision, row.previous_revision} - {remaining}):
            stepping.drop(row, other)
        previous = row.revision if is_return else remaining
        rollout.delete()
    _save(row, revision=revision, previous_revision=previous, given_up=None, given_up_why="", activated_at=clock.now())
    if may_step and not is_return:
        stepping.start(row)


@contextmanager
def locked(deployment: Deployment) -> Iterator[Deployment]:
    """Open a transaction, and yield the deployment's row under its lock. Raises RejectedError once it has ended."""
    with transaction.atomic():
        row = _row(deployment)
        if row.ended_at is not None:
            raise RejectedError({GENERAL: "This deployment has ended."})
        yield row


def _row(deployment: Deployment) -> Deployment:
    rows = Deployment.objects.select_for_update(no_key=True, of=("self",))
    related = ("owner__policy", "project__policy", "resource_group", "revision__image", "previous_revision__image")
    return rows.select_related(*related).get(pk=deployment.pk)


def _save(row: Deployment, **changes: Any) -> None:
    for name, value in changes.items():
        setattr(row, name, value)
    row.save(update_fields=[*changes])
    events.changed(row.pk)


def _resolved(
    deployment: Deployment, request: RevisionRequest, errors: Mapping[str, str]
) -> revisions.ResolvedRevision:
    """Return the revision of a new deployment; raise RejectedError with its errors and those given."""
    try:
        resolved = revisions.resolve(deployment, request)
    except RejectedError as error:
        raise RejectedError({**error.errors, **errors}) from None
    if errors:
        raise RejectedError(errors)
    return resolved


def _check_launch(row: Deployment, revision: Revision, field: str = "revision") -> None:
    """Raise RejectedError at `field` where the revision cannot be launched, or not as often as is wanted."""
    if found := problems(row, revision):
        raise RejectedError({field: f"Revision {revision.number} cannot run: {' '.join(found.values())}"})
    _check_replicas(row, row.replicas, _amounts(revision), field)


def _check_replicas(row: Deployment, replicas: int, each: Amounts, field: str = "replicas") -> None:
    if error := launching.replicas_error(row.owner, row, replicas, each):
        raise RejectedError({field: error})


def _check_rollout(row: Deployment, each: Amounts, field: str = "replicas", revision: Revision | None = None) -> None:
    """Raise RejectedError where the policies have no room for what a rollout needs beside the replicas that serve.

    Those of this very revision, as in the middle of another rollout, need not be launched.
    """
    _, least = launching.beside(row)
    if row.revision is None or not least:
        return
    serving = _still_serving(row)
    least = min(least, row.replicas - sum(revision is not None and it.revision_id == revision.pk for it in serving))
    error = launching.rollout_error(row, [it.session for it in serving], least, each) if least > 0 else None
    if error:
        raise RejectedError({field: error})


def _still_serving(row: Deployment) -> list[Replica]:
    """Return the replicas that take requests and still do as another rollout begins: the oldest, as many as wanted."""
    taking = row.replica_rows.taking_requests().select_related("session")
    if (rollout := stepping.under_way(row)) is not None:
        taking = taking.filter(revision=stepping.proven(row, rollout))
    return list(taking[: row.replicas])


def _amounts(revision: Revision) -> Amounts:
    return Amounts(cpu=revision.cpu, memory=revision.memory, fgpu=revision.fgpu, sessions=1)


def _public_error(deployment: Deployment) -> str | None:
    if deployment.allows_public:
        return None
    return "Your policy does not allow to open deployments to people without an account."


def _taken(name: str) -> str:
    return f"You have a deployment called {name} already; end it or choose another name."


def _beyond_bounds(row: Deployment) -> str:
    return (
        f"It is scaled by its load between {row.min_replicas} and {row.max_replicas}: choose a number within, 0 to stop"
        " it, or other bounds."
    )


def count(replicas: int) -> str:
    """Return so many replicas in words."""
    return "1 replica" if replicas == 1 else f"{replicas} replicas"


def _said(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return (
        {True: "yes", False: "no", "": "none"}.get(value, str(value)) if isinstance(value, bool | str) else str(value)
    )
