"""Commands on how a deployment follows its load: its bounds, when it sleeps, and its rules."""

import re
from typing import Annotated, Any, Final

import typer

from gpuplatform_client.cli.amounts import SECONDS, clock_text, seconds_of
from gpuplatform_client.cli.connection import connected, reporting
from gpuplatform_client.cli.names import DeploymentName
from gpuplatform_client.cli.printing import ListFormat, ListOption, print_facts, print_list, print_object
from gpuplatform_client.models.deployments import ScalingInfo
from gpuplatform_client.operations.lookups import find_deployment

NEVER: Final = "never"
NO_NUMBER: Final = "none"


@reporting()
def scaling(
    name: DeploymentName,
    least: Annotated[int | None, typer.Option("--min", help="Replicas while it is awake")] = None,
    most: Annotated[str | None, typer.Option("--max", metavar="N|none", help="none: not scaled by its load")] = None,
    sleep_after: Annotated[
        str | None, typer.Option(metavar="TIME|never", help='Without a request, such as "30m"')
    ] = None,
    sleep: Annotated[str | None, typer.Option(metavar="park|end", help="What becomes of replicas as it sleeps")] = None,
    hold: Annotated[str | None, typer.Option(metavar="TIME", help='That a request waits as it wakes: "60s"')] = None,
    down_after: Annotated[str | None, typer.Option(metavar="TIME", help="Without need, before fewer run")] = None,
    cooldown: Annotated[str | None, typer.Option(metavar="TIME", help="Between two changes of the number")] = None,
    max_fgpu: Annotated[
        str | None, typer.Option(metavar="FGPU|none", help="To which a replica grows before another one comes")
    ] = None,
    preemptible: Annotated[
        bool | None, typer.Option("--preemptible/--no-preemptible", help="Beyond the least, replicas give way")
    ] = None,
    form: ListOption = ListFormat.TABLE,
) -> None:
    """Show how a deployment follows its load, or change what is named."""
    changes: dict[str, Any] = {}
    if least is not None:
        changes["min_replicas"] = least
    if most is not None:
        changes["max_replicas"] = _most(most)
    if sleep_after is not None:
        changes["idle_seconds"] = None if sleep_after == NEVER else seconds_of(sleep_after, "--sleep-after")
    if max_fgpu is not None:
        changes["max_fgpu"] = None if max_fgpu == NO_NUMBER else max_fgpu
    if preemptible is not None:
        changes["preemptible"] = preemptible
    if sleep is not None:
        changes["idle_action"] = sleep
    for column, text, option in (
        ("wake_seconds", hold, "--hold"),
        ("down_after_seconds", down_after, "--down-after"),
        ("cooldown_seconds", cooldown, "--cooldown"),
    ):
        if text is not None:
            changes[column] = seconds_of(text, option)
    with connected() as client:
        found = find_deployment(client, name)
        shown = client.change_scaling(found.id, **changes) if changes else client.scaling(found.id)
        print_object(shown, form, found.id, _facts(shown))


@reporting()
def sleep(name: DeploymentName) -> None:
    """Have a deployment sleep now: no replicas run until a request comes."""
    with connected() as client:
        print_facts(_facts(client.sleep_deployment(find_deployment(client, name).id)))


@reporting()
def wake(name: DeploymentName) -> None:
    """Have a deployment that sleeps run again before a request comes."""
    with connected() as client:
        print_facts(_facts(client.wake_deployment(find_deployment(client, name).id)))


