"""Commands that change sessions: park, resume, requeue, extend, rename, save as an image."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Final

import typer

from gpuplatform_client.cli.amounts import clock_text
from gpuplatform_client.cli.connection import connected, messages, output, reporting
from gpuplatform_client.cli.exit_codes import FAILED
from gpuplatform_client.cli.names import SessionName, SessionNames
from gpuplatform_client.client import Client
from gpuplatform_client.models.platform import ComputeSession, ConversionInfo
from gpuplatform_client.operations.lookups import find_session

POLL_SECONDS: Final = 2.0


@reporting()
def stop(names: SessionNames) -> None:
    """End sessions."""
    with connected() as client:
        for ended in client.terminate_many([find_session(client, name).id for name in names]):
            _say_status(ended)


@reporting()
def park(names: SessionNames) -> None:
    """Put running sessions aside: their files stay, and what they hold is free for others."""
    _change(names, lambda client, session: client.park(session.id))


@reporting()
def resume(names: SessionNames) -> None:
    """Have parked sessions go on, once their hosts have room."""
    _change(names, lambda client, session: client.resume(session.id))


@reporting()
def requeue(names: SessionNames) -> None:
    """Have batch sessions wait again, and run from the beginning, as by scontrol requeue."""
    _change(names, lambda client, session: client.requeue(session.id))


@reporting()
def extend(name: SessionName, by: Annotated[str, typer.Argument(help='Such as "2h"')]) -> None:
    """Put off the end of a running session, as far as your policy allows."""
    with connected() as client:
        extended = client.extend(find_session(client, name).id, by)
        _say_end(extended, extended.ends_at)


@reporting()
def snooze(name: SessionName, by: Annotated[str, typer.Argument(help='Such as "30m"')]) -> None:
    """Put off the end of a session that is idle, as far as the rule allows."""
    with connected() as client:
        snoozed = client.snooze(find_session(client, name).id, by)
        _say_end(snoozed, snoozed.idle_ends_at)


@reporting()
def rename(name: SessionName, new_name: Annotated[str, typer.Argument(help="Its name from now on")]) -> None:
    """Give a session another name."""
    with connected() as client:
        renamed = client.rename(find_session(client, name).id, new_name)
        output.print(f"{renamed.name} ({renamed.id})", highlight=False, markup=False)


@reporting()
def convert(
    name: SessionName,
    image: Annotated[str, typer.Argument(metavar="IMAGE[:TAG]", help="What the image is to be called")],
    description: Annotated[str, typer.Option(help="What is in it")] = "",
) -> None:
    """Save a running session as an image of your own, and wait until it is there."""
    environment, _, tag = image.partition(":")
    with connected() as client:
        session = find_session(client, name)
        begun = client.convert(session.id, environment, tag or "1", description)
        done = _converted(client, session.id, begun)
        if done.state == "FAILED":
            messages.print(done.problem, highlight=False, markup=False)
            raise typer.Exit(FAILED)
        output.print(done.reference, highlight=False, markup=False)


def _converted(client: Client, session_id: str, current: ConversionInfo) -> ConversionInfo:
    """Return the conversion once it has ended; print how far it is meanwhile."""
    said = ""
    while current.state not in ("DONE", "FAILED"):
        if current.progress != said:
            messages.print(current.progress, highlight=False, markup=False)
        said = current.progress
        time.sleep(POLL_SECONDS)
        current = next(each for each in client.conversions(session_id) if each.id == current.id)
    return current


def _change(names: list[str], change: Callable[[Client, ComputeSession], ComputeSession]) -> None:
    """Change sessions, none where there is one that does not exist, and print what became of each."""
    with connected() as client:
        for session in [find_session(client, name) for name in names]:
            _say_status(change(client, session))


def _say_status(session: ComputeSession) -> None:
    output.print(f"{session.name} ({session.id}): {session.status}", highlight=False, markup=False)


def _say_end(session: ComputeSession, at: datetime | None) -> None:
    ends = f"ends at {clock_text(at)}" if at else session.status
    output.print(f"{session.name} ({session.id}): {ends}", highlight=False, markup=False)
