"""`gpuplatform resize`: give a running session other amounts, and wait until it has them."""

from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

from gpuplatform_client.cli.amounts import resources_text
from gpuplatform_client.cli.connection import connected, messages, output, reporting
from gpuplatform_client.client import Client
from gpuplatform_client.lookups import find_session
from gpuplatform_client.models import ComputeSession, ResizeSpec


@reporting()
def resize(
    name: Annotated[str, typer.Argument(help="Name or id of a session")],
    cpu: Annotated[int | None, typer.Option(help="CPU cores")] = None,
    memory: Annotated[str | None, typer.Option(help='Such as "4g"')] = None,
    fgpu: Annotated[str | None, typer.Option(help="Of its GPU, in steps of 0.01")] = None,
) -> None:
    """Change what a running session has; what runs in it goes on."""
    try:
        amount = None if fgpu is None else Decimal(fgpu)
    except InvalidOperation:
        raise typer.BadParameter(f"{fgpu!r} is not a number", param_hint="--fgpu") from None
    if cpu is None and memory is None and amount is None:
        raise typer.BadParameter("name at least one of --cpu, --memory and --fgpu")
    with connected() as client:
        session = find_session(client, name)
        asked = client.resize(session.id, ResizeSpec(cpu=cpu, memory=memory, fgpu=amount))
        done = _settled(client, asked)
        output.print(f"{done.name} ({done.id}): {resources_text(done)}", highlight=False, markup=False)
        target = asked.resizing
        if target and (done.cpu, done.memory, done.fgpu) != (target.cpu, target.memory, target.fgpu):
            messages.print(_cause(client, done), highlight=False, markup=False)
            raise typer.Exit(1)


def _settled(client: Client, session: ComputeSession) -> ComputeSession:
    """Return the session once its host has resized it or refused to, or it has ended."""
    if session.resizing is None:
        return session
    for current in client.watch(session.id):
        if current.resizing is None:
            return current
    return client.session(session.id)


def _cause(client: Client, session: ComputeSession) -> str:
    refused = [event.detail for event in client.session_events(session.id) if event.reason == "RESIZE_REFUSED"]
    return refused[-1] if refused else f"It was not resized: {session.status}."
