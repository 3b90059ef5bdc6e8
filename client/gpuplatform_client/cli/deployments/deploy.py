"""`gpuplatform deploy` and `rollout`: serve a model at an address, and see how far its replicas are."""

import shlex
import time
from datetime import datetime
from typing import Annotated, Any

import typer

from gpuplatform_client.cli.amounts import clock_text
from gpuplatform_client.cli.connection import connected, messages, output, reporting
from gpuplatform_client.cli.exit_codes import FAILED
from gpuplatform_client.cli.names import DeploymentName, ImageName, complete_folder
from gpuplatform_client.cli.sessions.run import fgpu_of, mount_of, variables_of
from gpuplatform_client.client import Client
from gpuplatform_client.errors import ClientError
from gpuplatform_client.models.deployments import (
    AnsweredInfo,
    DeploymentInfo,
    DeploymentSpec,
    DraftInfo,
    HealthSpec,
    PlacementInfo,
    RevisionSpec,
)
from gpuplatform_client.operations.lookups import choose_image, find_deployment

OUTAGE_SECONDS = 600.0  # of the connection, after which following is given up
POLL_SECONDS = 1.0

Strategy = Annotated[str | None, typer.Option(help="Of rollouts: rolling, canary or blue_green")]
CanarySteps = Annotated[str | None, typer.Option(help='Percent of the requests, rising, such as "5,50"')]
StepSeconds = Annotated[int | None, typer.Option(help="Of each step; those that old replicas stay after blue_green")]
ErrorPoints = Annotated[float | None, typer.Option(help="Percentage points more failed requests than before")]
P95Ratio = Annotated[float | None, typer.Option(help="The 95th percentile of durations, to that of before")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say whether its replicas could start now")]
Wait = Annotated[bool, typer.Option("--wait", help="Until its replicas serve; the exit code says whether they do")]


@reporting()
def deploy(
    name: Annotated[str, typer.Argument(help="Of the deployment: a part of its address")],
    command: Annotated[list[str] | None, typer.Argument(help="What a replica runs, after --")] = None,
    image: ImageName = None,
    line: Annotated[str | None, typer.Option("--command", help="What a replica runs, as one line of the shell")] = None,
    variant: Annotated[str | None, typer.Option(help="A runtime, such as vllm: its command, port and path")] = None,
    port: Annotated[int | None, typer.Option(help="At which a replica answers")] = None,
    cpu: Annotated[int | None, typer.Option(help="CPU cores of a replica")] = None,
    memory: Annotated[str | None, typer.Option(help='Of a replica, such as "4g"')] = None,
    shared_memory: Annotated[str | None, typer.Option(help='Of a replica, such as "1g"')] = None,
    fgpu: Annotated[str | None, typer.Option(help="Fractions of a GPU of a replica, in steps of 0.01")] = None,
    gpu_memory: Annotated[str | None, typer.Option(help="Of one GPU, such as 12G; --fgpu is the least then")] = None,
    folder: Annotated[
        str | None,
        typer.Option(help="FOLDER[:PATH] with the model; $MODEL_PATH is its path", autocompletion=complete_folder),
    ] = None,
    definition: Annotated[
        str | None,
        typer.Option(
            help="FOLDER[:PATH] whose model-definition.yaml or MLflow model fills the rest",
            autocompletion=complete_folder,
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Which model of --definition, where there are several")] = None,
    mount: Annotated[list[str] | None, typer.Option(help="FOLDER[:PATH[:ro]] besides, may be repeated")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE, may be repeated")] = None,
    replicas: Annotated[int | None, typer.Option(min=0, help="How many; 1 at first")] = None,
    health_path: Annotated[str | None, typer.Option(help="Such as /health; a replica that answers it serves")] = None,
    health_start: Annotated[int | None, typer.Option(help="Seconds that a replica has to answer at first")] = None,
    public: Annotated[bool | None, typer.Option("--public/--no-public", help="Without a token")] = None,
    group: Annotated[str | None, typer.Option(help="Resource group")] = None,
    project: Annotated[str | None, typer.Option(help="A project of yours to which it belongs")] = None,
    note: Annotated[str | None, typer.Option(help="About this revision")] = None,
    strategy: Strategy = None,
    canary_steps: CanarySteps = None,
    step_seconds: StepSeconds = None,
    max_error_points: ErrorPoints = None,
    max_p95_ratio: P95Ratio = None,
    wait: Wait = False,
    dry_run: DryRun = False,
) -> None:
    """Deploy a model; with the name of a deployment, replace its replicas by those of a new revision."""
    if command and line:
        raise typer.BadParameter("Write the command once.", param_hint="--command")
    health = HealthSpec(path=health_path, kind="http" if health_path else None, start_seconds=health_start)
    with connected(OUTAGE_SECONDS) as client:
        revision = {
            **{"image": _reference(client, image), "variant": variant, "port": port, "note": note},
            **{"cpu": cpu, "memory": memory, "shared_memory": shared_memory, "fgpu": fgpu_of(fgpu)},
            "gpu_memory": gpu_memory,
            "command": line or (shlex.join(command) if command else None),
            "env": variables_of(env) if env else None,
            "model_folder": mount_of(folder) if folder else None,
            "mounts": tuple(mount_of(text) for text in mount) if mount else None,
            "health": health if health != HealthSpec() else None,
        }
        if definition:
            revision = _filled(revision, _draft(client, definition, model))
        settings = {"replicas": replicas, "public": public, "resource_group": group, "project": project}
        settings |= rollout_settings(strategy, canary_steps, step_seconds, max_error_points, max_p95_ratio)
        if dry_run:
            print_placement(_placement(client, name, revision, settings))
            return
        deployment = _deployed(client, name, revision, settings)
        output.print(deployment.url or deployment.id, highlight=False, markup=False)
        if wait:
            raise typer.Exit(follow_rollout(client, deployment.id))


@reporting()
def rollout(
    name: DeploymentName,
    follow: Annotated[bool, typer.Option(help="Until it is done")] = True,
    promote: Annotated[bool, typer.Option("--promote", help="Pass the running step now")] = False,
    to_all: Annotated[bool, typer.Option("--to-all", help="Pass all steps that are left now")] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Return to the revision before")] = False,
) -> None:
    """Show how far the replicas of a deployment are, until those of the current revision serve alone."""
    if promote + to_all + abort > 1:
        raise typer.BadParameter("Choose one of them.", param_hint="--promote, --to-all, --abort")
    with connected(OUTAGE_SECONDS) as client:
        deployment = find_deployment(client, name)
        if promote or to_all:
            deployment = client.promote(deployment.id, to_all=to_all)
        elif abort:
            deployment = client.roll_back(deployment.id)
        elif follow:
            raise typer.Exit(follow_rollout(client, deployment.id))
        output.print(_status_text(deployment), highlight=False, markup=False)
        for line in _figures(deployment):
            output.print(line, highlight=False, markup=False)


def rollout_settings(
    strategy: str | None,
    canary_steps: str | None,
    step_seconds: int | None,
    max_error_points: float | None,
    max_p95_ratio: float | None,
) -> dict[str, Any]:
    """Return the settings of rollouts; None for those that are not named. Raises BadParameter for a wrong step."""
    return {
        "strategy": strategy.replace("-", "_") if strategy else None,
        "canary_steps": _steps(canary_steps) if canary_steps else None,
        **{"step_seconds": step_seconds, "max_error_points": max_error_points, "max_p95_ratio": max_p95_ratio},
    }


def _steps(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise typer.BadParameter("Write percentages, such as 5,50.", param_hint="--canary-steps") from None


def _draft(client: Client, place: str, model: str | None) -> DraftInfo:
    """Return what a folder proposes, and print what could not be taken over. Raises ClientError unless it is one."""
    folder, _, path = place.partition(":")
    proposed = client.deployment_drafts(folder, path)
    found = [each for each in proposed.drafts if model in (None, each.name, each.source)]
    if not found or (model is None and len(found) > 1):
        names = "".join(f"\n  {_draft_text(each)}" for each in proposed.drafts)
        text = "Choose one by --model:" if proposed.drafts else f"{place} has no model-definition.yaml and no models."
        raise ClientError(text + names)
    draft = found[0]
    if draft.problem:
        raise ClientError(f"{draft.source}: {draft.problem}")
    for note in draft.notes:
        messages.print(note, highlight=False, markup=False)
    return draft


def _draft_text(draft: DraftInfo) -> str:
    time = f"{draft.created_at:%Y-%m-%d %H:%M}" if draft.created_at else ""
    return "  ".join(filter(None, (draft.name, time, ", ".join(draft.flavors), draft.source, draft.problem)))


def _filled(revision: dict[str, Any], draft: DraftInfo) -> dict[str, Any]:
    """Return a revision in which a draft fills what is None; variables and health check are merged one by one."""
    proposed = draft.revision.model_dump(exclude_none=True) if draft.revision else {}
    given = {name: value for name, value in revision.items() if value is not None}
    if "env" in given:
        given["env"] = proposed.get("env", {}) | given["env"]
    if "health" in given:
        given["health"] = proposed.get("health", {}) | given["health"].model_dump(exclude_none=True)
    return revision | proposed | given


def _deployed(client: Client, name: str, revision: dict[str, Any], settings: dict[str, Any]) -> DeploymentInfo:
    """Make the deployment, or where there is one of this name a revision of it."""
    deployment = _mine(client, name)
    if deployment is None:
        return client.create_deployment(DeploymentSpec(name=name, **revision, **settings))
    given = {key: value for key, value in settings.items() if value is not None}
    if fixed := given.keys() & {"resource_group", "project"}:
        raise ClientError(f"{name} exists already, and keeps its {min(fixed).replace('_', ' ')}.")
    if given:
        deployment = client.change_deployment(deployment.id, **given)
    if any(value is not None for value in revision.values()):
        made = client.create_revision(deployment.id, RevisionSpec(**revision))
        messages.print(f"Revision {made.number} of {name}", highlight=False, markup=False)
    return client.deployment(deployment.id)


def _mine(client: Client, name: str) -> DeploymentInfo | None:
    mine = client.account().email
    return next((each for each in client.deployments(name=name) if (each.name, each.owner) == (name, mine)), None)


def _placement(client: Client, name: str, revision: dict[str, Any], settings: dict[str, Any]) -> PlacementInfo:
    """Return whether what `deploy` launches has room now."""
    deployment = _mine(client, name)
    if deployment is None:
        return client.deployment_placement(DeploymentSpec(name=name, **revision, **settings))
    if settings["replicas"] is not None and all(value is None for value in revision.values()):
        return client.change_placement(deployment.id, replicas=settings["replicas"])
    return client.revision_placement(deployment.id, RevisionSpec(**revision))


def print_placement(found: PlacementInfo) -> None:
    """Say whether replicas could start now, and when if not."""
    later = f" All could start at {clock_text(found.starts)}." if isinstance(found.starts, datetime) else ""
    output.print(found.words + later, highlight=False, markup=False)


def follow_rollout(client: Client, deployment_id: str) -> int:
    """Print how far the rollout is until it is done; return the exit code."""
    said, revision = "", None
    while True:
        deployment = client.deployment(deployment_id)
        number = deployment.revision.number if deployment.revision else 0
        revision = revision or number
        text = _status_text(deployment)
        if text != said:
            messages.print(text, highlight=False, markup=False)
        said = text
        if deployment.ended_at or number < revision:  # it returned to the revision before by itself
            return FAILED
        if deployment.is_settled:
            return 0
        time.sleep(POLL_SECONDS)


def _status_text(deployment: DeploymentInfo) -> str:
    if deployment.ended_at:
        return f"{deployment.name} has ended."
    number = deployment.revision.number if deployment.revision else 0
    ready = f"{deployment.ready} of {deployment.replicas} replicas ready"
    parts = [f"Revision {number}: {ready}, {deployment.updated} of this revision"]
    if others := deployment.total - deployment.updated:
        parts.append(f"{others} of other revisions")
    if deployment.rollout and deployment.rollout.words not in deployment.problem:
        parts.append(deployment.rollout.words)
    if deployment.problem:
        parts.append(deployment.problem)
    return ". ".join(parts)


def _figures(deployment: DeploymentInfo) -> list[str]:
    """Return what both revisions of a rollout by steps have answered since its step began, a line each."""
    rollout = deployment.rollout
    if rollout is None or rollout.old is None or rollout.new is None:
        return []
    pairs = ((rollout.old_revision, rollout.old), (rollout.new_revision, rollout.new))
    return [f"Revision {number}: {_answered_text(answered)}" for number, answered in pairs]


def _answered_text(answered: AnsweredInfo) -> str:
    text = f"{answered.requests} requests, {answered.error_percent:.1f} % failed"
    return text if answered.p95_seconds is None else f"{text}, 95 % within {answered.p95_seconds:.3g} s"


def _reference(client: Client, image: str | None) -> str | None:
    found = choose_image(client.images(), image) if image else None
    return found.reference if found else image
