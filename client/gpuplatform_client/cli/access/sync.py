"""`gpuplatform sync`: make a directory equal another, of this machine and of a session or data folder."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from gpuplatform_client.cli.access.ssh import folder_words, is_remote, session_words
from gpuplatform_client.cli.amounts import MIB
from gpuplatform_client.cli.connection import messages, output, reporting
from gpuplatform_client.cli.exit_codes import FAILED
from gpuplatform_client.errors import ClientError
from gpuplatform_client.operations.lookups import folder_place
from gpuplatform_client.sync.mirror import Mirror, MirrorResult, Step, StepKind
from gpuplatform_client.sync.sftp import SftpClient
from gpuplatform_client.sync.trees import LocalTree, Scan, SftpTree, Tree

WATCH_SECONDS: Final = 1.0
KEEP_ALIVE: Final = ("-o", "ServerAliveInterval=15")  # so that a lost network is noticed


@reporting()
def sync(
    source: Annotated[str, typer.Argument(help="A directory here, SESSION:PATH, or folder:FOLDER/PATH")],
    target: Annotated[str, typer.Argument(help="As the source; one of them is here")],
    delete: Annotated[bool, typer.Option("--delete", help="Remove there what the source does not have")] = False,
    exclude: Annotated[
        list[str] | None, typer.Option(help="A pattern as in .gitignore, left alone on both sides; may be repeated")
    ] = None,
    gitignore: Annotated[
        bool, typer.Option("--gitignore", help="Leave out what .gitignore files name, and .git")
    ] = False,
    checksum: Annotated[bool, typer.Option("--checksum", help="Compare contents, not times; reads both sides")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Print what would be done")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on with each change of the source until Ctrl-C")] = False,
) -> None:
    """Make a directory equal another: files that differ in size or time are copied, by SSH. Links are not followed."""
    if is_remote(source) == is_remote(target):
        raise ClientError("One side is SESSION:PATH or folder:FOLDER/PATH, and the other a directory of this machine.")
    if watch and dry_run:
        raise typer.BadParameter("There is nothing to watch in a dry run.", param_hint="--watch")
    with _tree(source) as from_tree, _tree(target) as to_tree:
        mirror = Mirror(from_tree, to_tree, tuple(exclude or ()), gitignore, delete, checksum)
        result = _reported(mirror.run(_show, is_dry=dry_run))
        if watch:
            _watch(mirror, result.source)
    if result.problems:
        raise typer.Exit(FAILED)


def _watch(mirror: Mirror, known: Scan) -> None:
    """Repeat the mirror after each change of the source since it was `known`."""
    messages.print("Watching; Ctrl-C ends it.")
    while True:
        time.sleep(WATCH_SECONDS)
        if mirror.source_state() != known:
            known = _reported(mirror.run(_show)).source


@contextmanager
def _tree(place: str) -> Iterator[Tree]:
    if not is_remote(place):
        yield LocalTree(Path(place))
        return
    if (in_folders := folder_place(place)) is not None:
        words, root = folder_words(), f"/{in_folders}"
    else:
        name, _, path = place.partition(":")
        words, root = session_words(name), path.removeprefix("~/")
    with SftpClient([words[0], "-s", *KEEP_ALIVE, *words[1:], "sftp"]) as client:
        yield SftpTree(client, root)


def _show(step: Step) -> None:
    signs = {StepKind.REMOVE: "-", StepKind.REMOVE_DIRECTORY: "-"}
    end = "/" if step.act in (StepKind.MAKE, StepKind.REMOVE_DIRECTORY) else ""
    output.out(f"{signs.get(step.act, '+')} {_printable(step.path)}{end}", highlight=False)


def _printable(text: str) -> str:
    """Return a name without what a terminal obeys: whoever wrote there may have chosen it."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _reported(result: MirrorResult) -> MirrorResult:
    """Print what has become of it."""
    for problem in result.problems:
        messages.print(f"Error: {_printable(problem)}", highlight=False, markup=False)
    for path in result.skipped:
        messages.print(f"Skipped {_printable(path)}, which is a link or a device.", highlight=False, markup=False)
    acts = [step.act for step in result.steps]
    removed = acts.count(StepKind.REMOVE) + acts.count(StepKind.REMOVE_DIRECTORY)
    copied = f"{acts.count(StepKind.COPY)} copied ({result.copied_bytes / MIB:.1f} MiB)"
    messages.print(f"{copied}, {removed} removed, {result.unchanged} unchanged", highlight=False)
    return result
