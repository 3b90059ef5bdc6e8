"""`gpuplatform resize`: give a running session other amounts, and wait until it has them."""

from collections.abc import Collection, Sequence
from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

from gpuplatform_client.cli.amounts import resources_text
from gpuplatform_client.cli.connection import connected, messages, output, reporting
from gpuplatform_client.cli.names import SessionName
from gpuplatform_client.client import Client
from gpuplatform_client.models.platform import ClusterMember, ComputeSession, ResizeSpec, SessionAmounts
from gpuplatform_client.operations.lookups import find_session


@reporting()
def resize(
    name: SessionName,
    cpu: Annotated[int | None, typer.Option(help="CPU cores")] = None,
    memory: Annotated[str | None, typer.Option(help='Such as "4g"')] = None,
    fgpu: Annotated[str | None, typer.Option(help="Of its GPU, in steps of 0.01")] = None,
    gpu_memory: Annotated[str | None, typer.Option(help="Of its GPU, such as 12G")] = None,
) -> None:
    """Change what a running session has, or each member of a cluster of equal ones; what runs in it goes on."""
    try:
        amount = None if fgpu is None else Decimal(fgpu)
    except InvalidOperation:
        raise typer.BadParameter(f"{fgpu!r} is not a number", param_hint="--fgpu") from None
    if cpu is None and memory is None and amount is None and gpu_memory is None:
        raise typer.BadParameter("name at least one of --cpu, --memory, --fgpu and --gpu-memory")
    with connected() as client:
        session = find_session(client, name)
        concerned = _resized_together(session)
        if concerned:  # the first of them stands for all
            session = client.session(concerned[0].id)
        asked = client.resize(session.id, ResizeSpec(cpu=cpu, memory=memory, fgpu=amount, gpu_memory=gpu_memory))
        done = _settled(client, asked)
        output.print(f"{done.name} ({done.id}): {resources_text(done)}", highlight=False, markup=False)
        target = asked.resizing
        if target and (causes := _causes(client, done, target, {each.id for each in concerned})):
            messages.print("\n".join(causes), highlight=False, markup=False)
            raise typer.Exit(1)


def _settled(client: Client, session: ComputeSession) -> ComputeSession:
    """Return the session once all hosts concerned have resized it or refused to, or it has ended."""
    if session.resizing is None:
        return session
    whole = session.cluster.members[0].id if session.cluster else session.id  # its resize is that of any member
    for current in client.watch(whole):
        if current.resizing is None:
            break
    return client.session(session.id)


def _resized_together(session: ComputeSession) -> Sequence[ClusterMember]:
    """Return the members of a cluster that are resized with this one: all, but for a main1 with a size of its own."""
    if session.cluster is None:
        return ()
    main, *others = session.cluster.members
    if not session.cluster.main_differs:
        return session.cluster.members
    return (main,) if session.id == main.id else others


def _causes(client: Client, session: ComputeSession, target: SessionAmounts, concerned: Collection[str]) -> list[str]:
    """Return why the session, or which of the members concerned, has other amounts than it was to have."""
    asked = (target.cpu, target.memory, target.fgpu)
    if session.cluster is None:
        return [] if (session.cpu, session.memory, session.fgpu) == asked else [_cause(client, session)]
    members = [each for each in session.cluster.members if each.id in concerned]
    others = [each for each in members if (each.cpu, each.memory, each.fgpu) != asked]
    return [f"{each.name}: {_cause(client, each)}" for each in others]


def _cause(client: Client, session: ComputeSession | ClusterMember) -> str:
    refused = [event.detail for event in client.session_events(session.id) if event.reason == "RESIZE_REFUSED"]
    return refused[-1] if refused else f"It was not resized: {session.status}."