@reporting()
def scaling_rules(
    name: DeploymentName,
    add: Annotated[
        str | None, typer.Option(metavar="METRIC=TARGET", help="outstanding, requests, gpu or query: for one replica")
    ] = None,
    query: Annotated[str | None, typer.Option(help="Name of one that the administrator offers")] = None,
    remove: Annotated[int | None, typer.Option(metavar="ID", help="Of a rule that is to go")] = None,
    pause: Annotated[int | None, typer.Option(metavar="ID", help="Of a rule that is not to count")] = None,
    resume: Annotated[int | None, typer.Option(metavar="ID", help="Of a rule that is to count again")] = None,
    form: ListOption = ListFormat.TABLE,
) -> None:
    """List the rules by which a deployment is scaled, after a change if one is named."""
    if sum(each is not None for each in (add, remove, pause, resume)) > 1:
        raise typer.BadParameter("Name one change at once.", param_hint="--add, --remove, --pause, --resume")
    if query is not None and add is None:
        raise typer.BadParameter("Only a rule to add has a query: write --add query=TARGET, too.", param_hint="--query")
    rule = _rule(add) if add is not None else None
    with connected() as client:
        deployment_id = find_deployment(client, name).id
        if rule is not None:
            metric, target = rule
            client.add_scaling_rule(deployment_id, metric, target, query=query or "")
        if remove is not None:
            client.remove_scaling_rule(deployment_id, remove)
        if pause is not None:
            client.change_scaling_rule(deployment_id, pause, paused=True)
        if resume is not None:
            client.change_scaling_rule(deployment_id, resume, paused=False)
        print_list(
            client.scaling(deployment_id).rules,
            form,
            (
                ("ID", lambda each: str(each.id)),
                ("METRIC", lambda each: each.metric),
                ("TARGET", lambda each: f"{each.target:.10g}"),
                ("COUNTS", lambda each: "no, paused" if each.paused else "yes"),
                ("DETAIL", lambda each: each.query),
            ),
            name_of=lambda each: str(each.id),
        )


def _most(text: str) -> int | None:
    """Return a number of replicas, or None for "none". Raises BadParameter."""
    if text == NO_NUMBER:
        return None
    if not re.fullmatch("[0-9]{1,9}", text):
        raise typer.BadParameter("Write a number, or none.", param_hint="--max")
    return int(text)


def _rule(text: str) -> tuple[str, float]:
    """Return metric and target of a text such as "outstanding=16". Raises BadParameter."""
    metric, _, target = text.partition("=")
    if not metric or not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", target):
        raise typer.BadParameter("Write METRIC=TARGET, such as outstanding=16.", param_hint="--add")
    return metric, float(target)


def _facts(shown: ScalingInfo) -> list[tuple[str, str]]:
    number = f"{shown.replicas} wanted now"
    if shown.max_replicas is None:
        facts = [("Replicas", f"{number}; not scaled by its load")]
    else:
        facts = [("Replicas", f"{shown.min_replicas} to {shown.max_replicas}, {number}")]
    if shown.idle_seconds is None:
        facts.append(("Sleeps", "never"))
    else:
        parked = "parks one replica" if shown.idle_action == "park" else "ends all replicas"
        facts.append(("Sleeps", f"after {_span_text(shown.idle_seconds)} without requests, and {parked}"))
    facts += [
        ("Holds", f"requests {_span_text(shown.wake_seconds)} at most while it wakes"),
        ("Fewer", f"after {_span_text(shown.down_after_seconds)} without need"),
        ("Changes", f"at least {_span_text(shown.cooldown_seconds)} apart"),
    ]
    if shown.max_fgpu is not None:
        facts.append(("Grows", f"to {shown.max_fgpu} fGPU a replica, before another one comes"))
    if shown.preemptible:
        facts.append(("Gives way", f"beyond {shown.min_replicas}, to sessions that wait"))
    if shown.queries:
        facts.append(("Queries", ", ".join(each.name for each in shown.queries)))
    if shown.asleep_since:
        facts.append(("Asleep", f"since {clock_text(shown.asleep_since)}"))
    if shown.waking_since:
        facts.append(("Wakes", f"since {clock_text(shown.waking_since)}"))
    return [*facts, ("Why", shown.decision)] if shown.decision else facts


def _span_text(seconds: int) -> str:
    """Return a time as `--hold` takes it."""
    unit = next((unit for unit in "dhm" if seconds and seconds % SECONDS[unit] == 0), "s")
    return f"{seconds // SECONDS[unit]}{unit}"
