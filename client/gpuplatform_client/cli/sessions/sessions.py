"""Commands that show sessions: list, output, events, use; and wait for them."""

import time
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Final

import typer
from rich.live import Live
from rich.table import Table

from gpuplatform_client.cli.amounts import age_text, clock_text, resources_text, size_text
from gpuplatform_client.cli.connection import connected, output, reporting, table_of
from gpuplatform_client.cli.names import SessionName, SessionNames
from gpuplatform_client.cli.printing import ListFormat, ListOption, print_list
from gpuplatform_client.client import Client
from gpuplatform_client.models.platform import ComputeSession, UsagePoint
from gpuplatform_client.operations.lookups import find_session

OUTAGE_SECONDS: Final = 600.0  # of the connection, after which waiting is given up


class WaitFor(StrEnum):
    """What of a session is waited for."""

    END = "end"
    RUNNING = "running"


@reporting()
def list_sessions(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Those that have ended too")] = False,
    members: Annotated[bool, typer.Option("--members", "-m", help="Those of clusters too")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As --output json")] = False,
    form: ListOption = ListFormat.TABLE,
) -> None:
    """List sessions, newest first."""
    with connected() as client:
        print_list(
            client.sessions() if everything else client.sessions(tab="running"),
            ListFormat.JSON if as_json else form,
            (
                ("NAME", lambda session: session.name),
                ("ID", lambda session: session.id),
                ("STATUS", lambda session: session.status),
                ("IMAGE", lambda session: session.image),
                ("RESOURCES", resources_text),
                ("GROUP", lambda session: session.resource_group),
                ("AGE", lambda session: age_text(session.created_at)),
                ("DETAIL", _detail),
            ),
            wide=(
                ("OWNER", lambda session: session.owner),
                ("HOST", lambda session: session.host or ""),
                ("ENDS", lambda session: clock_text(session.ends_at) if session.ends_at else ""),
            ),
            name_of=lambda session: session.id,
            below=_member_rows if members else lambda session: (),
        )


def _detail(session: ComputeSession) -> str:
    if session.is_waiting or session.status == "ERROR":
        return session.detail
    return "replica of a deployment, which replaces it" if session.kind == "replica" else ""


def _member_rows(session: ComputeSession) -> list[tuple[str, ...]]:
    members = session.cluster.members if session.cluster else ()
    return [(f"{session.name}.{each.name}", each.id, each.status, "", "", each.host or "") for each in members]


@reporting()
def logs(
    name: SessionName,
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
def events(name: SessionName, form: ListOption = ListFormat.TABLE) -> None:
    """List what became of a session, oldest first."""
    with connected() as client:
        print_list(
            client.session_events(find_session(client, name).id),
            form,
            (
                ("TIME", lambda event: clock_text(event.at)),
                ("STATUS", lambda event: event.new_status),
                ("REASON", lambda event: event.reason),
                ("BY", lambda event: event.actor or ""),
                ("DETAIL", lambda event: event.detail),
            ),
            name_of=lambda event: event.reason,
        )


@reporting()
def wait(
    names: SessionNames,
    until: Annotated[WaitFor, typer.Option("--for", help="What is waited for")] = WaitFor.END,
) -> None:
    """Wait until sessions have ended, or run; the exit code says whether all have succeeded, or all run."""
    with connected(OUTAGE_SECONDS) as client:
        found = [find_session(client, name) for name in names]
        reached = [_reached(client, session, until) for session in found]
    raise typer.Exit(0 if all(reached) else 1)


def _reached(client: Client, session: ComputeSession, until: WaitFor) -> bool:
    """Print the status that a session came to, and return whether it is what was waited for."""
    last = session
    for last in client.watch(session.id):
        if until == WaitFor.RUNNING and not last.is_waiting:
            break
    output.print(f"{last.name} ({last.id}): {last.status}", highlight=False, markup=False)
    return last.status == "RUNNING" if until == WaitFor.RUNNING else last.result == "SUCCESS"


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
        members = session.cluster.members if session.cluster else ()
        for name, session_id, host in [(f"{session.name}.{each.name}", each.id, each.host) for each in members] or [
            (session.name, session.id, session.host)
        ]:
            table.add_row(name, *_usage_cells(session, client.usage(session_id).points), host or "")
    return table


def _usage_cells(session: ComputeSession, points: Iterable[UsagePoint]) -> list[str]:
    point = max(points, key=lambda each: each.at, default=None)
    if point is None:
        return ["-", "-", "-", "-"]
    cpu = "-" if point.cpu_milli is None else f"{point.cpu_milli / 1000:.2f}/{session.cpu}"
    gpu = "-" if point.gpu_share_utilisation is None else f"{point.gpu_share_utilisation:.0f}%"
    memory = f"{size_text(point.memory)}/{size_text(session.memory)}"
    return [cpu, memory, size_text(point.gpu_memory), gpu]
