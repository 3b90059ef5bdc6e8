"""Commands about deployments: list, show, scale, roll back, restart, end, and their tokens."""

from typing import Annotated

import typer

from gpuplatform_client.cli.amounts import age_text, fgpu_text, size_text
from gpuplatform_client.cli.connection import connected, output, reporting
from gpuplatform_client.cli.deployments.deploy import (
    CanarySteps,
    DryRun,
    ErrorPoints,
    P95Ratio,
    StepSeconds,
    Strategy,
    Wait,
    follow_rollout,
    print_placement,
    rollout_settings,
)
from gpuplatform_client.cli.deployments.scaling import scaling, scaling_rules, sleep, wake
from gpuplatform_client.cli.deployments.tokens import tokens, usage
from gpuplatform_client.cli.groups import lists_by_default
from gpuplatform_client.cli.names import DeploymentName
from gpuplatform_client.cli.printing import (
    ListFormat,
    ListOption,
    fields_of,
    print_facts,
    print_for_programs,
    print_list,
)
from gpuplatform_client.client import Client
from gpuplatform_client.models.deployments import DeploymentInfo, RevisionInfo
from gpuplatform_client.operations.lookups import LookupFailedError, find_deployment

app = typer.Typer(help="Deployments: list them, change them, and make tokens.")
app.add_typer(tokens, name="token")
app.command("usage")(usage)
app.command("scaling")(scaling)
app.command("scaling-rules")(scaling_rules)
app.command("sleep")(sleep)
app.command("wake")(wake)


@reporting()
def list_deployments(form: ListOption = ListFormat.TABLE) -> None:
    """List deployments, newest first."""
    with connected() as client:
        print_list(
            client.deployments(),
            form,
            (
                ("NAME", lambda each: each.name),
                ("STATE", lambda each: each.state),
                ("READY", lambda each: f"{each.ready}/{each.replicas}"),
                ("REVISION", lambda each: str(each.revision.number) if each.revision else "-"),
                ("ADDRESS", lambda each: each.url),
                ("AGE", lambda each: age_text(each.created_at)),
                ("DETAIL", lambda each: each.problem),
            ),
            wide=(
                *fields_of("id owner project resource_group"),
                ("IMAGE", lambda each: each.revision.image if each.revision else ""),
                ("PUBLIC", lambda each: "yes" if each.public else "no"),
            ),
            name_of=lambda each: each.id,
        )


lists_by_default(app, list_deployments)


@app.command()
@reporting()
def show(name: DeploymentName, form: ListOption = ListFormat.TABLE) -> None:
    """Show a deployment, its replicas and its revisions."""
    with connected() as client:
        deployment = find_deployment(client, name)
        if print_for_programs(deployment, form, deployment.id):
            return
        print_facts(_facts(deployment))
        output.print()
        print_list(
            client.replicas(deployment.id),
            ListFormat.TABLE,
            (
                *fields_of("session revision process health traffic host"),
                ("DETAIL", lambda each: each.health_detail or each.detail),
            ),
            name_of=lambda each: each.session,
        )
        output.print()
        _print_revisions(client, deployment, form)


@app.command()
@reporting()
def revisions(name: DeploymentName, form: ListOption = ListFormat.TABLE) -> None:
    """List the revisions of a deployment, newest first."""
    with connected() as client:
        _print_revisions(client, find_deployment(client, name), form)


@app.command()
@reporting()
def scale(
    name: DeploymentName,
    replicas: Annotated[int, typer.Argument(min=0)],
    wait: Wait = False,
    dry_run: DryRun = False,
) -> None:
    """Have so many replicas serve."""
    with connected() as client:
        if dry_run:
            print_placement(client.change_placement(find_deployment(client, name).id, replicas=replicas))
            return
        _changed(client, client.scale_deployment(find_deployment(client, name).id, replicas), wait)


@app.command("set")
@reporting()
def change_settings(
    name: DeploymentName,
    strategy: Strategy = None,
    canary_steps: CanarySteps = None,
    step_seconds: StepSeconds = None,
    max_error_points: ErrorPoints = None,
    max_p95_ratio: P95Ratio = None,
) -> None:
    """Change how revisions are rolled out."""
    asked = rollout_settings(strategy, canary_steps, step_seconds, max_error_points, max_p95_ratio)
    with connected() as client:
        given = {key: value for key, value in asked.items() if value is not None}
        changed = client.change_deployment(find_deployment(client, name).id, **given)
        output.print(_rollouts_text(changed), highlight=False, markup=False)


