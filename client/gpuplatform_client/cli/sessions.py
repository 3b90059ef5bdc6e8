"""Commands about sessions: list, log, end, use."""

import time
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.live import Live
from rich.table import Table

from gpuplatform_client.cli.amounts import age_text, resources_text, size_text
from gpuplatform_client.cli.connection import connected, output, reporting, table_of
from gpuplatform_client.client import Client
from gpuplatform_client.lookups import find_session
from gpuplatform_client.models import ComputeSession, UsagePoint


@reporting()
def list_sessions(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Those that have ended too")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: one object a line")] = False,
) -> None:
    """List sessions, newest first."""
    with connected() as client:
        found = list(client.sessions() if everything else client.sessions(tab="running"))
    if as_json:
        for session in found:
            output.out(session.model_dump_json(), highlight=False)
        return
    table = table_of("NAME", "ID", "STATUS", "IMAGE", "RESOURCES", "GROUP", "AGE", "DETAIL")
    for session in found:
        table.add_row(
            session.name,
            session.id,
            session.status,
            session.image,
            resources_text(session),
            session.resource_group,
            age_text(session.created_at),
            session.detail if session.is_waiting or session.status == "ERROR" else "",
        )
    output.print(table, markup=False)


@reporting()
def logs(
    name: Annotated[str, typer.Argument(help="Name or id of a session")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the session ends")] = False,
    tail: Annotated[int, typer.Option(min=1, help="Lines from the end, without --follow")] = 500,
) -> None:
    """Print the output of a session."""
    with connected() as client:
        session = find_session(client, name)
        if not follow:
            output.out(client.logs(session.id, tail), highlight=False)
            return
        for piece in client.follow_logs(session.id):
            output.out(piece, end="", highlight=False)


@reporting()
def stop(names: Annotated[list[str], typer.Argument(help="Names or ids of sessions")]) -> None:
    """End sessions."""
    with connected() as client:
        for session in [find_session(client, name) for name in names]:
            ended = client.terminate(session.id)
            output.print(f"{ended.name} ({ended.id}): {ended.status}", highlight=False, markup=False)


@reporting()
def top(
    once: Annotated[bool, typer.Option(help="Print once, and do not refresh")] = False,
    interval: Annotated[float, typer.Option(min=1.0, help="Seconds between readings")] = 5.0,
) -> None:
    """Show what running sessions use."""
    with connected() as client:
        if once:
            output.print(_usage_table(client))
            return
        with Live(_usage_table(client), console=output, auto_refresh=False) as live:
            while True:
                time.sleep(interval)
                live.update(_usage_table(client), refresh=True)


def _usage_table(client: Client) -> Table:
    table = table_of("NAME", "CPU", "MEMORY", "GPU MEMORY", "GPU", "HOST")
    for session in client.sessions(status="RUNNING"):
        table.add_row(session.name, *_usage_cells(session, client.usage(session.id).points), session.host or "")
    return table


def _usage_cells(session: ComputeSession, points: Iterable[UsagePoint]) -> list[str]:
    point = max(points, key=lambda each: each.at, default=None)
    if point is None:
        return ["-", "-", "-", "-"]
    cpu = "-" if point.cpu_milli is None else f"{point.cpu_milli / 1000:.2f}/{session.cpu}"
    gpu = "-" if point.gpu_share_utilisation is None else f"{point.gpu_share_utilisation:.0f}%"
    memory = f"{size_text(point.memory)}/{size_text(session.memory)}"
    return [cpu, memory, size_text(point.gpu_memory), gpu]
