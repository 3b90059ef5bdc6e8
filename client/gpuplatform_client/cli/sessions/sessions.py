"""Commands that show sessions: list, output, events, use; and wait for them."""

import asyncio
import time
from collections.abc import Iterable
from contextlib import aclosing
from enum import StrEnum
from typing import Annotated, Final

import typer
from rich.live import Live
from rich.table import Table

from gpuplatform_client import stored_login
from gpuplatform_client.async_client import AsyncClient
from gpuplatform_client.cli.amounts import age_text, clock_text, resources_text, seconds_of, size_text
from gpuplatform_client.cli.connection import connected, messages, output, reporting, table_of
from gpuplatform_client.cli.exit_codes import FAILED, TIMED_OUT
from gpuplatform_client.cli.names import SessionName, complete_session
from gpuplatform_client.cli.printing import ListFormat, ListOption, ListPrinter
from gpuplatform_client.client import Client
from gpuplatform_client.http.retries import RETRY_SECONDS
from gpuplatform_client.models.platform import ComputeSession, TimelineEvent, UsagePoint
from gpuplatform_client.operations.lookups import find_deployment, find_session

OUTAGE_SECONDS: Final = 600.0  # of the connection, after which waiting is given up
POLL_SECONDS: Final = 1.0


class WaitFor(StrEnum):
    """What is waited for."""

    END = "end"
    ENDED = "ended"  # as END
    RUNNING = "running"
    HEALTHY = "healthy"  # of a deployment: all replicas of its current revision serve, and no others are left


@reporting()
def list_sessions(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Those that have ended too")] = False,
    members: Annotated[bool, typer.Option("--members", "-m", help="Those of clusters too")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="And each of yours again as it changes")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As --output json")] = False,
    form: ListOption = ListFormat.TABLE,
) -> None:
    """List sessions, newest first."""
    with connected(OUTAGE_SECONDS if watch else RETRY_SECONDS) as client:
        printer = ListPrinter(
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
        listed = client.sessions() if everything else client.sessions(tab="running")
        for changed in client.follow_sessions() if watch else (None,):
            printer.print([changed] if changed else listed)  # which is read once, after the first stream is open


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
    member: Annotated[str, typer.Option(help="Of a cluster: main1, sub1, ... or all")] = "",
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Of the attempt before it was started again")
    ] = False,
) -> None:
    """Print the output of a session."""
    if follow and previous:
        raise typer.BadParameter("The attempt before has ended: leave --follow out.", param_hint="--previous")
    with connected() as client:
        session = find_session(client, name)
        if not follow:
            output.out(client.logs(session.id, tail, member, previous=previous), highlight=False)
            return
        for piece in client.follow_logs(session.id, member):
            output.out(piece, end="", highlight=False)


@reporting()
def events(
    name: SessionName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the session ends")] = False,
    form: ListOption = ListFormat.TABLE,
) -> None:
    """List what became of a session, oldest first."""
    with connected() as client:
        session = find_session(client, name)
        printer = ListPrinter[TimelineEvent](
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
        if not follow:
            printer.print(client.session_events(session.id))
            return
        for event in client.follow_events(session.id):
            printer.print([event])


@reporting()
def wait(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help="Of sessions, or deployments for healthy", autocompletion=complete_session
        ),
    ],
    until: Annotated[WaitFor, typer.Option("--for", help="What is waited for")] = WaitFor.END,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help='After which it exits with 124, such as "10m"')
    ] = None,
) -> None:
    """Wait until sessions have ended, or run; the exit code says whether all have succeeded, or all run."""
    seconds = None if timeout is None else seconds_of(timeout, "--timeout")
    find = find_deployment if until == WaitFor.HEALTHY else find_session
    with connected(OUTAGE_SECONDS) as client:
        ids = [find(client, name).id for name in names]
    try:
        reached = asyncio.run(_all_reached(ids, until, seconds))
    except TimeoutError:
        messages.print(f"That did not come within {timeout}.", highlight=False, markup=False)
        raise typer.Exit(TIMED_OUT) from None
    raise typer.Exit(0 if reached else FAILED)


async def _all_reached(ids: list[str], until: WaitFor, seconds: int | None) -> bool:
    """Print what each came to, and return whether it is what was waited for. Raises TimeoutError."""
    login = stored_login.load()
    reached = _healthy if until == WaitFor.HEALTHY else _reached
    async with AsyncClient(login.url, login.token, retry_seconds=OUTAGE_SECONDS) as client, asyncio.timeout(seconds):
        return all([await reached(client, each, until) for each in ids])


async def _reached(client: AsyncClient, session_id: str, until: WaitFor) -> bool:
    last = None
    async with aclosing(client.watch(session_id)) as changes:
        async for last in changes:
            if until == WaitFor.RUNNING and not last.is_waiting:
                break
    last = last or await client.session(session_id)
    output.print(f"{last.name} ({last.id}): {last.status}", highlight=False, markup=False)
    return last.status == "RUNNING" if until == WaitFor.RUNNING else last.result == "SUCCESS"


async def _healthy(client: AsyncClient, deployment_id: str, until: WaitFor) -> bool:
    deployment = await client.deployment(deployment_id)
    while not (deployment.is_settled or deployment.ended_at):
        await asyncio.sleep(POLL_SECONDS)
        deployment = await client.deployment(deployment_id)
    ready = f"{deployment.ready} of {deployment.replicas} replicas ready"
    output.print(f"{deployment.name} ({deployment.id}): {ready}", highlight=False, markup=False)
    return not deployment.ended_at


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