@app.command()
@reporting()
def hosts(name: DeploymentName, names: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Have these host names lead to a deployment, and no others; none: remove all. Superadmins alone."""
    with connected() as client:
        changed = client.set_deployment_hosts(find_deployment(client, name).id, names or [])
        output.print(f"{changed.name} is at {changed.url}", highlight=False, markup=False)


@app.command()
@reporting()
def rollback(
    name: DeploymentName,
    to: Annotated[int | None, typer.Option(help="Number of a revision; by default that before the current one")] = None,
    wait: Wait = False,
    dry_run: DryRun = False,
) -> None:
    """Return to an earlier revision."""
    with connected() as client:
        found = find_deployment(client, name)
        if dry_run:
            number = to or found.previous_revision
            if number is None:
                raise LookupFailedError(f"{found.name} has no revision before its current one.")
            print_placement(client.change_placement(found.id, revision=number))
            return
        changed = client.roll_back(found.id) if to is None else client.activate_revision(found.id, to)
        _changed(client, changed, wait)


@app.command()
@reporting()
def restart(name: DeploymentName, wait: Wait = False) -> None:
    """Replace all replicas, one after the other, by others of the same revision."""
    with connected() as client:
        _changed(client, client.restart_deployment(find_deployment(client, name).id), wait)


@app.command()
@reporting()
def end(name: DeploymentName) -> None:
    """End a deployment with its replicas and its address."""
    with connected() as client:
        ended = client.end_deployment(find_deployment(client, name).id)
        output.print(f"{ended.name} ({ended.id}) has ended.", highlight=False, markup=False)


@app.command()
@reporting()
def logs(
    name: DeploymentName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the deployment ends")] = False,
    tail: Annotated[int, typer.Option(min=1, help="Lines from the end, without --follow")] = 500,
    replica: Annotated[str, typer.Option(help="Name or id of one; by default all")] = "",
) -> None:
    """Print the output of all replicas, each line with its replica, also that of replicas that come or have ended."""
    with connected() as client:
        found = find_deployment(client, name)
        if not follow:
            output.out(client.deployment_logs(found.id, tail, replica=replica), highlight=False, end="")
            return
        for piece in client.follow_deployment_logs(found.id, replica=replica):
            output.out(piece, end="", highlight=False)


@app.command()
@reporting()
def events(name: DeploymentName, form: ListOption = ListFormat.TABLE) -> None:
    """List what became of a deployment, newest first."""
    with connected() as client:
        print_list(
            client.deployment_events(find_deployment(client, name).id),
            form,
            fields_of("at actor what"),
            name_of=lambda event: event.what,
        )


def _changed(client: Client, deployment: DeploymentInfo, is_awaited: bool) -> None:
    number = deployment.revision.number if deployment.revision else 0
    text = f"{deployment.name} ({deployment.id}): revision {number}, {deployment.ready} of {deployment.replicas} ready"
    output.print(text, highlight=False, markup=False)
    if is_awaited:
        raise typer.Exit(follow_rollout(client, deployment.id))


def _facts(deployment: DeploymentInfo) -> list[tuple[str, str]]:
    revision = deployment.revision
    facts = [
        ("Name", f"{deployment.name} ({deployment.id})"),
        ("Address", deployment.url),
        ("Host names", ", ".join(deployment.hosts) or "none"),
        ("State", f"{deployment.state}. {deployment.problem}" if deployment.problem else deployment.state),
        ("Replicas", f"{deployment.ready} of {deployment.replicas} ready"),
        ("Owner", deployment.owner + (f", project {deployment.project}" if deployment.project else "")),
        ("Group", deployment.resource_group),
        ("Access", "public" if deployment.public else "with a token"),
        ("Rollouts", _rollouts_text(deployment)),
    ]
    return [*facts, ("Revision", f"{revision.number}: {_shape(revision)}")] if revision else facts


def _rollouts_text(deployment: DeploymentInfo) -> str:
    """Return how revisions are rolled out, in words."""
    limits = f"up to {deployment.max_error_points:g} points more errors, {deployment.max_p95_ratio:g} times the time"
    match deployment.strategy:
        case "canary":
            steps = ", ".join(map(str, deployment.canary_steps))
            return f"canary: {steps} % of the requests, {deployment.step_seconds} s each, {limits}"
        case "blue_green":
            return f"blue_green: old replicas stay for {deployment.step_seconds} s"
        case other:
            return other


def _shape(revision: RevisionInfo) -> str:
    parts = [revision.image, f"{revision.cpu} CPU", size_text(revision.memory)]
    if revision.gpu_memory:
        least = [f"{fgpu_text(revision.min_fgpu)} fGPU at least"] if revision.min_fgpu else []
        return ", ".join([*parts, f"{size_text(revision.gpu_memory)} of GPU memory", *least])
    return ", ".join([*parts, *([f"{fgpu_text(revision.fgpu)} fGPU"] if revision.fgpu else [])])


def _print_revisions(client: Client, deployment: DeploymentInfo, form: ListFormat) -> None:
    print_list(
        client.revisions(deployment.id),
        form,
        (
            ("REVISION", lambda each: f"{each.number} (current)" if each.is_current else str(each.number)),
            ("RUNS", _shape),
            ("PORT", lambda each: str(each.port)),
            ("BY", lambda each: each.created_by or ""),
            ("AGE", lambda each: age_text(each.created_at)),
            ("DETAIL", lambda each: each.note or each.command or ""),
        ),
        name_of=lambda each: str(each.number),
    )
