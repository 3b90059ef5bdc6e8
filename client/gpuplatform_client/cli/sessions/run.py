"""`gpuplatform run`: launch a session, say why it waits, show its output, exit with its code."""

import shlex
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

import typer

from gpuplatform_client.cli.amounts import clock_text, range_text
from gpuplatform_client.cli.connection import connected, messages, output, reporting, show
from gpuplatform_client.cli.exit_codes import INTERRUPTED, NO_MORE_KNOWN, NOT_STARTED
from gpuplatform_client.cli.names import ImageName
from gpuplatform_client.cli.sessions import arrays
from gpuplatform_client.cli.sessions import run_options as options
from gpuplatform_client.cli.spec_files import (
    FileOption,
    outlook_text,
    print_made,
    print_outlook,
    print_translated,
    read_file,
    rooms_text,
)
from gpuplatform_client.client import Client
from gpuplatform_client.errors import ClientError
from gpuplatform_client.models.platform import ClusterSpec, ComputeSession, LaunchSpec, MemberSpec, MountSpec
from gpuplatform_client.operations import platform as operations
from gpuplatform_client.operations.lookups import completed

OUTAGE_SECONDS: Final = 600.0  # of the connection, after which it is given up; the session goes on


@reporting(NOT_STARTED)  # as `docker run` exits when no container was started
def run(
    command: options.Command = None,
    image: ImageName = None,
    file: FileOption = None,
    cpu: options.Cpu = None,
    memory: options.Memory = None,
    shared_memory: options.SharedMemory = None,
    fgpu: options.Fgpu = None,
    gpu_memory: options.GpuMemory = None,
    preset: options.Preset = None,
    nodes: options.Nodes = None,
    main_cpu: options.MainCpu = None,
    main_memory: options.MainMemory = None,
    main_fgpu: options.MainFgpu = None,
    cluster_mode: options.ClusterMode = None,
    share_gpus: options.ShareGpus = False,
    on_main: options.OnMain = False,
    max_restarts: options.MaxRestarts = None,
    group: options.Group = None,
    name: options.SessionTitle = None,
    env: options.Variables = None,
    mount: options.Mount = None,
    time_limit: options.TimeLimit = None,
    project: options.Project = None,
    preemptible: options.Preemptible = False,
    depends_on: options.DependsOn = None,
    array: options.Array = None,
    param: options.Param = None,
    max_parallel: options.MaxParallel = None,
    retries: options.Retries = None,
    detach: options.Detach = False,
    dry_run: options.DryRun = False,
) -> None:
    """Run a command in a session of its own, or what a file says, or start an interactive session."""
    before = tuple(part for text in depends_on or () for part in text.split(","))
    spec = LaunchSpec(
        image=image,
        depends_on=before or None,
        preset=preset,
        cpu=cpu,
        memory=memory,
        shared_memory=shared_memory,
        fgpu=fgpu_of(fgpu),
        gpu_memory=gpu_memory,
        resource_group=group,
        name=name,
        env=variables_of(env or []) or None,
        mounts=tuple(mount_of(text) for text in mount or []) or None,
        time_limit=time_limit,
        project=project,
        preemptible=preemptible or None,
        command=shlex.join(command) if command else None,
        cluster=_cluster(
            nodes,
            mode=cluster_mode,
            shares_gpus=share_gpus or None,
            runs_on_all=bool(command) and not on_main,
            max_restarts=max_restarts,
            main=_main(main_cpu, main_memory, main_fgpu),
        ),
    )
    if file is not None:
        if spec != LaunchSpec(image=image, depends_on=before or None) or array or param:
            text = "Beside a file there are --image, --depends-on, --detach and --dry-run."
            raise typer.BadParameter(text, param_hint="--file")
        raise typer.Exit(_carry_out_file(file, image or "", before, is_detached=detach, is_dry=dry_run))
    if image is None:
        raise typer.BadParameter("Name an image, or a file with --file.", param_hint="--image")
    if tasks := arrays.tasks_of(array, param or []):
        arrays.submit(spec, tasks, {"max_parallel": max_parallel, "retries": retries}, is_dry=dry_run)
        return
    if max_parallel is not None or retries is not None:
        raise typer.BadParameter("Say which tasks, with --array or --param.", param_hint="--max-parallel, --retries")
    raise typer.Exit(_carry_out(spec, is_detached=detach, is_dry=dry_run))


def _carry_out_file(path: Path, image: str, depends_on: Sequence[str], *, is_detached: bool, is_dry: bool) -> int:
    """Make what a file says, and follow it where that is one session, unless it is detached; return the exit code."""
    text = read_file(path)
    with connected(OUTAGE_SECONDS) as client:
        result = client.run_spec(text, image=image, depends_on=depends_on, dry_run=is_dry)
        print_translated(result)
        if is_dry:
            print_outlook(result)
            return 0
        ids = [each for document in result.documents for each in document.ids]
        [first, *others] = result.documents
        if is_detached or others or len(ids) != 1 or first.kind not in ("session", "cluster"):
            print_made(result)
            return 0
        return _announced(client, client.session(ids[0]))


def _carry_out(spec: LaunchSpec, *, is_detached: bool, is_dry: bool) -> int:
    """Launch what is asked for, and follow it unless it is detached; return the exit code."""
    with connected(OUTAGE_SECONDS) as client:
        spec = completed(spec, client.images())
        if is_dry:
            _print_estimate(client, spec)
            return 0
        session = _launched(client, spec)
        if session is None:
            return INTERRUPTED
        if is_detached:
            output.print(session.id, highlight=False)
            return 0
        return _announced(client, session)


def _announced(client: Client, session: ComputeSession) -> int:
    """Say which session it is, and follow it; return the exit code."""
    messages.print(f"Session {session.name} ({session.id}) in {session.resource_group}", highlight=False)
    try:
        return _follow_or_end(client, session)
    except ClientError as error:
        show(error)
        messages.print(f"The session may go on: see `gpuplatform ls`, or `gpuplatform logs -f {session.id}`.")
        return NO_MORE_KNOWN


def _launched(client: Client, spec: LaunchSpec) -> ComputeSession | None:
    """Launch the session and return it; None if that was interrupted, and the session is ended, if there is one."""
    operation = operations.launch(spec)
    try:
        [session] = client.run(operation)
    except KeyboardInterrupt:
        messages.print("Interrupted: the launch is being undone.")
        [session] = client.run(operation)  # by its key, the one that was launched already
        client.terminate(session.id)
        return None
    return session


def _follow_or_end(client: Client, session: ComputeSession) -> int:
    """Follow the session, and end it at an interrupt; return the exit code."""
    try:
        return _follow(client, session)
    except KeyboardInterrupt:
        client.terminate(session.id)
        messages.print("Interrupted: the session is being ended.")
        return INTERRUPTED


def _follow(client: Client, session: ComputeSession) -> int:
    """Print what becomes of the session and return the exit code."""
    last = session
    for seen in _reported(client.watch(session.id)):
        last = seen
        if not seen.is_waiting:
            break
    if last.kind != "batch" and not last.is_final:
        _print_entries(last)
        return 0
    if last.started_at is not None or not last.is_final:
        for piece in client.follow_logs(session.id):
            output.out(piece, end="", highlight=False)
        last = client.session(session.id)
    if last.cluster:  # its other members end after the first
        *_, last = client.watch(session.id)
    return _exit_code(last)


def _reported(changes: Iterable[ComputeSession]) -> Iterable[ComputeSession]:
    """Yield the changes; print each status, and each reason to wait, once."""
    said = ""
    for session in changes:
        text = _status_text(session)
        if text != said:
            messages.print(text, highlight=False, markup=False)
        said = text
        yield session


def _status_text(session: ComputeSession) -> str:
    parts = [f"{session.status}: {session.detail}" if session.detail else session.status]
    if session.status == "PENDING" and session.estimate:
        parts.append(f"Likely to start {range_text(session.estimate)}.")
    if session.status == "PENDING" and session.eta:
        parts.append(f"Starts at {clock_text(session.eta)} at the latest.")
    if session.status == "PENDING" and session.eta_reason:
        parts.append(session.eta_reason)
    return " ".join(parts)


def _print_entries(session: ComputeSession) -> None:
    if session.ssh:
        messages.print(session.ssh, highlight=False, markup=False)
    messages.print(f"Enter it with `gpuplatform ssh {session.name}`, end it with `gpuplatform stop {session.name}`.")


def _exit_code(session: ComputeSession) -> int:
    """Return the exit code of the command; where it has none, 0 after a success and NOT_STARTED or 1 otherwise.

    Of a cluster the highest of its members', as `srun` has it, those left out that were ended because another had.
    """
    messages.print(_status_text(session), highlight=False, markup=False)
    members = session.cluster.members if session.cluster else ()
    if codes := [each.exit_code for each in members if each.exit_code and each.reason != "CLUSTER_ENDED"]:
        return max(codes)
    if session.exit_code is not None:
        return session.exit_code
    if session.started_at is None:
        return NOT_STARTED
    return 0 if session.result == "SUCCESS" else 1


def _print_estimate(client: Client, spec: LaunchSpec) -> None:
    estimate = client.estimate(spec)
    output.print(outlook_text(estimate), markup=False)
    if rooms := rooms_text(estimate.gpus):
        output.print(rooms, markup=False)


def _cluster(nodes: str | None, *, runs_on_all: bool, **options: Any) -> ClusterSpec | None:
    least, dash, most = (nodes or "1").partition("-")
    if not least.isdecimal() or int(least) < 1 or (dash and not most.isdecimal()):
        raise typer.BadParameter('Write a number of members such as 4, or "2-4".', param_hint="--nodes")
    if int(most or least) > 1:
        return ClusterSpec(size=int(least), max_size=int(most) if most else None, runs_on_all=runs_on_all, **options)
    if any(value is not None for value in options.values()):
        raise typer.BadParameter("These options are of clusters: say how many members.", param_hint="--nodes")
    return None


def _main(cpu: int | None, memory: str | None, fgpu: str | None) -> MemberSpec | None:
    main = MemberSpec(cpu=cpu, memory=memory, fgpu=fgpu_of(fgpu))
    return None if main == MemberSpec() else main


def fgpu_of(text: str | None) -> Decimal | None:
    """Return a number of GPUs. Raises BadParameter."""
    try:
        return Decimal(text) if text else None
    except InvalidOperation:
        raise typer.BadParameter("Write a number such as 0.5.", param_hint="--fgpu") from None


def variables_of(texts: Iterable[str]) -> dict[str, str]:
    """Return the variables of texts such as NAME=VALUE. Raises BadParameter."""
    pairs = [text.partition("=") for text in texts]
    if not all(name and separator for name, separator, _ in pairs):
        raise typer.BadParameter("Write NAME=VALUE.", param_hint="--env")
    return {name: value for name, _, value in pairs}


def mount_of(text: str) -> MountSpec:
    """Return the folder to mount of a text such as FOLDER:PATH:ro. Raises BadParameter."""
    folder, _, rest = text.partition(":")
    path, _, mode = rest.partition(":")
    if not folder or mode not in ("", "ro", "rw"):
        raise typer.BadParameter("Write FOLDER, FOLDER:PATH or FOLDER:PATH:ro.", param_hint="--mount")
    return MountSpec(folder=folder, path=path or None, read_only={"ro": True, "rw": False}.get(mode))
